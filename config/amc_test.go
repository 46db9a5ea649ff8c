package config

import (
	"strings"
	"testing"
	"time"
)

func TestAMC(t *testing.T) {
	g, err := LoadGateway(write(t, "gatewayd.yaml", goodGateway+`lab: true
amc:
  deciders: [token, cel, manual]
  rules: [{name: all, when: "true", allow: [agw.discover], life: 24h}]
  agent_life: 2s
  status_life: 3s
  pki_url: http://pki.hospital.example:8080
  pki_listen: ":8080"
`))
	if err != nil {
		t.Fatal(err)
	}
	if g.AMC.AgentLife.Or(0) != 2*time.Second || g.AMC.Rules[0].Life.Or(0) != 24*time.Hour || !g.HasRole(RoleAMC) || !g.HasRole(RoleGateway) {
		t.Errorf("%+v, roles %v", g.AMC, g.Roles)
	}
	for name, c := range map[string]struct{ text, says string }{
		"seconds outside a lab":    {"amc: {agent_life: 2s}\n", "lab: true"},
		"longer than the profile":  {"amc: {agent_life: 48h}\n", "amc.agent_life"},
		"no length of time":        {"amc: {agent_life: soon}\n", `"soon" is no length of time`},
		"unknown decider":          {"amc: {deciders: [oracle]}\n", "token, cel, manual"},
		"decider twice":            {"amc: {deciders: [token, token]}\n", "twice"},
		"rules that nobody reads":  {"amc: {rules: [{name: x, when: \"true\", deny: true}]}\n", "add cel"},
		"unknown role":             {"roles: [king]\n", "gateway, amc"},
		"a gateway without an AMC": {"roles: [gateway]\n", "amc.address"},
		"an AMC with an address":   {"amc: {address: \"h:1\"}\n", "remove the address"},
		"places that are not http": {"amc: {pki_url: \"https://x\"}\n", "amc.pki_url"},
		"a salt that is none":      {"aic: {prefix: 2.999.1.1, arsp: A1, salt: \"1234\", known_salts: {\"2.999.1.1.1.B\": \"1\"}}\n", "known_salts"},
		"an unknown key in a rule": {"amc: {deciders: [cel], rules: [{nam: x}]}\n", `did you mean "name"`},
	} {
		text := goodGateway + c.text
		if strings.HasPrefix(c.text, "aic:") {
			text = "domain: a.example\n" + c.text
		}
		if _, err := LoadGateway(write(t, "gatewayd.yaml", text)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

func TestMistypedAICIsFound(t *testing.T) {
	a := AIC{Prefix: "2.999.1.1", ARSP: "1", Salt: "1234", KnownSalts: map[string]string{"1.2.156.3088.1.1": "1234"}}
	for text, good := range map[string]bool{
		"2.999.1.1.1.1.1.1.1.10GC":                 true,
		"2.999.1.1.1.1.1.1.1.10GD":                 false,
		"1.2.156.3088.1.1.34C2.478BDF.3GF546.0JU4": true,
		"1.2.156.3088.1.1.34C2.478BDF.3GF564.0JU4": false,
		"1.2.156.3088.1.2.34C2.478BDF.3GF546.0JU4": true, // an issuer whose salt nobody here knows
		"doctor": false,
	} {
		if _, err := a.CheckAIC(text); (err == nil) != good {
			t.Errorf("%s: %v", text, err)
		}
	}
}
