package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"unicode"
)

const (
	maxCorpusLine = 1 << 20 // bytes
	maxSkills     = 128     // of one agent, as an ACS allows
	maxDraft      = 60 << 10
	maxSkillID    = 120
	maxName       = 256 // characters
	maxTag        = 64  // characters
	maxProse      = 4 << 10
	maxQuery      = 1000 // bytes: requests have 1024 after normalisation
)

// publicSets is told to whoever has no such file.
const publicSets = `the demo ships no tool sets. Public ones are MetaTool, Seal-Tools, StableToolBench and LiveMCPBench: get one from its
authors' repository and write it as JSONL, one object a line:
  corpus:   {"id","name","description","category","server","server_description","extra"}   (only id and name or description are due)
  queries:  {"id","text","gold":[ids of the corpus]}`

// tool is one line of a corpus.
type tool struct {
	ID                string `json:"id"`
	Name              string `json:"name"`
	Description       string `json:"description"`
	Category          string `json:"category"`
	Server            string `json:"server"`
	ServerDescription string `json:"server_description"`
	Extra             string `json:"extra"` // parameters
}

// query is one line of a file of queries.
type query struct {
	ID   string   `json:"id"`
	Text string   `json:"text"`
	Gold []string `json:"gold"`
}

// input is the files that the command line named.
type input struct {
	corpus  []tool // nil: the tasks are shown
	queries []query
}

func readInput(o options) (*input, error) {
	in := &input{}
	if o.corpus == "" {
		return in, nil
	}
	var err error
	if in.corpus, err = readLines[tool](o.corpus); err != nil {
		return nil, err
	}
	if err := checkCorpus(o.corpus, in.corpus); err != nil {
		return nil, err
	}
	if o.queries != "" {
		in.queries, err = readLines[query](o.queries)
	}
	return in, err
}

// readLines reads a JSONL file; unknown members are allowed.
func readLines[T any](path string) ([]T, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%w; %s", err, publicSets)
	}
	defer f.Close()
	var out []T
	lines := bufio.NewScanner(f)
	lines.Buffer(make([]byte, 64<<10), maxCorpusLine)
	for n := 1; lines.Scan(); n++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var v T
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			return nil, fmt.Errorf("%s:%d: %w; %s", path, n, err, publicSets)
		}
		out = append(out, v)
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return nil, fmt.Errorf("%s: a line has more than %d bytes", path, maxCorpusLine)
	}
	if len(out) == 0 && lines.Err() == nil {
		return nil, fmt.Errorf("%s is empty; %s", path, publicSets)
	}
	return out, lines.Err()
}

func checkCorpus(path string, tools []tool) error {
	seen := map[string]bool{}
	for _, t := range tools {
		if t.ID == "" || t.Name+t.Description == "" {
			return fmt.Errorf("%s: a tool without id, or without name and description; %s", path, publicSets)
		}
		if seen[t.ID] {
			return fmt.Errorf("%s: tool %q is there twice", path, t.ID)
		}
		seen[t.ID] = true
	}
	return nil
}

// group is an agent made of tools; tools are the ids behind its skills.
type group struct {
	agent
	tools []string
}

// groups makes an agent of each server, or category where no server is named, and deals them over the domains in turn. One that
// is too large for an ACS becomes several.
func groups(tools []tool) ([]*group, error) {
	var order []string
	by := map[string][]tool{}
	for _, t := range tools {
		key := cleanLine(firstOf(t.Server, t.Category, "tools"), maxName)
		if by[key] == nil {
			order = append(order, key)
		}
		by[key] = append(by[key], t)
	}
	var out []*group
	for _, key := range order {
		parts, err := split(key, by[key])
		if err != nil {
			return nil, err
		}
		out = append(out, parts...)
	}
	for i, g := range out {
		g.name, g.domain, g.home, g.visibility = fmt.Sprintf("tools-%04d", i+1), i%len(domains), i%len(domains), "public"
	}
	return out, nil
}

func firstOf(list ...string) string {
	for _, s := range list {
		if strings.TrimSpace(s) != "" {
			return s
		}
	}
	return ""
}

// split makes agents of the tools of one server, each within the limits of an ACS.
func split(title string, tools []tool) (out []*group, err error) {
	var g *group
	size, used := 0, map[string]bool{}
	for _, t := range tools {
		s := t.skill(used)
		raw, err := json.Marshal(s)
		if err != nil {
			return nil, err
		}
		if g == nil || len(g.skills) == maxSkills || size+len(raw) > maxDraft-maxProse-1024 {
			g = &group{agent: agent{title: title, about: clip(clean(firstOf(t.ServerDescription, "Tools of "+title)), maxProse), provider: title}}
			out, size, used = append(out, g), 0, map[string]bool{}
			s = t.skill(used)
		}
		g.skills, g.tools, size = append(g.skills, s), append(g.tools, t.ID), size+len(raw)+1
	}
	return out, nil
}

// skill is a tool as an agent offers it; used are the ids that its agent has already.
func (t tool) skill(used map[string]bool) skill {
	s := skill{ID: skillID(t.ID, used), Name: cleanLine(firstOf(t.Name, t.ID), maxName), Tags: []string{}}
	s.Description = clean(firstOf(t.Description, t.Name))
	if extra := clean(t.Extra); extra != "" {
		s.Description += " Parameters: " + extra
	}
	s.Description = clip(s.Description, maxProse)
	if tag := cleanLine(t.Category, maxTag); tag != "" {
		s.Tags = append(s.Tags, tag)
	}
	return s
}

// skillID makes an id that an ACS takes (letters, digits and . _ : / -, beginning with a letter or digit) out of any text, one
// that is not in used, and adds it there.
func skillID(text string, used map[string]bool) string {
	base := strings.Map(func(r rune) rune {
		if r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("._:/-", r)) {
			return r
		}
		return '-'
	}, text)
	if base == "" || strings.ContainsRune("._:/-", rune(base[0])) {
		base = "t" + base
	}
	base = base[:min(len(base), maxSkillID)]
	id := base
	for n := 2; used[id]; n++ {
		id = fmt.Sprintf("%s-%d", base, n)
	}
	used[id] = true
	return id
}

// clean is a text without control characters other than line ends, and valid UTF-8.
func clean(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, " ")))
}

// cleanLine is one line of at most limit characters.
func cleanLine(s string, limit int) string {
	runes := []rune(strings.Join(strings.Fields(clean(s)), " "))
	return strings.TrimSpace(string(runes[:min(len(runes), limit)]))
}

// clip cuts s to at most n bytes, between characters.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "")
}
