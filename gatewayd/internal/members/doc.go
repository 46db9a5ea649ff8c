// Package members finds out which gateways of the own domain are alive, by gossip (hashicorp/memberlist). What it says is a hint: it chooses
// whom to connect to, and grants nothing. Who a gateway is says its certificate when it is connected to; the gossip has one key for all and no
// identities.
//
// A gateway's name in the gossip is its AIC, and only gateways that the domain's bundle names are taken in. Two halves of a split domain go on
// each for itself; they find each other again by the addresses that are configured, discovered or remembered, which are tried every half minute
// for as long as they are not members.
package members
