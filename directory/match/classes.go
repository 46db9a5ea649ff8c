package match

import (
	"fmt"
	"strings"

	"agentgw/directory"
)

// askedClass is a class that a request asks for, and those above it.
type askedClass []string

// fit is how well a capability's classes fit one that is asked for: 1 for the class itself or one below it, half for each level that the
// capability's class is above it, 0 for one beside it.
func (asked askedClass) fit(classes []string) float64 {
	worth := 1.
	for up, class := range asked {
		for _, c := range classes {
			if c == class || up == 0 && len(c) > len(class) && c[len(class)] == '/' && strings.HasPrefix(c, class) {
				return worth
			}
		}
		worth /= 2
	}
	return 0
}

// fitOfClasses is the mean over the classes that a request asks for, 0 to 1.
func (p *Prepared) fitOfClasses(c *directory.Capability) float64 {
	if len(p.classes) == 0 || len(c.Classes) == 0 {
		return 0
	}
	sum := 0.
	for _, asked := range p.asked {
		sum += asked.fit(c.Classes)
	}
	return sum / float64(len(p.classes))
}

// findClasses finds the documents that fit the classes asked for, and how well.
func (r *ranking) findClasses() {
	if len(r.classes) == 0 {
		return
	}
	r.filed = map[int]float64{}
	for i, p := range r.parts {
		for _, asked := range r.asked {
			for _, class := range asked {
				for _, id := range p.under[class] {
					if at := r.first[i] + int(id); r.filed[at] == 0 && !p.isDead(id) {
						if fit := r.fitOfClasses(&p.docs[id].cap); fit > 0 {
							r.filed[at] = fit
							r.filedSpread.add(fit)
						}
					}
				}
			}
		}
	}
	r.filedSpread.n = int64(r.live) // the others are 0
}

// blendClasses adds how well the candidates fit to what their text scores: each as standard deviations from its mean.
func (r *ranking) blendClasses() {
	if len(r.classes) == 0 {
		return
	}
	mean, deviation := r.filedSpread.meanAndDeviation()
	for i := range r.list {
		d := &r.list[i]
		d.score -= mean / deviation
		if fit := r.filed[int(d.at)]; fit > 0 {
			d.score += fit / deviation
		}
	}
}

// evidenceOfClasses says which class of a capability fits which that was asked for.
func (p *Prepared) evidenceOfClasses(c *directory.Capability) (out []string) {
	for _, asked := range p.asked {
		if fit := asked.fit(c.Classes); fit > 0 {
			out = append(out, fmt.Sprintf("class %s (%.3g)", asked[0], fit))
		}
	}
	return out
}
