package members

import (
	"context"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	rejoinEvery = 30 * time.Second // more or less a fifth
	maxKept     = 64               // addresses that are remembered
	maxTried    = 8                // addresses that are tried at a time, half of them remembered ones: a member knows all others
	resolveTime = 3 * time.Second
)

// rejoin tries addresses that are configured, discovered or remembered and not a member's now. The library forgets who was away for longer
// than half a minute: without this two halves would stay apart for good.
func (l *List) rejoin(ctx context.Context) {
	kept := l.cfg.Kept
	for {
		l.join(l.away(ctx, kept))
		wait := rejoinEvery*4/5 + rand.N(rejoinEvery*2/5)
		if len(l.Alive()) < 2 { // alone: at a start the others may come up a moment later
			wait /= 6
		}
		for again := time.After(wait); again != nil; {
			changed := l.Changed()
			if now := l.remember(kept); !slices.Equal(now, kept) { // at once: a gateway that is stopped soon has to find the others again
				if kept = now; l.cfg.Keep != nil {
					l.cfg.Keep(kept)
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-changed:
			case <-again:
				again = nil
			}
		}
	}
}

func (l *List) join(addresses []string) {
	var trying sync.WaitGroup
	for _, a := range addresses {
		trying.Go(func() {
			if _, err := l.ml.Join([]string{a}); err != nil {
				l.log.Debug("no gateway of the domain answers the gossip", "address", a, "err", err)
			}
		})
	}
	trying.Wait()
}

// away is where somebody might be who is no member.
func (l *List) away(ctx context.Context, kept []string) (out []string) {
	seen := map[string]bool{}
	for _, n := range l.present() {
		seen[n.Address()] = true
	}
	var seeds []string
	if l.cfg.Seeds != nil {
		seeds = resolve(ctx, l.cfg.Seeds(ctx))
	}
	for _, list := range [][]string{seeds, kept} {
		list = slices.Clone(list)
		rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		tried := 0
		for _, a := range list {
			if !seen[a] && tried < maxTried/2 {
				seen[a] = true
				tried++
				out = append(out, a)
			}
		}
	}
	return out
}

// resolve replaces names by their addresses. The library would do it too, and ask name servers in ways that few answer.
func resolve(ctx context.Context, seeds []string) (out []string) {
	ctx, cancel := context.WithTimeout(ctx, resolveTime)
	defer cancel()
	for _, s := range seeds {
		host, port, err := net.SplitHostPort(s)
		if err != nil {
			continue // the configuration was checked
		}
		if _, err := netip.ParseAddr(host); err == nil {
			out = append(out, s)
			continue
		}
		ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		if err != nil {
			continue
		}
		for _, ip := range ips {
			out = append(out, net.JoinHostPort(ip.Unmap().String(), port))
		}
	}
	return out
}

// remember is where members are now, and before them where they were.
func (l *List) remember(kept []string) []string {
	var now []string
	for _, n := range l.present() {
		if n.Name != l.cfg.Gateway {
			now = append(now, n.Address())
		}
	}
	slices.Sort(now)
	for _, a := range kept {
		if len(now) < maxKept && !slices.Contains(now, a) {
			now = append(now, a)
		}
	}
	return now[:min(len(now), maxKept)]
}
