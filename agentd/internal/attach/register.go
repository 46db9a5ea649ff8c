package attach

import (
	"context"

	"agentgw/directory/arp"
	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
)

// Update replaces the agent's ACS; what the gateway does not allow is removed and listed. It needs an attached connection.
func (c *Client) Update(ctx context.Context, m *arp.ACSPut) (*arp.ACSState, error) {
	l, out := c.current(), new(arp.ACSState)
	err := c.verb(ctx, m, frame.ACSState, out)
	if err == nil && l != nil {
		c.keepHome(l, out.EntryVersion, out.Entry)
	}
	return out, err
}

// Deregister ends the agent's registration for good.
func (c *Client) Deregister(ctx context.Context, reason string) error {
	return c.verb(ctx, &arp.Deregister{AIC: c.cfg.AIC, Reason: reason}, frame.Answer, nil)
}

// EntryVersion is that of the agent's entry, as the gateway said last; false while the agent is not attached.
func (c *Client) EntryVersion() (uint64, bool) {
	l := c.current()
	if l == nil {
		return 0, false
	}
	return l.version.Load(), true
}

// verb sends one frame on a registration stream of the attached connection and reads its answer.
func (c *Client) verb(ctx context.Context, m frame.Message, want frame.Type, out frame.Message) error {
	l := c.current()
	if l == nil {
		_, err := c.Attached()
		return frame.Errorf(frame.UpstreamFailed, "not attached to the gateway %s: %w", c.cfg.Gateway, orUnknown(err))
	}
	ctx, cancel := context.WithTimeout(ctx, renewTime)
	defer cancel()
	return exchange(ctx, l.conn, m, want, out)
}

// exchange makes one exchange on a registration stream: an ANSWER with a code is the error that it stands for.
func exchange(ctx context.Context, conn *endpoint.Conn, m frame.Message, want frame.Type, out frame.Message) error {
	s, err := conn.Open(ctx, frame.StreamRegistration)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { s.Reset(frame.Cancelled) })
	defer stop()
	if err := s.WriteMessage(writeTime, m); err != nil {
		s.Reset(frame.Cancelled)
		return err
	}
	s.CloseWrite()
	t, payload, err := s.ReadFrame(renewTime)
	if err != nil {
		s.Reset(frame.Cancelled)
		return err
	}
	if t == frame.Answer {
		r := &Refused{}
		if err := frame.Unmarshal(payload, &r.Answer); err != nil {
			return err
		}
		if r.err = r.Err(); r.err != nil {
			return r
		}
		if want == frame.Answer {
			return nil
		}
	}
	if t != want {
		return frame.Errorf(frame.UnexpectedFrame, "the gateway answered %v with %v", m.FrameType(), t)
	}
	return frame.Unmarshal(payload, out)
}
