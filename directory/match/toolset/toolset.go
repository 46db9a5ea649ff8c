// Package toolset reads public sets of tools with labelled requests, as the commands that measure and train the matcher use them: a
// folder with corpus.jsonl of {id, name, description, category, extra} and queries.jsonl of {id, text, gold, split}, one value a line.
//
// The contract: what [Load] returns is the caller's own. Lines are at most 4 MiB; an error names file and line. None of the sets are part of
// this project. Source: MATCHING, section 4.
package toolset

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"agentgw/directory"
)

// WhereFrom tells people who have no sets where to get them.
const WhereFrom = `the public sets are not part of this project: get MetaTool, Seal-Tools, StableToolBench and LiveMCPBench from their
authors (github.com/HowieHwong/MetaTool, github.com/fairyshine/Seal-Tools, github.com/THUNLP-MT/StableToolBench,
github.com/icip-cas/LiveMCPBench), bring each into the form that the documentation of directory/match/toolset gives, as folders metatool,
sealtools, stabletoolbench and livemcpbench of one folder, for training also the classes of github.com/agntcy/oasf as oasf/skills.jsonl and
oasf/domains.jsonl of {name, caption, description}, and name that folder: DATA=DIR`

// Names are the public sets'.
func Names() []string { return []string{"metatool", "sealtools", "stabletoolbench", "livemcpbench"} }

// Present says whether a folder has what training and measuring read, without reading it.
func Present(dir string) error {
	files := []string{"oasf/skills.jsonl", "oasf/domains.jsonl"}
	for _, name := range Names() {
		files = append(files, name+"/corpus.jsonl", name+"/queries.jsonl")
	}
	for _, f := range files {
		if _, err := os.Stat(filepath.Join(dir, f)); err != nil {
			return err
		}
	}
	return nil
}

// Set is one folder of capabilities with labelled requests.
type Set struct {
	Name    string // the folder's
	Corpus  []directory.Capability
	Queries []Query
}

// Query is a request with the capabilities that answer it, all alike.
type Query struct {
	ID    string   `json:"id"`
	Text  string   `json:"text"`
	Gold  []string `json:"gold"` // ids of the corpus
	Split string   `json:"split"`
}

// Tool is one line of a corpus.
type Tool struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Description string `json:"description"`
	Category    string `json:"category"`
	Extra       string `json:"extra"`
}

const maxLine = 4 << 20

// Load reads a folder. Every answer of its requests is in its corpus.
func Load(dir string) (*Set, error) {
	s := &Set{Name: filepath.Base(dir)}
	known := map[string]bool{}
	err := Lines(filepath.Join(dir, "corpus.jsonl"), func(t *Tool) error {
		if t.ID == "" || known[t.ID] {
			return fmt.Errorf("id %q is empty or comes twice", t.ID)
		}
		known[t.ID] = true
		s.Corpus = append(s.Corpus, t.capability(len(s.Corpus)))
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = Lines(filepath.Join(dir, "queries.jsonl"), func(q *Query) error {
		for _, g := range q.Gold {
			if !known[g] {
				return fmt.Errorf("query %s: its answer %q is not in the corpus", q.ID, g)
			}
		}
		if len(q.Gold) == 0 {
			return fmt.Errorf("query %s names no answer", q.ID)
		}
		s.Queries = append(s.Queries, *q)
		return nil
	})
	return s, err
}

// capability is a tool as the matcher takes it; ties go by the corpus's order.
func (t *Tool) capability(place int) directory.Capability {
	c := directory.Capability{
		AIC: t.ID, CapID: fmt.Sprintf("%08d", place), SkillID: t.ID,
		Name: t.Name, Description: t.Description, Parameters: t.Extra, Provider: t.ID,
	}
	if t.Category != "" {
		c.Tags = []string{t.Category}
	}
	return c
}

// Lines reads one JSON value a line. It hands each to a function, whose error ends it.
func Lines[T any](file string, each func(*T) error) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	in := bufio.NewScanner(f)
	in.Buffer(nil, maxLine)
	for n := 1; in.Scan(); n++ {
		if len(strings.TrimSpace(in.Text())) == 0 {
			continue
		}
		v := new(T)
		if err := json.Unmarshal(in.Bytes(), v); err != nil {
			return fmt.Errorf("%s:%d: %w", file, n, err)
		}
		if err := each(v); err != nil {
			return fmt.Errorf("%s:%d: %w", file, n, err)
		}
	}
	if err := in.Err(); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// Of is the requests of some splits; all, where none is named.
func (s *Set) Of(splits ...string) []Query {
	if len(splits) == 0 {
		return s.Queries
	}
	return slices.DeleteFunc(slices.Clone(s.Queries), func(q Query) bool { return !slices.Contains(splits, q.Split) })
}
