package history_test

import (
	"context"
	"crypto"
	"crypto/tls"
	"time"

	"agentgw/directory/arp"
	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

const answerTime = 10 * time.Second

const acs = `{"protocolVersion":"02.02","name":"Corner pharmacy","description":"Sells medicine.","version":"1.0.0",
"provider":{"organization":"Pharmacy"},"securitySchemes":{"mtls":{"type":"mutualTLS"}},"endPoints":[],
"capabilities":{"streaming":false,"notification":false,"messageQueue":[]},"defaultInputModes":["application/json"],
"defaultOutputModes":["application/json"],"skills":[
{"id":"medicine.sell","name":"Sell medicine","description":"Throat lozenges.","version":"1.0.0","tags":["medicine"]}]}`

// sent is how far a request got.
type sent int

const (
	nothing  sent = iota // the gateway has not seen it
	lost                 // it may have seen it
	answered             // it has said yes or no
)

// enrol presents a token as agentd does. A refusal is an error with its code.
func (g *gateway) enrol(ep *endpoint.Endpoint, token arp.Token, key crypto.Signer, csr []byte) (*arp.Enrolled, sent, error) {
	cert, err := identity.SelfSigned(key)
	if err != nil {
		return nil, nothing, err
	}
	s, err := g.open(ep, cert, token, frame.StreamRegistration)
	if err != nil {
		return nil, nothing, err
	}
	defer s.Conn().Close(frame.OK, "")
	stop := context.AfterFunc(g.process(), func() { s.Conn().Close(frame.OK, "") })
	defer stop()
	if err := s.WriteMessage(answerTime, &arp.Enrol{CSR: csr, Draft: []byte(acs), Visibility: 2, Secret: token.Secret}); err != nil {
		return nil, lost, err
	}
	t, payload, err := s.ReadFrame(answerTime)
	if err != nil {
		return nil, lost, err
	}
	if t == frame.Answer {
		var a arp.Answer
		if err := frame.Unmarshal(payload, &a); err != nil {
			return nil, lost, err
		}
		return nil, answered, frame.Errorf(a.Code, "%s", a.Msg)
	}
	done := new(arp.Enrolled)
	return done, answered, frame.Unmarshal(payload, done)
}

func (g *gateway) open(ep *endpoint.Endpoint, cert tls.Certificate, token arp.Token, t frame.StreamType) (*endpoint.Stream, error) {
	ctx, cancel := context.WithTimeout(g.process(), answerTime)
	defer cancel()
	c, err := ep.Dial(ctx, g.listen, frame.ALPNControl, "", endpoint.Credentials{
		Certificate: cert, Verify: identity.VerifyPinned([32]byte(token.GatewayPK), time.Now),
	})
	if err != nil {
		return nil, err
	}
	s, err := c.Open(ctx, t)
	if err != nil {
		c.Close(frame.OK, "")
	}
	return s, err
}

// attach says whether the gateway takes an agent with its credential.
func (g *gateway) attach(ep *endpoint.Endpoint, a *client) error {
	cert, err := identity.TLSCertificate(a.done.Chain, a.key)
	if err != nil {
		return err
	}
	s, err := g.open(ep, cert, a.token, frame.StreamControl)
	if err != nil {
		return err
	}
	defer s.Conn().Close(frame.OK, "")
	if err := s.WriteMessage(answerTime, &arp.Attach{AIC: a.done.AIC, BootID: make([]byte, 16), Grant: a.done.Grant}); err != nil {
		return err
	}
	var out arp.Attached
	if err := s.ReadMessage(answerTime, &out); err != nil {
		return err
	}
	if out.Code != frame.OK {
		return frame.Errorf(out.Code, "not attached")
	}
	return nil
}
