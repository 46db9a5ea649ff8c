package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// hotel is one row of data/hotels.json; prices are whole currency units for a room and night.
type hotel struct {
	City    string  `json:"city"`
	Name    string  `json:"name"`
	Rating  float64 `json:"rating"` // 0 to 10
	Sleeps  int     `json:"sleeps"`
	Night   int     `json:"night"`
	Weekend int     `json:"weekend"` // added for the nights from Friday and Saturday
	Closed  []int   `json:"closed"`  // months
}

// stay is the context item of that name.
type stay struct {
	City     string `json:"city"`
	Arrive   string `json:"arrive"`
	Nights   int    `json:"nights"`
	Guests   int    `json:"guests"`
	MaxPrice int    `json:"max_price"` // for the whole stay
}

const maxNights = 60

// bookHotel finds the best rated room of a city that is open, large enough and within the budget.
func bookHotel(j *job) error {
	hotels, err := table[[]hotel]("hotels")
	if err != nil {
		return err
	}
	var s stay
	if err := j.read("stay", &s); err != nil {
		return err
	}
	arrive, err := day("arrival", s.Arrive)
	if err != nil {
		return err
	}
	if s.Nights < 1 || s.Nights > maxNights || s.Guests < 1 {
		return fmt.Errorf("%d nights for %d guests: 1 to %d nights and at least one guest are due", s.Nights, s.Guests, maxNights)
	}
	fits := slices.DeleteFunc(slices.Clone(hotels), func(h hotel) bool {
		return !strings.EqualFold(h.City, s.City) || h.Sleeps < s.Guests || h.price(arrive, s.Nights) > s.MaxPrice || h.closed(arrive, s.Nights)
	})
	if len(fits) == 0 {
		return fmt.Errorf("%w: no hotel in %q has a room for %d guests within %d for %d nights",
			errNothing, s.City, s.Guests, s.MaxPrice, s.Nights)
	}
	best := slices.MinFunc(fits, func(a, b hotel) int {
		return cmp.Or(cmp.Compare(b.Rating, a.Rating), cmp.Compare(a.price(arrive, s.Nights), b.price(arrive, s.Nights)), strings.Compare(a.Name, b.Name))
	})
	price := best.price(arrive, s.Nights)
	j.found("room", fmt.Sprintf("%s in %s, rated %.1f, %d nights from %s (best of %d that fit)",
		best.Name, best.City, best.Rating, s.Nights, s.Arrive, len(fits)))
	j.found("room-price", fmt.Sprintf("%d for the stay", price))
	j.judge("within-budget", price <= s.MaxPrice)
	j.judge("enough-beds", best.Sleeps >= s.Guests)
	j.confidence = best.Rating / 10
	return nil
}

func (h hotel) price(arrive time.Time, nights int) int {
	sum := 0
	for n := range nights {
		sum += h.Night
		if d := arrive.AddDate(0, 0, n).Weekday(); d == time.Friday || d == time.Saturday {
			sum += h.Weekend
		}
	}
	return sum
}

func (h hotel) closed(arrive time.Time, nights int) bool {
	for n := range nights {
		if slices.Contains(h.Closed, int(arrive.AddDate(0, 0, n).Month())) {
			return true
		}
	}
	return false
}
