package main

import (
	"fmt"
	"slices"
	"strings"
)

// treatment is one row of data/treatments.json; those of a condition stand in the order in which they are preferred.
type treatment struct {
	Condition  string   `json:"condition"`
	Medicine   string   `json:"medicine"`
	StrengthMG int      `json:"strength_mg"` // of one unit
	PerDay     int      `json:"per_day"`     // units
	Days       int      `json:"days"`
	LeastAge   int      `json:"least_age"` // years
	LeastKG    int      `json:"least_kg"`  // weight of the patient
	NotWith    []string `json:"not_with"`  // allergies that forbid it
	Certainty  float64  `json:"certainty"` // how well it works, 0 to 1
	Remark     string   `json:"remark"`    // for the patient
}

// patient is the context item of that name.
type patient struct {
	Age       int      `json:"age"`
	WeightKG  int      `json:"weight_kg"`
	Allergies []string `json:"allergies"`
}

// prescribe takes the diagnosis of an earlier subtask and finds the first treatment that this patient may have.
func prescribe(j *job) error {
	treatments, err := table[[]treatment]("treatments")
	if err != nil {
		return err
	}
	diagnosis, err := j.upstream("diagnosis")
	if err != nil {
		return err
	}
	var p patient
	if err := j.read("patient", &p); err != nil {
		return err
	}
	if p.Age <= 0 || p.WeightKG <= 0 {
		return fmt.Errorf("age %d and weight %d kg of the patient must both be above 0", p.Age, p.WeightKG)
	}
	options := forDiagnosis(treatments, diagnosis)
	if len(options) == 0 {
		return fmt.Errorf("no treatment is known for %q", diagnosis)
	}
	chosen, ruledOut := choose(options, p)
	if chosen == nil {
		return fmt.Errorf("this patient may have none of the treatments: %s", strings.Join(ruledOut, "; "))
	}
	if len(ruledOut) == 0 {
		ruledOut = []string{"nothing had to be ruled out"}
	}
	j.found("safety", strings.Join(ruledOut, "; "))
	j.found("prescription", fmt.Sprintf("%s %d mg, %d a day for %d days; %s",
		chosen.Medicine, chosen.StrengthMG, chosen.PerDay, chosen.Days, chosen.Remark))
	j.judge("no-allergy", chosen.forbidden(p) == "")
	j.judge("whole-course", chosen.PerDay > 0 && chosen.Days > 0)
	j.confidence = chosen.Certainty
	return nil
}

// forDiagnosis are the treatments of the condition that the text begins with.
func forDiagnosis(all []treatment, diagnosis string) (out []treatment) {
	for _, t := range all {
		if rest, ok := strings.CutPrefix(diagnosis, t.Condition); ok && (rest == "" || rest[0] == ' ') {
			out = append(out, t)
		}
	}
	return out
}

// choose is the first treatment that nothing forbids, and why those before it were ruled out.
func choose(options []treatment, p patient) (chosen *treatment, ruledOut []string) {
	for i := range options {
		why := options[i].forbidden(p)
		if why == "" {
			return &options[i], ruledOut
		}
		ruledOut = append(ruledOut, options[i].Medicine+" ruled out: "+why)
	}
	return nil, ruledOut
}

func (t *treatment) forbidden(p patient) string {
	for _, a := range p.Allergies {
		if slices.Contains(t.NotWith, strings.ToLower(a)) {
			return "allergy to " + a
		}
	}
	switch {
	case p.Age < t.LeastAge:
		return fmt.Sprintf("not below %d years", t.LeastAge)
	case p.WeightKG < t.LeastKG:
		return fmt.Sprintf("not below %d kg", t.LeastKG)
	}
	return ""
}
