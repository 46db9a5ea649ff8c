package relay

import (
	"crypto/sha256"
	"encoding/hex"

	"agentgw/directory"
	"agentgw/directory/semreq"
)

// Kinds of the audit records.
const (
	kindForwarded = "request.forwarded" // of an own agent, to other domains
	kindAnswered  = "request.answered"  // of a neighbour
	kindSession   = "session.provisioned"
)

// record keeps that a request has crossed a border: ids and hashes, for its text is nobody's business later.
func (r *Relay) record(kind string, j *job, origin, from string, out *semreq.Response) {
	found := make([]string, 0, len(out.Results))
	for _, signed := range out.Results {
		if res, err := semreq.PeekResult(signed); err == nil {
			found = append(found, hashed(res.AIC))
		}
	}
	r.cfg.AuditSoon(kind, map[string]any{
		"req": hexOf(j.req.ReqID), "origin": clip(origin), "from": from, "qhash": hexOf(j.req.QHash),
		"code": out.Status.Hex(), "scope": j.scope, "results": found,
	})
}

// originOf is the domain that a forwarded request says it began in.
func originOf(req *semreq.Request) string {
	if len(req.HopVia) == 0 {
		return ""
	}
	return req.HopVia[0]
}

// recordSession keeps that a session token was given out.
func (r *Relay) recordSession(j *job, c directory.Candidate, cti [16]byte, scope []string) {
	r.cfg.AuditSoon(kindSession, map[string]any{
		"cti": hex.EncodeToString(cti[:]), "sub": clip(j.asker.AIC), "aud": c.AIC, "cap": hashed(c.CapID), "domain": clip(j.asker.Domain),
		"req": hexOf(j.req.ReqID), "scope": scope,
	})
}

func hashed(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// clip and hexOf bound what a refused request may put into a record.
func clip(s string) string { return s[:min(len(s), 256)] }

func hexOf(b []byte) string { return hex.EncodeToString(b[:min(len(b), 32)]) }
