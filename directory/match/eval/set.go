package main

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

// set is one folder of capabilities with labelled queries.
type set struct {
	name    string
	corpus  []directory.Capability
	queries []query
}

// query is a request with the capabilities that answer it, all alike.
type query struct {
	ID    string   `json:"id"`
	Text  string   `json:"text"`
	Gold  []string `json:"gold"` // ids of the corpus
	Split string   `json:"split"`
}

// tool is one line of a corpus.
type tool struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Description string `json:"description"`
	Category    string `json:"category"`
	Extra       string `json:"extra"`
}

const maxLine = 4 << 20

func load(dir string) (*set, error) {
	s := &set{name: filepath.Base(dir)}
	known := map[string]bool{}
	err := lines(filepath.Join(dir, "corpus.jsonl"), func(t *tool) error {
		if t.ID == "" || known[t.ID] {
			return fmt.Errorf("id %q is empty or comes twice", t.ID)
		}
		known[t.ID] = true
		c := directory.Capability{
			AIC: t.ID, CapID: fmt.Sprintf("%08d", len(s.corpus)), SkillID: t.ID, // ties go by the corpus's order
			Name: t.Name, Description: t.Description, Parameters: t.Extra, Provider: t.ID,
		}
		if t.Category != "" {
			c.Tags = []string{t.Category}
		}
		s.corpus = append(s.corpus, c)
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = lines(filepath.Join(dir, "queries.jsonl"), func(q *query) error {
		for _, g := range q.Gold {
			if !known[g] {
				return fmt.Errorf("query %s: its answer %q is not in the corpus", q.ID, g)
			}
		}
		if len(q.Gold) == 0 {
			return fmt.Errorf("query %s names no answer", q.ID)
		}
		s.queries = append(s.queries, *q)
		return nil
	})
	return s, err
}

// lines reads one JSON value a line.
func lines[T any](file string, each func(*T) error) error {
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

// of is the queries of some splits; all, where none is named.
func (s *set) of(splits ...string) []query {
	if len(splits) == 0 {
		return s.queries
	}
	return slices.DeleteFunc(slices.Clone(s.queries), func(q query) bool { return !slices.Contains(splits, q.Split) })
}
