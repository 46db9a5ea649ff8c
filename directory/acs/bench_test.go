package acs

import (
	"os"
	"testing"
)

func BenchmarkParse(b *testing.B) {
	doc, err := os.ReadFile("../../integration/testdata/quickstart/pharmacy.acs.json")
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(doc)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(doc); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkHash(b *testing.B) {
	doc, err := os.ReadFile("../../integration/testdata/quickstart/pharmacy.acs.json")
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(doc)))
	for b.Loop() {
		if _, err := Hash(doc); err != nil {
			b.Fatal(err)
		}
	}
}
