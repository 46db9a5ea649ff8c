package members

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
)

// Holders is how many gateways of a domain are connected to one and the same other domain.
const Holders = 2

// Holds says whether a gateway is among those that are connected to a peer domain, of all that are alive: each works the same out for itself
// (rendezvous hashing), and one that comes or goes moves no more than its own share. Where members do not see each other too many hold a peer,
// which does no harm. A gateway that is about to stop holds none while others can.
func Holds(gateway, domain string, alive []Member) bool {
	type place struct {
		weight  uint64
		gateway string
	}
	var places []place
	for _, lame := range []bool{false, true} {
		if len(places) > 0 {
			break
		}
		for _, m := range alive {
			if m.Lame == lame {
				sum := sha256.Sum256([]byte(m.Gateway + "\x00" + domain))
				places = append(places, place{binary.BigEndian.Uint64(sum[:8]), m.Gateway})
			}
		}
	}
	slices.SortFunc(places, func(a, b place) int {
		if a.weight != b.weight {
			if a.weight > b.weight {
				return -1
			}
			return 1
		}
		return 0
	})
	for _, p := range places[:min(len(places), Holders)] {
		if p.gateway == gateway {
			return true
		}
	}
	return false
}
