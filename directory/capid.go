package directory

import (
	"fmt"
	"strings"

	"agentgw/directory/acs"
	"agentgw/directory/aic"
)

// MaxCapID is the longest Capability Identifier, in octets (FORMATS, section 2).
const MaxCapID = 512

const capScheme = "acps://"

// CapID is the Capability Identifier of a skill: `acps://<AIC>/<percent-encoded skill id>`; the unreserved characters of
// RFC 3986 stay literal. It checks nothing: for a valid AIC and skill id the result is at most [MaxCapID] octets.
func CapID(aic, skillID string) string {
	const hex = "0123456789ABCDEF"
	b := make([]byte, 0, len(capScheme)+len(aic)+1+len(skillID))
	b = append(b, capScheme...)
	b = append(b, aic...)
	b = append(b, '/')
	for i := 0; i < len(skillID); i++ {
		if c := skillID[i]; unreserved(c) {
			b = append(b, c)
		} else {
			b = append(b, '%', hex[c>>4], hex[c&15])
		}
	}
	return string(b)
}

// ParseCapID splits a Capability Identifier into its canonical AIC and its skill id. Only the spelling of [CapID] is accepted,
// so that two identifiers are equal exactly if their text is; letters of the AIC may be of either case.
func ParseCapID(s string) (aicText, skillID string, err error) {
	if len(s) > MaxCapID {
		return "", "", fmt.Errorf("capability identifier of %d octets, the limit is %d", len(s), MaxCapID)
	}
	rest, ok := strings.CutPrefix(s, capScheme)
	name, encoded, slash := strings.Cut(rest, "/")
	if !ok || !slash {
		return "", "", fmt.Errorf("capability identifier %q is not acps://<AIC>/<skill id>", s)
	}
	a, err := aic.Parse(name)
	if err != nil {
		return "", "", fmt.Errorf("capability identifier %q: %w", s, err)
	}
	if skillID, err = unescape(encoded); err != nil {
		return "", "", fmt.Errorf("capability identifier %q: %w", s, err)
	}
	if !acs.ValidSkillID(skillID) {
		return "", "", fmt.Errorf("capability identifier %q: %q is no skill id", s, skillID)
	}
	if CapID(name, skillID) != s {
		return "", "", fmt.Errorf("capability identifier %q is not in its one spelling %q", s, CapID(a.String(), skillID))
	}
	return a.String(), skillID, nil
}

func alnum(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
}

func unreserved(c byte) bool { return alnum(c) || strings.IndexByte("-._~", c) >= 0 }

func unescape(s string) (string, error) {
	if strings.IndexByte(s, '%') < 0 {
		return s, nil
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b = append(b, s[i])
			continue
		}
		if i+2 >= len(s) {
			return "", fmt.Errorf("percent sign without two digits at %d", i)
		}
		hi, lo := strings.IndexByte("0123456789ABCDEF", s[i+1]), strings.IndexByte("0123456789ABCDEF", s[i+2])
		if hi < 0 || lo < 0 {
			return "", fmt.Errorf("percent sign without two upper-case digits at %d", i)
		}
		b = append(b, byte(hi<<4|lo))
		i += 2
	}
	return string(b), nil
}
