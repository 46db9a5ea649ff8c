package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// pack is one row of data/stock.json.
type pack struct {
	Pharmacy   string `json:"pharmacy"`
	Medicine   string `json:"medicine"`
	StrengthMG int    `json:"strength_mg"`
	Units      int    `json:"units"` // in one pack
	Cents      int    `json:"cents"` // price of one pack
	Stock      int    `json:"stock"` // packs
}

// basket is packs of one pharmacy that together hold a course.
type basket struct {
	pharmacy string
	count    []int // of the pharmacy's packs, in their order
	packs    []pack
	units    int
	cents    int
}

var prescriptionText = regexp.MustCompile(`^([A-Za-z]+) (\d{1,5}) mg, (\d{1,2}) a day for (\d{1,3}) days`)

const maxUnits = 500 // of one course

// buyMedicine takes the prescription of an earlier subtask, or one that the patient brings, and finds the cheapest packs of one pharmacy that hold the course.
func buyMedicine(j *job) error {
	stock, err := table[[]pack]("stock")
	if err != nil {
		return err
	}
	text, err := j.upstream("prescription")
	if err != nil { // no subtask prescribed it: the patient may hold one already
		var missing error
		if text, missing = j.text("prescription"); missing != nil {
			return err
		}
	}
	var purse struct {
		MaxPrice float64 `json:"max_price"`
	}
	if err := j.read("purse", &purse); err != nil {
		return err
	}
	m := prescriptionText.FindStringSubmatch(text)
	if m == nil {
		return fmt.Errorf("the prescription %q does not say medicine, strength, units a day and days", text)
	}
	strength, perDay, days := number(m[2]), number(m[3]), number(m[4])
	need := perDay * days
	if need == 0 || need > maxUnits {
		return fmt.Errorf("a course of %d units is not 1 to %d", need, maxUnits)
	}
	offers := baskets(stock, m[1], strength, need)
	if len(offers) == 0 {
		return fmt.Errorf("no pharmacy has %d units of %s %d mg", need, m[1], strength)
	}
	best := slices.MinFunc(offers, func(a, b basket) int { return a.cents - b.cents })
	j.found("stock", fmt.Sprintf("%d units of %s %d mg are needed; %d pharmacies have them", need, m[1], strength, len(offers)))
	j.found("order", best.String())
	j.judge("whole-course", best.units >= need)
	j.judge("within-budget", float64(best.cents) <= 100*purse.MaxPrice)
	j.confidence = float64(need) / float64(best.units) // what is left over was bought in vain
	return nil
}

func number(s string) int {
	n, _ := strconv.Atoi(s) // digits only, by the pattern
	return n
}

// baskets is the cheapest one of each pharmacy that has enough.
func baskets(stock []pack, medicine string, strength, need int) []basket {
	by := map[string][]pack{}
	var names []string
	for _, p := range stock {
		if p.Medicine != medicine || p.StrengthMG != strength {
			continue
		}
		if by[p.Pharmacy] == nil {
			names = append(names, p.Pharmacy)
		}
		by[p.Pharmacy] = append(by[p.Pharmacy], p)
	}
	var out []basket
	for _, name := range names {
		if b, ok := cheapest(name, by[name], need); ok {
			out = append(out, b)
		}
	}
	return out
}

// cheapest tries every count of every pack: a pharmacy has few.
func cheapest(pharmacy string, packs []pack, need int) (best basket, ok bool) {
	count := make([]int, len(packs))
	var try func(i, units, cents int)
	try = func(i, units, cents int) {
		if ok && cents >= best.cents {
			return
		}
		if units >= need {
			best, ok = basket{pharmacy, slices.Clone(count), packs, units, cents}, true
			return
		}
		if i == len(packs) {
			return
		}
		for n := range min(packs[i].Stock, (need-units+packs[i].Units-1)/packs[i].Units) + 1 {
			count[i] = n
			try(i+1, units+n*packs[i].Units, cents+n*packs[i].Cents)
		}
		count[i] = 0
	}
	try(0, 0, 0)
	return best, ok
}

func (b basket) String() string {
	var lines []string
	for i, n := range b.count {
		if n > 0 {
			lines = append(lines, fmt.Sprintf("%d x %s %d mg, pack of %d", n, b.packs[i].Medicine, b.packs[i].StrengthMG, b.packs[i].Units))
		}
	}
	return fmt.Sprintf("%s: %s, together %.2f", b.pharmacy, strings.Join(lines, " and "), float64(b.cents)/100)
}
