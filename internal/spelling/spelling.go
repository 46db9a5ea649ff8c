// Package spelling says how far a name is from one that was meant.
package spelling

// Distance is the Levenshtein distance of a and b in octets, or more than most where it is that.
func Distance(a, b string, most int) int {
	if d := len(a) - len(b); d > most || -d > most {
		return most + 1
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diag, least := row[0], i
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := diag
			if a[i-1] != b[j-1] {
				cost++
			}
			diag = row[j]
			row[j] = min(cost, row[j]+1, row[j-1]+1)
			least = min(least, row[j])
		}
		if least > most {
			return most + 1
		}
	}
	return row[len(b)]
}

// Nearest is the name nearest to s, of several the first; "" where none is within three changes or a third of its length, whichever is less.
func Nearest(s string, names []string) (best string) {
	least := 4
	for _, name := range names {
		if d := Distance(s, name, 3); name != "" && d < least && 3*d <= len(name) {
			best, least = name, d
		}
	}
	return best
}
