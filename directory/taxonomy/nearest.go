package taxonomy

import (
	"strconv"
	"strings"

	"agentgw/internal/spelling"
)

// Unknown says that a tag files its skill under a class that this version has not, and how the tag calls it.
func Unknown(tag string) (class string, unknown bool) {
	class, ok := strings.CutPrefix(strings.ToLower(strings.TrimSpace(tag)), tagPrefix)
	if !ok {
		return "", false
	}
	_, known := Find(class)
	return class, !known
}

// maxTypos is how far a misspelt class may be from the one that is meant; a third of its length if that is less.
const maxTypos = 3

// Nearest is the path of the class that somebody means who names one that this version has not: mistyped, or without the classes above it.
// Ids are not guessed. It costs the squares of the length of class times the number of classes, and less where class is long.
func Nearest(class string) (path string, ok bool) {
	s := bare(class)
	if _, err := strconv.Atoi(s); err == nil || s == "" || len(s) > MaxPath {
		return "", false
	}
	best := min(maxTypos, len(s)/3) + 1
	for i := range classes {
		if d := spelling.Distance(s, tail(classes[i].Path, strings.Count(s, "/")), best-1); d < best {
			path, best = classes[i].Path, d
		}
	}
	return path, path != ""
}

// tail is the end of a path that has so many slashes, or all of it.
func tail(path string, slashes int) string {
	for i := len(path) - 1; i >= 0; i-- {
		if path[i] == '/' {
			if slashes--; slashes < 0 {
				return path[i+1:]
			}
		}
	}
	return path
}
