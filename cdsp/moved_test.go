package cdsp

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"agentgw/cdsp/wire"
)

// However many agents move, the session carries on, and each move is heard.
func TestManyAgentsMove(t *testing.T) {
	const connected, later = 5_000, 2_000
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var heard atomic.Int64
		one := w.node("ONE", func(c *Config) {
			c.Domain = "d.example"
			c.OnMoved = func(string, *wire.Moved) {
				heard.Add(1)
				time.Sleep(100 * time.Microsecond) // it reads the store
			}
		})
		two := w.node("TWO", func(c *Config) {
			c.Domain = "d.example"
			c.Moves = func() (list []wire.Moved) {
				for i := range connected {
					list = append(list, wire.Moved{AIC: fmt.Sprint("1.2.", i), Version: 2})
				}
				return list
			}
		})
		w.mu.Lock()
		w.names["ONE"], w.names["TWO"] = "d.example", "d.example"
		w.mu.Unlock()
		defer start(t, one)()
		defer start(t, two)()
		setup(t, one, wire.RoleInternal, "d.example", "x")
		setup(t, two, wire.RoleInternal, "d.example", "y")
		a, b := connectMem("ONE", "TWO")
		sa := one.Attach(t.Context(), a, "d.example", true)
		sb := two.Attach(t.Context(), b, "d.example", false)
		time.Sleep(10 * time.Second)
		for i := range later {
			two.TellMoved("", wire.Moved{AIC: fmt.Sprint("1.3.", i), Version: 2})
		}
		two.TellMoved("ELSEWHERE", wire.Moved{AIC: "1.4", Version: 2})
		time.Sleep(10 * time.Second)
		select {
		case <-sa.Done():
			t.Error("the session has ended:", sa.Err())
		case <-sb.Done():
			t.Error("the session has ended:", sb.Err())
		default:
		}
		if n := heard.Load(); n != connected+later {
			t.Errorf("%d moves heard of %d", n, connected+later)
		}
	})
}
