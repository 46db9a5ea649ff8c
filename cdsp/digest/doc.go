// Package digest is what gateways tell each other of their capabilities: it makes digest items out of a directory's
// capabilities, and turns the items of others into a score for a request (cdsp/PROTOCOL.md, "Digest").
//
// A gateway says two things. A class item for each taxonomy class or tag that occurs, with a bucketed count and the media
// types; and one sketch, a Bloom filter of the terms of all its public capabilities, which tells an asker whether a gateway is worth
// asking. Neither names an agent, an endpoint or a text. Terms are hashed with a key: who holds the key and the text of a
// capability can still test whether it is there, so a sketch saves traffic and is no secret.
//
// The package is pure, and its values are not changed once made. Weights of terms are background idf, at least 0; scores
// order gateways for one request and mean nothing beside it. Source: MATCHING, section 3; seed 002, section 5.2.
package digest
