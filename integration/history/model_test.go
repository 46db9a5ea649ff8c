// Package history_test checks the history of a gateway that is killed again and again: real processes, real clients, and a model that
// says which answers could have been given. Registrations, suspensions, revocations and withdrawals go on while the gateway is killed,
// started, and once restored from an old backup; porcupine finds an order of everything that explains every answer, or says that there is none.
//
// Source: seed 002, section 5.1 (registration); cdsp/PROTOCOL.md, "Agent and gateway" and "Backup".
package history_test

import (
	"fmt"
	"testing"

	"github.com/anishathalye/porcupine"
)

// verb is what was asked.
type verb string

const (
	register verb = "register"
	query    verb = "query"
	suspend  verb = "suspend"
	resume   verb = "resume"
	revoke   verb = "revoke"
	withdraw verb = "withdraw"
	backup   verb = "backup"  // of the gateway, so of every agent
	restore  verb = "restore" // from that backup
)

type input struct {
	token int
	verb  verb
}

type output struct {
	aic     string // of register that was answered
	state   string // of query; "" for no entry
	refused bool
	unknown bool // no answer: it may have been done, now or later
}

// agent is what the model knows of the agent of one token.
type agent struct {
	registered bool
	gone       bool // it was registered after the backup that was restored
	aic        string
	state      string // ACTIVE, SUSPENDED, or "" when it has ended
	saved      bool   // in the backup
	restored   bool
}

// step says whether an answer could have been given in a state, and what the state is then.
func (a agent) step(in input, out output) (bool, agent) {
	switch in.verb {
	case register:
		return a.register(out)
	case query:
		want := ""
		if a.registered {
			want = a.state
		}
		return out.state == want, a
	case backup:
		a.saved = a.registered
	case restore:
		a.restored = true
		if a.registered && !a.saved {
			a.registered, a.gone = false, true
		}
	case suspend, resume:
		if out.refused {
			return !a.registered || a.state == "", a
		}
		if !a.registered || a.state == "" {
			return false, a
		}
		a.state = map[verb]string{suspend: "SUSPENDED", resume: "ACTIVE"}[in.verb]
	default: // revoke, withdraw: for good, and doing it twice is no fault
		if !a.registered && !a.gone {
			return false, a
		}
		a.state = ""
	}
	return true, a
}

func (a agent) register(out output) (bool, agent) {
	switch {
	case out.refused:
		return a.restored || a.gone || a.registered && a.state != "ACTIVE", a
	case out.unknown && (a.registered || a.gone):
		return true, a
	case a.gone, a.registered && a.aic != "" && a.aic != out.aic && !out.unknown, a.registered && a.state != "ACTIVE":
		return false, a
	}
	if !a.registered {
		a.registered, a.state = true, "ACTIVE"
	}
	if !out.unknown {
		a.aic = out.aic
	}
	return true, a
}

var model = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		by := map[int][]porcupine.Operation{}
		for _, op := range history {
			t := op.Input.(input).token
			by[t] = append(by[t], op)
		}
		var out [][]porcupine.Operation
		for _, list := range by {
			out = append(out, list)
		}
		return out
	},
	Init: func() any { return agent{} },
	Step: func(state, in, out any) (bool, any) {
		ok, next := state.(agent).step(in.(input), out.(output))
		return ok, next
	},
	Equal: func(x, y any) bool { return x.(agent) == y.(agent) },
	DescribeOperation: func(in, out any) string {
		i := in.(input)
		return fmt.Sprintf("%s %d: %+v", i.verb, i.token, out)
	},
}

// The model would see what must never be: each history here is one fault.
func TestModelSeesFaults(t *testing.T) {
	type step struct {
		verb verb
		out  output
	}
	ok, active, none := output{}, output{state: "ACTIVE"}, output{}
	reg := output{aic: "A"}
	for name, c := range map[string]struct {
		steps []step
		legal bool
	}{
		"a life":                             {[]step{{register, reg}, {query, active}, {suspend, ok}, {query, output{state: "SUSPENDED"}}, {resume, ok}, {query, active}, {revoke, ok}, {query, none}}, true},
		"a registration lost":                {[]step{{register, reg}, {query, none}}, false},
		"two AICs for one token":             {[]step{{register, reg}, {register, output{aic: "B"}}}, false},
		"a lost answer completed":            {[]step{{register, output{unknown: true}}, {register, reg}, {query, active}}, true},
		"a revocation undone":                {[]step{{register, reg}, {revoke, ok}, {query, active}}, false},
		"a suspension undone":                {[]step{{register, reg}, {backup, ok}, {suspend, ok}, {restore, ok}, {query, active}}, false},
		"a revocation undone by a restore":   {[]step{{register, reg}, {backup, ok}, {revoke, ok}, {restore, ok}, {query, active}}, false},
		"saved, and lost by the restore":     {[]step{{register, reg}, {backup, ok}, {restore, ok}, {query, none}}, false},
		"not saved, and half there":          {[]step{{backup, ok}, {register, reg}, {restore, ok}, {query, active}}, false},
		"not saved, refused":                 {[]step{{backup, ok}, {register, reg}, {restore, ok}, {query, none}, {register, output{refused: true}}}, true},
		"not saved, and the same AIC again":  {[]step{{backup, ok}, {register, reg}, {restore, ok}, {register, reg}}, false},
		"refused for no reason":              {[]step{{register, output{refused: true}}}, false},
		"a withdrawn agent registered again": {[]step{{register, reg}, {withdraw, ok}, {register, reg}}, false},
	} {
		var ops []porcupine.Operation
		for i, s := range c.steps {
			op := porcupine.Operation{Input: input{1, s.verb}, Output: s.out, Call: int64(2 * i), Return: int64(2*i + 1)}
			if s.out.unknown {
				op.Return = 1000
			}
			ops = append(ops, op)
		}
		if got := porcupine.CheckOperations(model, ops); got != c.legal {
			t.Errorf("%s: the model says %v", name, got)
		}
	}
}
