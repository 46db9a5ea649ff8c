package config

import "net/netip"

// Cluster is how the gateways of one domain find each other: by gossip, and by what seeds say. It is off without a listen address.
type Cluster struct {
	Listen    string   `yaml:"listen"`    // host:port of the gossip, UDP and TCP; [::]:7946 as a rule
	Advertise string   `yaml:"advertise"` // host:port at which the others reach it; default: a private address of this host
	Keys      string   `yaml:"keys"`      // file of AES keys as hexadecimal digits, one a line: the first encrypts, each decrypts. A systemd credential of its base name comes first
	Seeds     []string `yaml:"seeds"`     // host:port of other gateways' gossip; one that is up is enough
	Networks  []string `yaml:"networks"`  // that members may be in, such as 10.0.0.0/8; default: any
}

// On says whether this gateway gossips.
func (c Cluster) On() bool { return c.Listen != "" }

func (c *Cluster) defaults(file string) { c.Keys = under(file, c.Keys) }

func (c *Cluster) validate(p *problems) {
	if !c.On() {
		if c.Advertise != "" || c.Keys != "" || len(c.Seeds) > 0 || len(c.Networks) > 0 {
			p.add("cluster.listen", "it is due where the other lines of cluster are there; host:port, [::]:7946 as a rule")
		}
		return
	}
	p.hostPort("cluster.listen", c.Listen)
	if c.Advertise != "" {
		p.hostPort("cluster.advertise", c.Advertise)
	}
	for _, s := range c.Seeds {
		p.hostPort("cluster.seeds", s)
	}
	if c.Keys == "" {
		p.add("cluster.keys", "a file of keys is due, the same at every gateway of the domain: `gatewayd cluster key --out FILE` makes one")
	}
	for _, n := range c.Networks {
		if _, err := netip.ParsePrefix(n); err != nil {
			p.add("cluster.networks", "%q is no network such as 10.0.0.0/8", n)
		}
	}
}
