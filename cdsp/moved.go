package cdsp

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"agentgw/cdsp/wire"
)

// moves are what another gateway of the own domain is still to be told of agents: of each the newest. They wait here and not in the queue of control
// frames, which is the machine's and must not be full.
type moves struct {
	mu      sync.Mutex // guards waiting
	waiting map[string]wire.Moved
	some    chan struct{} // holds a value when there may be some
}

func newMoves() moves { return moves{waiting: map[string]wire.Moved{}, some: make(chan struct{}, 1)} }

func (m *moves) add(list ...wire.Moved) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, is := range list {
		if was, ok := m.waiting[is.AIC]; !ok || was.Version <= is.Version {
			m.waiting[is.AIC] = is
		}
	}
	select {
	case m.some <- struct{}{}:
	default:
	}
}

func (m *moves) take() map[string]wire.Moved {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := m.waiting
	m.waiting = map[string]wire.Moved{}
	return out
}

const (
	movesRoom = maxControl / 4 // of the queue, which moves may fill
	movesRest = 5 * time.Millisecond
)

// sendMoves tells another gateway of the own domain, once it is connected, which agents have come here from others, and what changes.
func (s *Session) sendMoves(ctx context.Context, _ Stream) {
	cfg := &s.node.cfg
	if cfg.Moves == nil || s.domain != cfg.Domain {
		return
	}
	select {
	case <-s.up:
	case <-ctx.Done():
		return
	}
	s.moves.add(cfg.Moves()...)
	rest := time.NewTimer(0)
	defer rest.Stop()
	for {
		select {
		case <-s.moves.some:
		case <-ctx.Done():
			return
		}
		of := s.moves.take()
		for _, id := range slices.Sorted(maps.Keys(of)) {
			m := of[id]
			for len(s.control) >= movesRoom {
				rest.Reset(movesRest)
				select {
				case <-rest.C:
				case <-ctx.Done():
					return
				}
			}
			select {
			case s.control <- &m:
			case <-ctx.Done():
				return
			}
		}
	}
}

// TellMoved tells another gateway of the own domain, or with "" all that are connected, that an agent is at home here. Who is not connected hears
// it from Config.Moves.
func (n *Node) TellMoved(gateway string, m wire.Moved) {
	n.post(context.Background(), func() {
		for _, s := range n.sessions {
			if s.domain == n.cfg.Domain && (gateway == "" || s.link.RemoteGateway() == gateway) {
				s.moves.add(m)
			}
		}
	})
}
