package amc

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"cel.dev/cel-go/cel"

	"agentgw/internal/frame"
)

// celCost bounds what one rule may compute about one request: a rule that a person can read stays far below it.
const celCost = 100_000

// Rule is one rule of [CELRules].
type Rule struct {
	Name   string
	When   string // CEL, of type bool, over `request`
	Allow  []string
	Deny   bool
	Reason string        // of a denial, for the agent's people
	Life   time.Duration // of the grant, default a year
}

// CELRules is the decider by expressions: the first rule that is true decides; where none is, it has no opinion. An expression
// that cannot be evaluated about a request denies it.
//
// `request` has gateway, kind ("agent" or "gateway"), spki (hexadecimal), vendor, ontology, organization, country, address, name,
// scope and skills (lists), token (has it one) and renewal (is the agent registered already).
type CELRules struct {
	rules    []Rule
	programs []cel.Program
}

// NewCELRules compiles rules. The error names the rule and the place in it.
func NewCELRules(rules []Rule) (*CELRules, error) {
	env, err := cel.NewEnv(cel.Variable("request", cel.MapType(cel.StringType, cel.DynType)))
	if err != nil {
		return nil, err
	}
	out := &CELRules{rules: rules}
	for _, r := range rules {
		if r.Deny == (len(r.Allow) > 0) {
			return nil, fmt.Errorf("rule %q: it needs either allow or deny", r.Name)
		}
		if err := checkScope(r.Allow); err != nil {
			return nil, fmt.Errorf("rule %q: %w", r.Name, err)
		}
		ast, issues := env.Compile(r.When)
		if issues.Err() != nil {
			return nil, fmt.Errorf("rule %q: %w", r.Name, issues.Err())
		}
		if ast.OutputType() != cel.BoolType {
			return nil, fmt.Errorf("rule %q: its expression is a %s, a bool is due", r.Name, ast.OutputType())
		}
		program, err := env.Program(ast, cel.CostLimit(celCost))
		if err != nil {
			return nil, fmt.Errorf("rule %q: %w", r.Name, err)
		}
		out.programs = append(out.programs, program)
	}
	return out, nil
}

// Name implements Decider.
func (*CELRules) Name() string { return "cel" }

// Decide implements Decider.
func (c *CELRules) Decide(_ Tx, q *Question) (Verdict, error) {
	kind := "agent"
	if q.Class == ClassGateway {
		kind = "gateway"
	}
	request := map[string]any{"request": map[string]any{
		"gateway": q.GW, "kind": kind, "spki": hex.EncodeToString(q.SPKI), "vendor": q.Vendor, "ontology": q.Ontology,
		"organization": q.Attributes.Organization, "country": q.Attributes.Country, "address": q.Attributes.Address, "name": q.Attributes.Name,
		"scope": list(q.Scope), "skills": list(q.Skills), "token": len(q.TokenHash) > 0, "renewal": q.Renewal,
	}}
	for i, p := range c.programs {
		r := c.rules[i]
		out, _, err := p.Eval(request)
		if err != nil {
			return Verdict{}, frame.Errorf(frame.PolicyDenied, "the rule %q cannot be evaluated about this request: %w", r.Name, err)
		}
		if out.Value() != true {
			continue
		}
		if r.Deny {
			return Verdict{Kind: Deny, Reason: or(r.Reason, "rule "+r.Name)}, nil
		}
		v := Verdict{Kind: Allow, Scope: r.Allow, Life: r.Life}
		if !q.Renewal { // by the key: a registration that was cut short goes on under its grant
			sum := sha256.Sum256(slices.Concat([]byte("cel\x00"), q.SPKI, []byte(q.GW)))
			v.JTI = sum[:16]
		}
		return v, nil
	}
	return Verdict{}, nil
}

func list(l []string) []string {
	if l == nil {
		return []string{}
	}
	return l
}
