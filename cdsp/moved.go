package cdsp

import (
	"context"

	"agentgw/cdsp/wire"
)

// sendMoves tells another gateway of the own domain, once it is connected, which agents have come here from others.
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
	for _, m := range cfg.Moves() {
		select {
		case s.control <- &m:
		case <-ctx.Done():
			return
		}
	}
}

// TellMoved tells another gateway of the own domain, or with "" all that are connected, that an agent is at home here. Who is not connected hears
// it from Config.Moves.
func (n *Node) TellMoved(gateway string, m wire.Moved) {
	n.post(context.Background(), func() {
		for _, s := range n.sessions {
			select {
			case <-s.up:
			default:
				continue
			}
			if s.domain == n.cfg.Domain && (gateway == "" || s.link.RemoteGateway() == gateway) {
				s.queue(&m)
			}
		}
	})
}
