package contrast

import (
	"fmt"
	"path/filepath"
	"slices"

	"agentgw/directory"
	"agentgw/directory/match"
	"agentgw/directory/match/table"
	"agentgw/directory/match/toolset"
)

// source is a public set with the splits of its requests that may be learned from: all others are for reporting, and are never looked at.
type source struct {
	name   string
	splits []string
}

var sources = []source{
	{"metatool", []string{"train"}},
	{"sealtools", []string{"dev"}},
	{"stabletoolbench", []string{"G1_instruction", "G1_category", "G1_tool"}},
	{"livemcpbench", nil}, // its tools' names and descriptions only
}

// Learning is the splits of a set that may be learned from; nil where there is none.
func Learning(set string) []string {
	for _, s := range sources {
		if s.name == set {
			return slices.Clone(s.splits)
		}
	}
	return nil
}

const maxGold = 3 // answers of one request that become pairs

// pair is two texts that should be near to each other, as bags of stems.
type pair struct {
	from, to []table.Weighted
	tool     string // of which set, and which
	request  string // "" where the pair is no request's
}

// Material is what a table is made from, word vectors apart.
type Material struct {
	texts []string // whose words belong in the table
	pairs []pair
}

// Read reads the public sets and the taxonomy's texts of a folder, one set left out as a whole if it is named.
func Read(dir, leaveOut string) (*Material, error) {
	m := &Material{}
	known := leaveOut == ""
	for _, s := range sources {
		if s.name == leaveOut {
			known = true
			continue
		}
		set, err := toolset.Load(filepath.Join(dir, s.name))
		if err != nil {
			return nil, err
		}
		m.addSet(set, s.splits)
	}
	if !known {
		return nil, fmt.Errorf("there is no set %q to leave out", leaveOut)
	}
	for _, kind := range []string{"skills", "domains"} {
		if err := m.addClasses(filepath.Join(dir, "oasf", kind+".jsonl"), kind); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// addSet takes the texts of a set's tools and of its requests of some splits.
func (m *Material) addSet(s *toolset.Set, splits []string) {
	at := map[string]*directory.Capability{}
	for i := range s.Corpus {
		c := &s.Corpus[i]
		at[c.SkillID] = c
		m.texts = append(m.texts, c.Name, c.Description, c.Parameters)
		m.texts = append(m.texts, c.Tags...)
		m.add(pair{from: bag(c.Name), to: bag(c.Description), tool: s.Name + "/" + c.SkillID})
	}
	if len(splits) == 0 {
		return
	}
	for _, q := range s.Of(splits...) {
		m.texts = append(m.texts, q.Text)
		for _, gold := range q.Gold[:min(len(q.Gold), maxGold)] {
			m.add(pair{from: bag(q.Text), to: match.Bag(at[gold]), tool: s.Name + "/" + gold, request: s.Name + "/" + q.ID})
		}
	}
}

// class is one of the taxonomy's, with the text that the product does not ship.
type class struct {
	Name        string `json:"name"`
	Caption     string `json:"caption"`
	Description string `json:"description"`
}

func (m *Material) addClasses(file, kind string) error {
	return toolset.Lines(file, func(c *class) error {
		m.texts = append(m.texts, c.Name, c.Caption, c.Description)
		whole := directory.Capability{Name: c.Name, Description: c.Description}
		m.add(pair{from: bag(c.Caption), to: match.Bag(&whole), tool: kind + "/" + c.Name})
		return nil
	})
}

// add takes a pair whose texts both have terms.
func (m *Material) add(p pair) {
	if len(p.from) > 0 && len(p.to) > 0 {
		m.pairs = append(m.pairs, p)
	}
}

// bag is a text alone, as a request is embedded.
func bag(text string) []table.Weighted { return match.Bag(&directory.Capability{Description: text}) }
