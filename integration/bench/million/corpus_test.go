package main

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"agentgw/directory/acs"
)

// Entries are the same in every run, each another one, and valid.
func TestCorpus(t *testing.T) {
	c := corpus{codes{"2.999.1.1", "A", []byte{1, 2}}}
	aics, texts := map[string]bool{}, map[string]bool{}
	for n := range 3000 {
		raw, err := c.line(n, 1)
		if err != nil {
			t.Fatal(err)
		}
		if again, _ := c.line(n, 1); !bytes.Equal(raw, again) {
			t.Fatalf("entry %d is another one the second time", n)
		}
		var line struct{ ACS json.RawMessage }
		if err := json.Unmarshal(raw, &line); err != nil {
			t.Fatal(err)
		}
		doc, err := acs.Parse(line.ACS)
		if err != nil {
			t.Fatal(err)
		}
		if p := doc.Validate(acs.Options{Draft: true}); len(p) > 0 {
			t.Fatalf("entry %d: %v", n, p)
		}
		aics[doc.AIC], texts[doc.Skills[0].Description] = true, true
	}
	if len(aics) != 3000 || len(texts) != 3000 {
		t.Errorf("%d AICs, %d texts", len(aics), len(texts))
	}
	first, _ := c.line(0, 1)
	if second, _ := c.line(0, 2); bytes.Equal(first, second) {
		t.Error("a put changes nothing")
	}
}

func TestQuantile(t *testing.T) {
	list := []time.Duration{5, 1, 4, 2, 3}
	if got := [3]time.Duration{quantile(list, 0), quantile(list, .5), quantile(list, .99)}; got != [3]time.Duration{1, 3, 5} {
		t.Error(got)
	}
}
