package main

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// climate is a city's averages by month, from January: data/climate.json. Temperatures are degrees Celsius.
type climate struct {
	High     [12]float64 `json:"high"`
	Low      [12]float64 `json:"low"`
	RainDays [12]float64 `json:"rain_days"`
}

// visit is the context item of that name.
type visit struct {
	City string `json:"city"`
	From string `json:"from"`
	To   string `json:"to"`
}

// outlook is what the averages say of some days.
type outlook struct {
	days      int
	high, low float64
	dry       float64 // probability that no day has rain
}

const maxVisit = 60 // days

// forecast says what weather to expect on the days of a visit, and what to pack. It stands on averages and says so.
func forecast(j *job) error {
	cities, err := table[map[string]climate]("climate")
	if err != nil {
		return err
	}
	var v visit
	if err := j.read("visit", &v); err != nil {
		return err
	}
	from, err := day("first day", v.From)
	if err != nil {
		return err
	}
	to, err := day("last day", v.To)
	if err != nil {
		return err
	}
	c, ok := cities[strings.ToLower(v.City)]
	days := int(to.Sub(from).Hours()/24) + 1
	switch {
	case !ok:
		return fmt.Errorf("no weather records of %q", v.City)
	case days < 1 || days > maxVisit:
		return fmt.Errorf("a visit of %d days is not 1 to %d", days, maxVisit)
	}
	o := c.outlook(from, days)
	j.found("forecast", fmt.Sprintf("%s, %s to %s: highs of %.0f, lows of %.0f degrees Celsius, rain on some day with %.0f %% (averages)",
		v.City, v.From, v.To, o.high, o.low, 100*(1-o.dry)))
	j.found("packing", o.packing())
	j.judge("all-days", o.days == days)
	j.confidence = .8 // averages are right four times of five
	return nil
}

// outlook averages the days of a visit, each between the middles of the two months around it.
func (c climate) outlook(from time.Time, days int) outlook {
	o := outlook{days: days, dry: 1}
	for n := range days {
		d := from.AddDate(0, 0, n)
		o.high += at(c.High, d) / float64(days)
		o.low += at(c.Low, d) / float64(days)
		o.dry *= 1 - at(c.RainDays, d)/30.4
	}
	return o
}

// at is a monthly figure on one day, in proportion to the distance from the middle of the months.
func at(months [12]float64, d time.Time) float64 {
	position := float64(d.Month()-1) + (float64(d.Day())-15.2)/30.4
	before := math.Floor(position)
	share := position - before
	i := (int(before) + 12) % 12
	return months[i]*(1-share) + months[(i+1)%12]*share
}

func (o outlook) packing() string {
	list := []string{}
	switch {
	case o.high >= 24:
		list = append(list, "light clothes", "sun screen")
	case o.high >= 15:
		list = append(list, "a light jacket")
	default:
		list = append(list, "a warm coat")
	}
	if o.low < 10 {
		list = append(list, "a pullover for the evenings")
	}
	if o.dry < .5 {
		list = append(list, "an umbrella")
	}
	return strings.Join(list, ", ")
}
