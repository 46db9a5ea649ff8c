package config

import (
	"agentgw/internal/identity"
)

// Sibling is another AMC of the own domain, as `gatewayd sibling add` writes it: this AMC's bundle names it, so that everybody who
// trusts this AMC believes its gateways and agents too.
type Sibling struct {
	File        string `yaml:"-"`
	Address     string `yaml:"address"`     // host:port where it pushes its bundle and status lists
	Bundle      string `yaml:"bundle"`      // file of its trust bundle
	Fingerprint string `yaml:"fingerprint"` // sha256:… of the key that signed it
}

// LoadSiblings reads every sibling of a folder; one that is not there holds none.
func LoadSiblings(dir string) ([]*Sibling, error) {
	files, err := each(dir)
	if err != nil {
		return nil, err
	}
	var out []*Sibling
	for _, f := range files {
		s := &Sibling{File: f}
		if err := load(f, s); err != nil {
			return nil, err
		}
		s.Bundle = under(f, s.Bundle)
		p := &problems{file: f}
		p.hostPort("address", s.Address)
		if s.Bundle == "" {
			p.add("bundle", "the file of its trust bundle is due; `gatewayd sibling add` writes the whole file")
		}
		if _, err := identity.ParseFingerprint(s.Fingerprint); err != nil {
			p.add("fingerprint", "%v", err)
		}
		if err := p.err(); err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}
