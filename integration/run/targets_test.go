package main

import "testing"

func TestStopRace(t *testing.T) {
	for out, want := range map[string]bool{
		"fuzz: elapsed: 10s, execs: 40304 (0/sec)\n--- FAIL: FuzzX (10.20s)\n    context deadline exceeded\nFAIL\n":                                                           true,
		"--- FAIL: FuzzX (0.02s)\n    --- FAIL: FuzzX (0.00s)\n        x_test.go:9: context deadline exceeded\n    \n    Failing input written to testdata/fuzz/FuzzX/7f43\n": false,
		"--- FAIL: FuzzX (9.02s)\n    fuzzing process hung or terminated unexpectedly: exit status 2\n    Failing input written to testdata/fuzz/FuzzX/7f43\n":                false,
		"x_test.go:9:2: undefined: y\nFAIL\texample [build failed]\n":                                                                                                         false,
	} {
		if got := stopRace([]byte(out)); got != want {
			t.Errorf("%q: %v", out, got)
		}
	}
}
