package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"

	"agentgw/directory/aic"
)

// corpusSeed makes the entries the same in every run, but for the codes of the domain that they are of.
const corpusSeed = 20261201

// What the entries are about. Every combination of an action, an object and a place is another capability.
var (
	actions = strings.Fields("sell rent repair inspect translate summarise schedule cancel compare track deliver insure audit book teach monitor estimate print " +
		"scan archive negotiate verify classify transcribe assemble paint clean tune calibrate restore ship import export certify photograph map measure forecast")
	objects = strings.Split("medicine,hotel rooms,flight tickets,concert tickets,tax returns,invoices,rental contracts,solar panels,heat pumps,bicycles,cargo containers,"+
		"court records,school timetables,wedding cakes,garden furniture,running shoes,espresso machines,network routers,drone surveys,blood samples,"+
		"weather reports,share portfolios,crop yields,water meters,train seats,parking permits,museum guides,language courses,news articles,patent claims,"+
		"customs declarations,wind turbines,laboratory mice,violins,mountain huts,fishing licences,satellite images,recipes,X-ray pictures,security cameras", ",")
	manners = strings.Split("within the hour,overnight,by subscription,for small companies,for hospitals,for schools,in five languages,with a written report,"+
		"at a fixed price,without an appointment,for a whole fleet,under a maintenance contract,with same-day confirmation,for private households,on public holidays,"+
		"against a deposit,with live progress,for regulated industries,with a money-back promise,in cooperation with the local authority", ",")
	wants = strings.Split("I need somebody who can,please find an agent to,who is able to,can anyone,help me to,we are looking for a service to", ",")
	firms = strings.Fields("Northwind Alder Beacon Cobalt Drift Ember Fathom Granite Harbour Indigo Juniper Kestrel Lumen Meridian Nimbus Osprey Pioneer Quarry Ridge Summit")
	forms = strings.Fields("Services Labs Logistics Partners Works Group Systems Bureau Collective Studio")
	heads = strings.Fields("Al Bran Cor Dun Es Far Glen Hol Ing Kal Lor Mar Nor Os Pel Quin Ros Sal Tor Ul Ver Wes Yar Zel")
	tails = strings.Fields("burg dale field ford gate ham hurst ley mouth port stead ton vale wick worth by")
)

// codes are those of the domain whose AICs the entries have.
type codes struct {
	prefix, arsp string
	salt         []byte
}

// corpus makes entries, each from its number alone.
type corpus struct{ codes }

func pick(r *rand.Rand, list []string) string { return list[r.IntN(len(list))] }

func place(r *rand.Rand) string { return pick(r, heads) + pick(r, tails) }

// line is entry n as `gatewayd agents export` would write it; version is part of its text, for puts.
func (c corpus) line(n, version int) ([]byte, error) {
	r := rand.New(rand.NewPCG(corpusSeed, uint64(n)))
	firm := pick(r, firms) + " " + pick(r, forms)
	id, err := aic.New(c.prefix, c.arsp, aic.Index(strings.ToLower(firm)), "1", fmt.Sprint(n+1), c.salt)
	if err != nil {
		return nil, err
	}
	where := place(r)
	var skills []map[string]any
	for s := range 1 + r.IntN(2) {
		action, object := pick(r, actions), pick(r, objects)
		skills = append(skills, map[string]any{
			"id": fmt.Sprintf("%s.%s.%d", action, strings.ReplaceAll(object, " ", "-"), s), "version": "1.0.0",
			"name": fmt.Sprintf("%s %s in %s", action, object, where),
			"description": fmt.Sprintf("Can %s %s %s, %s, and also %s %s. Serves %s and %s; desk %d, edition %d.",
				action, object, pick(r, manners), pick(r, manners), pick(r, actions), pick(r, objects), where, place(r), n, version),
			"tags":     []string{object, action, strings.ToLower(where)},
			"examples": []string{fmt.Sprintf("%s %s %s near %s", pick(r, wants), action, object, where)},
		})
	}
	return json.Marshal(map[string]any{
		"acs": map[string]any{
			"aic": string(id), "protocolVersion": "02.02", "name": fmt.Sprintf("%s %s", firm, where), "description": "Agent of " + firm + " for " + where + ".",
			"version": "1.0.0", "provider": map[string]any{"organization": firm}, "securitySchemes": map[string]any{"mtls": map[string]any{"type": "mutualTLS"}},
			"endPoints": []any{}, "capabilities": map[string]any{"streaming": false, "notification": false, "messageQueue": []any{}},
			"defaultInputModes": []string{"text/plain"}, "defaultOutputModes": []string{"text/plain", "application/json"}, "skills": skills,
		},
		"entry": map[string]any{"visibility": "public"},
	})
}

// query is request n: about what some entry offers, in other words than its own name.
func (c corpus) query(n int) string {
	r := rand.New(rand.NewPCG(corpusSeed+1, uint64(n)))
	return fmt.Sprintf("%s %s %s %s in %s", pick(r, wants), pick(r, actions), pick(r, objects), pick(r, manners), place(r))
}

// write writes entries 0 to n-1 as lines of a file.
func (c corpus) write(file string, n int) (err error) {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() {
		if e := f.Close(); err == nil {
			err = e
		}
	}()
	w := bufio.NewWriterSize(f, 1<<20)
	for i := range n {
		line, err := c.line(i, 1)
		if err != nil {
			return err
		}
		w.Write(line)
		w.WriteByte('\n')
	}
	return w.Flush()
}
