// Command agents is the six local agents of the demo in one program; its argument says which of them it is. Each does real,
// deterministic work over the invented data that is embedded here: none of it is medical advice, a timetable or an offer.
//
// It speaks the stdio protocol of agentd: newline-delimited JSON-RPC 2.0 with `aci/deliver`, `aci/progress` and `aci/cancel`.
// A context comes in, the agent fills ItemStateUpdates, KeyInformation and EvaluationResult and sends it back. Where something
// that it needs is missing it says so in an honest failed evaluation, never in a made-up answer. Several contexts are worked on
// at once, up to a limit. Source: seed 000, sections 3 to 5.
package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// role is one agent's work: it reads the job's context and records what it finds.
type role func(*job) error

var roles = map[string]role{
	"diagnosis": diagnose, "prescription": prescribe, "medicine": buyMedicine,
	"hotel": bookHotel, "flight": bookFlight, "weather": forecast,
}

func main() {
	if len(os.Args) != 2 || roles[os.Args[1]] == nil {
		fmt.Fprintf(os.Stderr, "usage: agents ROLE, one of %s; agentd starts it\n", strings.Join(slices.Sorted(maps.Keys(roles)), ", "))
		os.Exit(2)
	}
	if err := serve(os.Stdin, os.Stdout, roles[os.Args[1]]); err != nil {
		fmt.Fprintf(os.Stderr, "agents: %v\n", err)
		os.Exit(1)
	}
}
