package admin

import "time"

// DNSRequest asks what DNS says of a domain.
type DNSRequest struct {
	Domain string `json:"domain,omitempty"` // default: the own one
	Fresh  bool   `json:"fresh,omitempty"`  // ask now, whatever is remembered
}

// DNSReport is `gatewayd dns`: what is found for a domain, and what the own name server serves.
type DNSReport struct {
	Domain   string       `json:"domain"`
	Source   string       `json:"source,omitempty"` // SVCB or SRV; absent where nothing was found
	Gateways []DNSGateway `json:"gateways"`         // in the order to dial
	TTLS     int64        `json:"ttl_s,omitempty"`  // as it counts here, 30 to 3600
	DNSSEC   string       `json:"dnssec"`           // yes, no, or unknown: no resolver on this machine was asked for it
	At       *time.Time   `json:"at,omitempty"`     // of the answer
	Stale    bool         `json:"stale,omitempty"`  // it is the last good one, and its time is over
	Error    string       `json:"error,omitempty"`  // of the last look-up
	Serves   *DNSServed   `json:"serves,omitempty"` // absent where no name server runs here
}

// DNSGateway is one gateway that the records name.
type DNSGateway struct {
	Host      string   `json:"host"`
	Port      uint16   `json:"port"`
	Priority  uint16   `json:"priority"`
	Weight    uint16   `json:"weight,omitempty"`
	Addresses []string `json:"addresses"`
	Hints     bool     `json:"hints,omitempty"` // the addresses are the record's own hints
}

// DNSServed is the own name server.
type DNSServed struct {
	Zone     string   `json:"zone"`
	Listen   []string `json:"listen"`
	Records  []string `json:"records"` // in the form of zone files
	Answered uint64   `json:"answered"`
	Cut      uint64   `json:"cut"`     // told to come back over TCP, since their network asks too often
	Dropped  uint64   `json:"dropped"` // not answered for the same reason
}
