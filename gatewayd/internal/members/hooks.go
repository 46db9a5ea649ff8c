package members

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/memberlist"
	"golang.org/x/time/rate"

	"agentgw/internal/frame"
)

// meta is what the gossip carries of a gateway, as CBOR of at most 512 octets.
//
//	meta { 1 version 1, 2 [host:port…] ≤ 6 of the QUIC socket, ? 3 lame }
type meta struct {
	Version   uint     `cbor:"1,keyasint"`
	Addresses []string `cbor:"2,keyasint"`
	Lame      bool     `cbor:"3,keyasint,omitempty"`
}

const metaVersion = 1

func parseMeta(b []byte) (meta, error) {
	var m meta
	if err := frame.Unmarshal(b, &m); err != nil {
		return meta{}, err
	}
	if m.Version != metaVersion {
		return meta{}, frame.Errorf(frame.ReqInvalid, "gossip of version %d, this is %d", m.Version, metaVersion)
	}
	if len(m.Addresses) > maxAddresses {
		return meta{}, frame.Errorf(frame.ReqInvalid, "%d addresses, at most %d are", len(m.Addresses), maxAddresses)
	}
	for _, a := range m.Addresses {
		if _, _, err := hostPort(a); err != nil {
			return meta{}, frame.Errorf(frame.ReqInvalid, "address %q: %w", a, err)
		}
	}
	return m, nil
}

// hooks is a List as the library calls it, mostly under its own lock: nothing here may wait, or ask the library anything.
type hooks List

// NodeMeta implements memberlist.Delegate.
func (h *hooks) NodeMeta(limit int) []byte {
	b, err := frame.Marshal(meta{metaVersion, h.cfg.Addresses, h.lame.Load()})
	if err != nil || len(b) > limit { // six names of the longest kind: then the others know that it is here, and dial what is configured
		b, _ = frame.Marshal(meta{Version: metaVersion, Addresses: []string{}, Lame: h.lame.Load()})
	}
	return b
}

// NotifyMsg implements memberlist.Delegate; there are no messages but the gossip's own.
func (h *hooks) NotifyMsg([]byte) {}

// GetBroadcasts implements memberlist.Delegate.
func (h *hooks) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState implements memberlist.Delegate.
func (h *hooks) LocalState(bool) []byte { return nil }

// MergeRemoteState implements memberlist.Delegate.
func (h *hooks) MergeRemoteState([]byte, bool) {}

// NotifyAlive implements memberlist.AliveDelegate: it takes in only gateways that the domain's bundle names.
func (h *hooks) NotifyAlive(n *memberlist.Node) error {
	if _, err := parseMeta(n.Meta); err != nil {
		return err
	}
	if n.Name != h.cfg.Gateway && !h.cfg.Known(n.Name) {
		return frame.Errorf(frame.IdentityMismatch, "%s is no gateway of %s by the domain's bundle", n.Name, h.cfg.Domain)
	}
	return nil
}

// NotifyConflict implements memberlist.ConflictDelegate: two processes have one identity, a copied state folder most likely.
func (h *hooks) NotifyConflict(existing, other *memberlist.Node) {
	if n := h.Conflicts.Add(1); n&(n-1) == 0 { // it comes with every gossip; the log gets the 1st, 2nd, 4th …
		h.log.Warn("two gateways of one name: was a state folder copied?", "gateway", existing.Name, "at", existing.Address(), "and_at", other.Address(), "times", n)
	}
}

// NotifyJoin implements memberlist.EventDelegate.
func (h *hooks) NotifyJoin(n *memberlist.Node) { h.note(n) }

// NotifyLeave implements memberlist.EventDelegate.
func (h *hooks) NotifyLeave(n *memberlist.Node) {
	h.known.Lock()
	delete(h.nodes, n.Name)
	h.known.Unlock()
	h.news()
}

// NotifyUpdate implements memberlist.EventDelegate.
func (h *hooks) NotifyUpdate(n *memberlist.Node) { h.note(n) }

func (h *hooks) note(n *memberlist.Node) {
	h.known.Lock()
	h.nodes[n.Name] = *n
	h.known.Unlock()
	h.news()
}

// present are the nodes that the gossip holds to be alive.
func (l *List) present() []memberlist.Node {
	l.known.Lock()
	defer l.known.Unlock()
	return slices.Collect(maps.Values(l.nodes))
}

func (h *hooks) news() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// logWriter hands the library's lines on: what it calls an error is a warning to an operator, and its warnings come with every lost packet.
type logWriter struct {
	log  *slog.Logger
	pace *rate.Limiter // of what strangers can bring about with a packet
}

// Write implements io.Writer.
func (w logWriter) Write(b []byte) (int, error) {
	line := string(bytes.TrimSpace(b))
	level := slog.LevelDebug
	if strings.Contains(line, "[ERR]") && w.pace.Allow() {
		level = slog.LevelInfo
	}
	if i := strings.Index(line, "memberlist: "); i >= 0 {
		line = line[i+len("memberlist: "):]
	}
	w.log.Log(context.Background(), level, "gossip", "text", line)
	return len(b), nil
}
