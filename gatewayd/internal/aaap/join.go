package aaap

import (
	"context"
	"crypto"
	"errors"
	"time"

	"agentgw/directory/aic"
	"agentgw/directory/arp"
	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

// Join presents a gateway's token to the AMC that the token names, at the first address that answers. It says who answered there.
func Join(ctx context.Context, ep *endpoint.Endpoint, token arp.Token, key crypto.Signer, draft arp.GatewayDraft) (out *arp.Enrolled, address string, amc aic.AIC, err error) {
	if token.Expired(time.Now()) {
		return nil, "", "", frame.Errorf(frame.TokenExpired, "enrolment token expired at %s: ask the AMC's operator for a new one",
			time.Unix(int64(token.Exp), 0).UTC().Format(time.RFC3339))
	}
	self, err := identity.SelfSigned(key)
	if err != nil {
		return nil, "", "", err
	}
	csr, err := identity.NewCSR(key)
	if err != nil {
		return nil, "", "", err
	}
	raw, err := frame.Marshal(draft)
	if err != nil {
		return nil, "", "", err
	}
	cred := endpoint.Credentials{Certificate: self, Verify: identity.VerifyPinned([32]byte(token.GatewayPK), time.Now)}
	ctx, cancel := context.WithTimeout(ctx, 2*askTime)
	defer cancel()
	var errs []error
	for _, a := range token.Addresses {
		conn, err := ep.Dial(ctx, a.String(), frame.ALPNControl, "", cred)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out = new(arp.Enrolled)
		if amc, err = identity.AICOf(conn.PeerLeaf()); err == nil { // the token pins its key
			_, err = exchange(ctx, conn, &arp.Enrol{Secret: token.Secret, CSR: csr, Draft: raw, DraftKind: arp.DraftGateway}, frame.Enrolled, out)
		}
		conn.Close(frame.OK, "")
		return out, a.String(), amc, err
	}
	return nil, "", "", frame.Errorf(frame.UpstreamFailed, "no AMC of the token answers: %w", errors.Join(errs...))
}
