// Package aaap joins gateways to an Agent Management Center on another host: it is both ends of the protocol between them
// (ALPN dmsc-ctl/1): [Server] beside the AMC, [Client] at a gateway, where it is the gateway's amc.Center.
//
// The contract: a gateway counts because the bundle of the domain names it, and the AMC because it is the bundle's issuer; both
// by mutual TLS. A gateway attaches with one control stream, on which the AMC pushes status lists and bundles; each question is
// a stream of its own. Nothing is queued: while the AMC cannot be reached a question fails with 48 within its deadline, and
// the gateway serves the agents that it has.
//
// Safe for concurrent use. Source: seed 002, sections 4.2 and 5.1; cdsp/PROTOCOL.md, "Agent and gateway".
package aaap

import "time"

const (
	readTime    = 5 * time.Second
	writeTime   = 10 * time.Second
	askTime     = 10 * time.Second // for one question
	attachTime  = 5 * time.Second
	keepalive   = 10 * time.Second
	silence     = 30 * time.Second // without a frame, the other side counts as gone
	backoffMin  = 500 * time.Millisecond
	backoffMax  = 10 * time.Second
	steadyAfter = time.Minute
	outQueue    = 128 // frames waiting for one gateway; a gateway that lets more pile up is closed

	maxGateways  = 64
	maxKeys      = 16 // signing keys of one gateway, with those that are being replaced
	maxAddresses = 6
	maxKeyLife   = 370 * 24 * time.Hour
)
