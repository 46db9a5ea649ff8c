package main

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// disease is one row of data/diseases.json: its signs and how much each speaks for it.
type disease struct {
	Name  string         `json:"name"`
	Signs map[string]int `json:"signs"`
}

// Least fit of a diagnosis, and least distance to the next one, each 0 to 1.
const (
	leastFit  = .4
	leastLead = .1
)

// diagnose finds the signs that a complaint names or denies, and the disease that explains them best.
func diagnose(j *job) error {
	diseases, err := table[[]disease]("diseases")
	if err != nil {
		return err
	}
	phrases, err := table[map[string][]string]("signs")
	if err != nil {
		return err
	}
	complaint, err := j.text("complaint")
	if err != nil {
		return err
	}
	present, denied := signsIn(complaint, phrases)
	if len(present) == 0 {
		return fmt.Errorf("the complaint names no sign that this agent knows (it knows %s)",
			strings.Join(slices.Sorted(maps.Keys(phrases)), ", "))
	}
	j.found("symptoms", symptomText(present, denied))
	slices.SortStableFunc(diseases, func(a, b disease) int { return cmp.Compare(b.fit(present, denied), a.fit(present, denied)) })
	best, lead := diseases[0], diseases[0].fit(present, denied)-diseases[1].fit(present, denied)
	j.confidence = math.Round(100*best.fit(present, denied)) / 100
	if j.confidence < leastFit {
		return fmt.Errorf("no known disease explains %s: the best fit is %s with %.2f", strings.Join(present, ", "), best.Name, j.confidence)
	}
	j.judge("explains-symptoms", best.explains(present))
	j.judge("clear-lead", lead >= leastLead)
	j.found("diagnosis", fmt.Sprintf("%s (fit %.2f, next is %s with %.2f)",
		best.Name, j.confidence, diseases[1].Name, max(0, diseases[1].fit(present, denied))))
	return nil
}

func symptomText(present, denied []string) string {
	text := strings.Join(present, ", ")
	if len(denied) > 0 {
		text += "; not: " + strings.Join(denied, ", ")
	}
	return text
}

// fit is the share of a disease's signs, by weight, that are present, less those that are denied.
func (d disease) fit(present, denied []string) float64 {
	sum, whole := 0, 0
	for sign, weight := range d.Signs {
		whole += weight
		if slices.Contains(present, sign) {
			sum += weight
		} else if slices.Contains(denied, sign) {
			sum -= weight
		}
	}
	return float64(sum) / float64(whole)
}

func (d disease) explains(present []string) bool {
	return !slices.ContainsFunc(present, func(s string) bool { return d.Signs[s] == 0 })
}

// signsIn reads a complaint clause by clause: a sign in a clause with a negation is denied.
func signsIn(complaint string, phrases map[string][]string) (present, denied []string) {
	text := strings.NewReplacer(".", "|", ",", "|", ";", "|", " but ", "|", " and ", "|", "\n", " ").Replace(strings.ToLower(complaint))
	for clause := range strings.SplitSeq(text, "|") {
		clause = " " + strings.TrimSpace(clause) + " "
		negated := strings.Contains(clause, " no ") || strings.Contains(clause, " not ") || strings.Contains(clause, " without ")
		for _, sign := range slices.Sorted(maps.Keys(phrases)) {
			if !slices.ContainsFunc(phrases[sign], func(p string) bool { return strings.Contains(clause, p) }) {
				continue
			}
			if negated {
				denied = append(denied, sign)
			} else {
				present = append(present, sign)
			}
		}
	}
	slices.Sort(present)
	slices.Sort(denied)
	return slices.Compact(present), slices.Compact(denied)
}
