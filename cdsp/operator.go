package cdsp

import (
	"context"

	"agentgw/cdsp/replica"
)

// Names of the machine that operators' verbs need.
type (
	Known = replica.Known
	Ref   = replica.Ref
)

// SetLame says towards whom this gateway is a lame duck, see [replica.SetLame]. It waits for Run.
func (n *Node) SetLame(ctx context.Context, all bool, to []string) error {
	return n.ask(ctx, replica.SetLame{All: all, To: to})
}

// Refresh asks a neighbour for its whole table anew; the session goes on. An error (6A) says that there is none.
func (n *Node) Refresh(ctx context.Context, gateway string) error {
	return n.ask(ctx, replica.Refresh{Gateway: gateway})
}

// Reset ends the sessions with a gateway, with a GOODBYE that says why (≤ 64 octets), and says how many there were. What the gateway told
// stays, stale, for a restart.
func (n *Node) Reset(ctx context.Context, gateway, why string) (ended int, err error) {
	return ask(ctx, n, func() (ended int) {
		for _, s := range n.sessions {
			select {
			case <-s.up:
			default:
				continue
			}
			if s.link.RemoteGateway() == gateway {
				n.leave(s, why)
				ended++
			}
		}
		return ended
	})
}

// Routes lists keys with every route to them, see [replica.Replica.Routes]. want is called by Run's goroutine, and must be quick.
func (n *Node) Routes(ctx context.Context, want func(*Known) bool, after Ref, limit int) (list []Known, more bool, err error) {
	type page struct {
		list []Known
		more bool
	}
	p, err := ask(ctx, n, func() (p page) {
		p.list, p.more = n.machine.Routes(want, after, limit)
		return p
	})
	return p.list, p.more, err
}

// ask has the owner answer.
func ask[T any](ctx context.Context, n *Node, f func() T) (out T, err error) {
	answer := make(chan T, 1)
	if err := n.post(ctx, func() { answer <- f() }); err != nil {
		return out, err
	}
	select {
	case out = <-answer:
		return out, nil
	case <-n.done:
		return out, errStopped
	case <-ctx.Done():
		return out, ctx.Err()
	}
}

func (n *Node) observe(e replica.Effect) {
	if n.cfg.Observe == nil {
		return
	}
	switch e.(type) {
	case replica.Transition, replica.Alarm, replica.Noted:
		n.cfg.Observe(e)
	}
}

// left is why a session was left by its own side, before the gateway stops.
type left struct{ why string }

func (e left) Error() string { return e.why }

// Unwrap makes it an end like that of a stop: the GOODBYE is given time.
func (e left) Unwrap() error { return errStopped }

// parting is with what a session ends that said everything it had to say.
func (s *Session) parting() error {
	if why := s.farewell.Load(); why != nil {
		return left{*why}
	}
	return errStopped
}
