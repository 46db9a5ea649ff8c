package main

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"agentgw/a2a/aci"
	"agentgw/directory"
	"agentgw/directory/match"
	"agentgw/directory/semreq"
	"agentgw/internal/frame"
	"crypto/ed25519"
)

func BenchmarkParts(b *testing.B) {
	x := &match.Index{}
	list := corpus()
	d, _ := newDomain("x.example", "A1")
	var first string
	for i, skills := range list {
		var caps []directory.Capability
		id, _ := d.newAIC()
		if i == 16 {
			first = string(id)
		}
		for _, s := range skills {
			caps = append(caps, directory.Capability{AIC: string(id), CapID: directory.CapID(string(id), s.ID), SkillID: s.ID, Name: s.Name, Description: s.Description, Tags: s.Tags, Provider: fmt.Sprint("P", i)})
		}
		x.Put(string(id), caps)
	}
	cap7 := directory.CapID(first, list[16][7].ID)
	b.Run("match exact", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if len(x.Resolve(match.Query{Caps: []string{cap7}, Limit: 1})) != 1 {
				b.Fatal()
			}
		}
	})
	b.Run("match text", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if len(x.Resolve(match.Query{Text: list[16][9].Name, Limit: 5})) == 0 {
				b.Fatal()
			}
		}
	})
	var texts []string
	for _, a := range list {
		for _, k := range a {
			texts = append(texts, k.text())
		}
	}
	si := newSimpleIndex(texts)
	b.Run("simple index", func(b *testing.B) {
		for b.Loop() {
			si.top10(list[16][9].Name)
		}
	})
	b.Run("score text", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			match.ScoreText(match.Query{Text: "buy medicine at a pharmacy"}, match.SkillText{Name: "Buy medicine", Description: "Buys the medicine of a prescription at the pharmacy that has it at the lowest price.", Tags: []string{"shopping"}})
		}
	})
	s := list[16][7]
	res := &semreq.Result{ReqID: make([]byte, 16), QHash: make([]byte, 32), AIC: first, Cap: cap7, Score: 5000, GW: first, Exp: uint64(time.Now().Unix()) + 60, ACSVer: 1, Skill: semreq.Skill{Name: s.Name, Description: s.Description, Tags: s.Tags}}
	signer := frame.NewSigner(floorKey)
	b.Run("sign result", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			res.Sign(signer)
		}
	})
	b.Run("ed25519 sign", func(b *testing.B) {
		for b.Loop() {
			ed25519.Sign(floorKey, make([]byte, 500))
		}
	})
	signed, _ := res.Sign(signer)
	keys := func(frame.KeyID) (frame.VerifyKey, bool) {
		return frame.VerifyKey{Public: signer.Public(), Owner: first, Domain: "x.example"}, true
	}
	b.Run("open result", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := semreq.OpenResult(signed, res.ReqID, res.QHash, keys, func(string) string { return "x.example" }, time.Now()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("floor verify", func(b *testing.B) {
		p, _ := floorSign(signed)
		for b.Loop() {
			floorVerify(p)
		}
	})
	c, _ := sampleContext(target{AIC: first})
	body, err := c.Encode()
	if err != nil {
		b.Fatal(err)
	}
	b.Run("aci encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			c.Encode()
		}
	})
	b.Run("aci parse", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := aci.ParseAgentContext(body); err != nil {
				b.Fatal(err)
			}
		}
	})
	plain := new(floorAgentContext)
	json.Unmarshal(body, plain)
	b.Run("json encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			json.Marshal(plain)
		}
	})
	b.Run("json decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			json.Unmarshal(body, new(floorAgentContext))
		}
	})
}
