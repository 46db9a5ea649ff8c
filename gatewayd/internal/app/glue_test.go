package app

import (
	"testing"
	"time"
)

func TestDigestsOfLargeDirectoriesAreBuiltMoreRarely(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{0: publishPause, time.Millisecond: publishPause, 100 * time.Millisecond: 900 * time.Millisecond, time.Hour: time.Minute} {
		if got := restAfter(took); got != want {
			t.Errorf("after %v: %v, want %v", took, got, want)
		}
	}
}
