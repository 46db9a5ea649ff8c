package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// flight is one row of data/flights.json; times are UTC, the price is for one passenger.
type flight struct {
	No     string `json:"no"`
	From   string `json:"from"`
	To     string `json:"to"`
	Depart string `json:"depart"`
	Arrive string `json:"arrive"` // of the same day
	Days   string `json:"days"`   // 1 is Monday
	Price  int    `json:"price"`
}

// trip is the context item of that name.
type trip struct {
	From       string `json:"from"`
	To         string `json:"to"`
	Depart     string `json:"depart"`
	Return     string `json:"return"`
	Passengers int    `json:"passengers"`
	MaxPrice   int    `json:"max_price"` // for everyone, there and back
}

// connection is one flight or two, one after the other.
type connection []flight

const changeMinutes = 45 // least time between two flights

// bookFlight finds the cheapest connections there and back, direct or with one change.
func bookFlight(j *job) error {
	flights, err := table[[]flight]("flights")
	if err != nil {
		return err
	}
	var t trip
	if err := j.read("trip", &t); err != nil {
		return err
	}
	out, err := day("departure", t.Depart)
	if err != nil {
		return err
	}
	back, err := day("return", t.Return)
	if err != nil {
		return err
	}
	if back.Before(out) || t.Passengers < 1 {
		return fmt.Errorf("the return %s is before the departure %s, or nobody flies (%d)", t.Return, t.Depart, t.Passengers)
	}
	there, err := cheapestFlight(flights, t.From, t.To, out)
	if err != nil {
		return err
	}
	j.found("outbound", there.String()+" on "+t.Depart)
	home, err := cheapestFlight(flights, t.To, t.From, back)
	if err != nil {
		return err
	}
	j.found("return", home.String()+" on "+t.Return)
	price := t.Passengers * (there.price() + home.price())
	j.found("fare", fmt.Sprintf("%d for %d passengers", price, t.Passengers))
	j.judge("within-budget", price <= t.MaxPrice)
	j.judge("dates-kept", there.on(out) && home.on(back))
	j.confidence = 1 - .1*float64(len(there)+len(home)-2) // each change is a risk
	return nil
}

func cheapestFlight(all []flight, from, to string, on time.Time) (connection, error) {
	var found []connection
	for _, a := range all {
		if !strings.EqualFold(a.From, from) || !a.on(on) {
			continue
		}
		if strings.EqualFold(a.To, to) {
			found = append(found, connection{a})
			continue
		}
		for _, b := range all {
			if b.From == a.To && strings.EqualFold(b.To, to) && b.on(on) && minutes(b.Depart)-minutes(a.Arrive) >= changeMinutes {
				found = append(found, connection{a, b})
			}
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%w: no flight from %q to %q on %s", errNothing, from, to, on.Format(time.DateOnly))
	}
	return slices.MinFunc(found, func(a, b connection) int {
		return cmp.Or(cmp.Compare(a.price(), b.price()), cmp.Compare(len(a), len(b)), strings.Compare(a.String(), b.String()))
	}), nil
}

// minutes of a clock time since midnight.
func minutes(clock string) int {
	h, m, _ := strings.Cut(clock, ":")
	hours, _ := strconv.Atoi(h)
	mins, _ := strconv.Atoi(m)
	return 60*hours + mins
}

func (f flight) on(d time.Time) bool {
	return strings.Contains(f.Days, strconv.Itoa((int(d.Weekday())+6)%7+1))
}

func (c connection) on(d time.Time) bool {
	return !slices.ContainsFunc(c, func(f flight) bool { return !f.on(d) })
}

func (c connection) price() (sum int) {
	for _, f := range c {
		sum += f.Price
	}
	return sum
}

func (c connection) String() string {
	var legs []string
	for _, f := range c {
		legs = append(legs, fmt.Sprintf("%s %s %s to %s %s", f.No, f.From, f.Depart, f.To, f.Arrive))
	}
	return strings.Join(legs, ", then ")
}
