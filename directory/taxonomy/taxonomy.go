// Package taxonomy is the classes that capabilities may be filed under: the skills and domains of the Open Agentic Schema Framework
// (OASF), a tree of at most three levels, embedded.
//
// A class is named by its path (`language_processing/language_generation/summarization`); ids are numbers of a path, and those of
// skills and of domains are separate, so a bare id is a skill's. Paths are compared in lower case. A path that this version does
// not know is a class too: another gateway's version may have it.
//
// The package is pure. Source: OASF 1.1.0 (data/NOTICE); MATCHING, section 2.
package taxonomy

import (
	_ "embed"
	"slices"
	"strconv"
	"strings"
)

// Version is recorded with every entry: the taxonomy grows.
const Version = "oasf/1.1.0"

// tag prefixes what an ACS files a skill under, among its tags; a bare tag that is the path of a class counts too.
const tagPrefix = "oasf:"

// MaxPath bounds the path of a class, in octets.
const MaxPath = 128

// MaxDepth bounds its levels; this version has three.
const MaxDepth = 8

//go:embed data/oasf.tsv
var file string

// Class is one class.
type Class struct {
	ID      int
	Path    string
	Caption string
	Domain  bool // else a skill
}

// classes are all, skills first, each in the order of paths.
var classes = func() []Class {
	var out []Class
	for line := range strings.Lines(file) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		id, err := strconv.Atoi(f[1])
		if err != nil || len(f) != 4 {
			panic("embedded taxonomy: " + line)
		}
		out = append(out, Class{ID: id, Path: f[2], Caption: f[3], Domain: f[0] == "domain"})
	}
	return out
}()

var byPath, bySkillID = func() (map[string]*Class, map[int]*Class) {
	paths, ids := map[string]*Class{}, map[int]*Class{}
	for i := range classes {
		c := &classes[i]
		paths[c.Path] = c
		if !c.Domain {
			ids[c.ID] = c
		}
	}
	return paths, ids
}()

// All are the classes of this version.
func All() []Class { return slices.Clone(classes) }

// Find is the class of an id or a path, with `oasf:` before it or without; false where this version has none.
func Find(idOrPath string) (Class, bool) {
	idOrPath = bare(idOrPath)
	if id, err := strconv.Atoi(idOrPath); err == nil {
		if c := bySkillID[id]; c != nil {
			return *c, true
		}
		return Class{}, false
	}
	if c := byPath[idOrPath]; c != nil {
		return *c, true
	}
	return Class{}, false
}

// bare is a class as it is compared; it may be written as the tag of a skill names it, `oasf:` before it.
func bare(idOrPath string) string {
	s := strings.ToLower(strings.TrimSpace(idOrPath))
	return strings.Trim(strings.TrimPrefix(s, tagPrefix), "/ ")
}

// Path is how a class that somebody names by id or path is compared.
func Path(idOrPath string) string {
	if c, ok := Find(idOrPath); ok {
		return c.Path
	}
	return bare(idOrPath)
}

// Ancestors are a path and those above it, itself first, at most [MaxDepth].
func Ancestors(path string) []string {
	out := []string{path}
	for len(out) < MaxDepth {
		i := strings.LastIndexByte(path, '/')
		if i <= 0 {
			break
		}
		path = path[:i]
		out = append(out, path)
	}
	return out
}

// OfTags are the classes among the tags of a skill, in order and without repeats: `oasf:` and an id or a path, or the path of a class
// of this version.
func OfTags(tags []string) []string {
	var out []string
	for _, t := range tags {
		t = strings.TrimSpace(t)
		if rest, ok := strings.CutPrefix(strings.ToLower(t), tagPrefix); ok {
			if p := Path(rest); p != "" && len(p) <= MaxPath && strings.Count(p, "/") < MaxDepth {
				out = append(out, p)
			}
		} else if c := byPath[strings.ToLower(t)]; c != nil {
			out = append(out, c.Path)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
