package main

import (
	"encoding/json"
	"strings"
)

// domain is one Agent Autonomous Domain of the demo, with its gateway.
type domain struct {
	gateway string // as people call it: AG1, AG3, AG2
	name    string
}

// The three domains in the order of the path: AG1 and AG2 know AG3 only.
var domains = []domain{{"AG1", "hospital.example"}, {"AG3", "transit.example"}, {"AG2", "pharmacy.example"}}

// link is a pair of gateways that peer; dialer and target are indexes of domains.
type link struct{ dialer, target int }

var links = []link{{0, 1}, {2, 1}}

// name is the link as -break takes it.
func (l link) name() string {
	if l.dialer == 0 {
		return "AG1-AG3"
	}
	return "AG3-AG2"
}

// is says whether s names the link, in either direction.
func (l link) is(s string) bool {
	a, b, _ := strings.Cut(l.name(), "-")
	return strings.EqualFold(s, a+"-"+b) || strings.EqualFold(s, b+"-"+a)
}

// agent is one agent of the demo.
type agent struct {
	name       string // local name, and the argument of the agents' program
	title      string // of its ACS
	about      string
	provider   string
	domain     int // index of domains
	home       int // index of the agentd that hosts it
	visibility string
	program    bool // it has a program behind it
	skills     []skill
}

type skill struct {
	ID          string   `json:"id"`
	Name        string   `json:"name"`
	Description string   `json:"description"`
	Tags        []string `json:"tags"`
	Examples    []string `json:"examples,omitempty"`
	Input       []string `json:"inputModes,omitempty"`
	Output      []string `json:"outputModes,omitempty"`
}

// hosts are the agentds: one a domain, and one of the user's own, which belongs to the first domain too.
var hosts = []string{"agentd-hospital", "agentd-transit", "agentd-pharmacy", "agentd-assistant"}

const assistantHost = 3

// assistant is the Master Agent of both tasks; it offers nothing to others.
var assistant = agent{
	name: "assistant", title: "Personal assistant", about: "Has tasks of its user done by other agents.", provider: "Demo Hospital",
	domain: 0, home: assistantHost, visibility: "private",
	skills: []skill{{ID: "assist", Name: "Personal assistance", Description: "Plans tasks and invokes other agents.", Tags: []string{"assistant"}}},
}

// cast are the agents that the tasks need: two in each domain, so that requests of AG1 find them after 0, 1 and 2 hops.
var cast = []agent{
	{
		name: "diagnosis", title: "Diagnosis agent", about: "Works out what a patient has.", provider: "Demo Hospital", domain: 0, home: 0,
		visibility: "public", program: true,
		skills: []skill{{
			ID: "diagnose", Name: "Disease diagnosis", Tags: []string{"health", "diagnosis"},
			Description: "Finds the disease that explains the symptoms of a patient, such as fever, cough or a sore throat.",
			Examples:    []string{"disease diagnosis from symptoms"},
		}},
	},
	{
		name: "weather", title: "Weather agent", about: "Knows the weather of cities.", provider: "Demo Hospital", domain: 0, home: 0,
		visibility: "public", program: true,
		skills: []skill{{
			ID: "forecast", Name: "Weather forecast", Tags: []string{"travel", "weather"},
			Description: "Says what weather to expect in a city on the days of travel, and what to pack.",
			Examples:    []string{"weather forecast for travel days"},
		}},
	},
	{
		name: "prescription", title: "Prescription agent", about: "Treats what was diagnosed.", provider: "Demo Transit Clinic", domain: 1, home: 1,
		visibility: "public", program: true,
		skills: []skill{{
			ID: "prescribe", Name: "Medical prescription", Tags: []string{"health", "prescription"},
			Description: "Writes a prescription for a disease, with dose and duration, that respects the allergies of the patient.",
			Examples:    []string{"medical prescription with dose and duration"},
		}},
	},
	{
		name: "flight", title: "Flight agent", about: "Books flights.", provider: "Demo Transit Air", domain: 1, home: 1,
		visibility: "public", program: true,
		skills: []skill{{
			ID: "book-flight", Name: "Flight booking", Tags: []string{"travel", "flight"},
			Description: "Books a return flight between two cities, direct or with a change, at the lowest fare.",
			Examples:    []string{"book a return flight"},
		}},
	},
	{
		name: "medicine", title: "Medicine agent", about: "Buys medicine.", provider: "Demo Pharmacy", domain: 2, home: 2,
		visibility: "public", program: true,
		skills: []skill{{
			ID: "buy-medicine", Name: "Buy medicine", Tags: []string{"health", "shopping"},
			Description: "Buys the medicine of a prescription at the pharmacy that has it at the lowest price.",
			Examples:    []string{"buy medicine at a pharmacy"},
		}},
	},
	{
		name: "hotel", title: "Hotel agent", about: "Books hotels.", provider: "Demo Pharmacy Guest House", domain: 2, home: 2,
		visibility: "public", program: true,
		skills: []skill{{
			ID: "book-hotel", Name: "Hotel booking", Tags: []string{"travel", "hotel"},
			Description: "Books the best rated hotel room in a city for some nights within a budget.",
			Examples:    []string{"book a hotel room in a city"},
		}},
	},
}

// acs is the draft Agent Capability Specification that the agent presents at its enrolment.
func (a agent) acs() ([]byte, error) {
	return json.Marshal(map[string]any{
		"protocolVersion": "02.02", "name": a.title, "description": a.about, "version": "1.0.0",
		"provider":           map[string]string{"organization": a.provider},
		"securitySchemes":    map[string]any{"mtls": map[string]string{"type": "mutualTLS"}},
		"endPoints":          []any{},
		"capabilities":       map[string]bool{"streaming": false, "notification": false},
		"defaultInputModes":  []string{"application/json", "text/plain"},
		"defaultOutputModes": []string{"application/json"},
		"skills":             a.skills,
	})
}
