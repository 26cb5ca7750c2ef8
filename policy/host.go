package policy

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Host is a pattern over DNS names: a name; *. and a name, for the names one label
// below it; **. and a name, for all names below it; or * alone, for every name. No
// pattern stands for the name after its dot: "*.example.com" is not "example.com".
//
// Names are strict: letters, digits and hyphens, compared in lower case without the final dot. An
// address is no name, so no pattern stands for one. The zero Host stands for nothing.
type Host struct {
	depth hostDepth
	name  string
}

type hostDepth uint8

const (
	hostNone  hostDepth = iota
	hostExact           // the name itself
	hostChild           // one label below it
	// any number of labels below it
	hostBelow
	hostAny // every name
)

// AnyHost stands for every name.
var AnyHost = Host{depth: hostAny}

// metadataHosts name cloud metadata services. Their addresses are refused when they are
// dialled; a policy that names one is refused earlier, since it can only be a mistake.
var metadataHosts = []string{"metadata.google.internal", "metadata.goog",
	"instance-data.ec2.internal"}

func metadataHost(name string) bool {
	clean, err := ParseHostName(name)
	return err == nil && slices.Contains(metadataHosts, clean)
}

// ParseHost reads a pattern. The error says what is wrong with it in a sentence.
func ParseHost(text string) (Host, error) {
	depth, rest := hostExact, text
	switch {
	case text == "*":
		return AnyHost, nil
	case strings.HasPrefix(text, "**."):
		depth, rest = hostBelow, text[3:]
	case strings.HasPrefix(text, "*."):
		depth, rest = hostChild, text[2:]
	case strings.Contains(text, "*"):
		return Host{}, fmt.Errorf("host %q: a * stands only at the start, as in *.example.com",
			text)
	}
	name, err := ParseHostName(rest)
	if err != nil {
		return Host{}, err
	}
	if depth != hostExact && !strings.Contains(name, ".") {
		return Host{},
			fmt.Errorf("host %q stands for a whole top-level domain: name the domain, as in "+
				"*.example.%s", text, name)
	}
	h := Host{depth: depth, name: name}
	for _, m := range metadataHosts {
		if (Host{depth: hostExact, name: m}).LessEq(h) {
			return Host{}, fmt.Errorf(
				"host %q stands for a cloud metadata service, which no policy may grant", text)
		}
	}
	return h, nil
}

// ParseHostName returns name in lower case without its final dot, if it is a strict DNS
// name: at most 253 bytes, labels of 1 to 63 letters, digits and inner hyphens, the last
// label no number (such a name would be read as an address by some resolvers).
func ParseHostName(name string) (string, error) {
	bad := func(why string) (string, error) { return "", fmt.Errorf("host %q %s", name, why) }
	switch {
	case name == "":
		return "", fmt.Errorf("host is empty")
	case strings.Contains(name, "://"):
		return bad("has a scheme: give the name alone")
	case strings.Contains(name, "/"):
		return bad("has a slash: give a name; paths have a key of their own, and address ranges " +
			"cannot be granted")
	case strings.Contains(name, "@"):
		return bad("has a user part: give the name alone")
	case strings.Contains(name, ":"):
		return bad("has a colon: ports have a key of their own, and addresses cannot be granted")
	case strings.ContainsFunc(name, func(r rune) bool { return r > unicode.MaxASCII }):
		// Before it is lowered: of two letters of other scripts, the small ones are ASCII.
		return bad("is not ASCII: write it in its xn-- form")
	}
	clean := strings.ToLower(strings.TrimSuffix(name, "."))
	if len(clean) > 253 {
		return bad("is longer than 253 bytes")
	}
	labels := strings.Split(clean, ".")
	for _, l := range labels {
		if why := badLabel(l); why != "" {
			return bad(why)
		}
	}
	if last := labels[len(labels)-1]; last[0] >= '0' && last[0] <= '9' {
		return bad("is an address, not a name: addresses cannot be granted")
	}
	return clean, nil
}

func badLabel(label string) string {
	switch {
	case label == "":
		return "has an empty label"
	case len(label) > 63:
		return "has a label longer than 63 bytes"
	case label[0] == '-' || label[len(label)-1] == '-':
		return "has a label that starts or ends with a hyphen"
	}
	for i := range len(label) {
		c := label[i]
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-':
		default:
			return fmt.Sprintf("has %q, which no host name has", string(c))
		}
	}
	return ""
}

// String returns the pattern as it would be written.
func (h Host) String() string {
	switch h.depth {
	case hostExact:
		return h.name
	case hostChild:
		return "*." + h.name
	case hostBelow:
		return "**." + h.name
	case hostAny:
		return "*"
	}
	return "∅"
}

// Match reports whether h stands for name. A name that is not strict matches nothing.
func (h Host) Match(name string) bool {
	clean, err := ParseHostName(name)
	return err == nil && Host{depth: hostExact, name: clean}.LessEq(h)
}

// LessEq reports whether g stands for every name that h stands for.
func (h Host) LessEq(g Host) bool {
	switch {
	case h.depth == hostNone || g.depth == hostAny:
		return true
	case g.depth == hostNone:
		return false
	case g.depth == hostExact:
		return h == g
	case g.depth == hostChild:
		if h.depth == hostExact {
			_, parent, _ := strings.Cut(h.name, ".")
			return parent == g.name
		}
		return h == g
	}
	// g is **.name: h must add at least one label to it, by its star or in its name.
	return h.depth != hostExact && h.name == g.name || strings.HasSuffix(h.name, "."+g.name)
}

// Meet returns the narrower of two patterns, or none: of two patterns that share a
// name, one always lies below the other.
func (h Host) Meet(g Host) Host {
	switch {
	case h.LessEq(g):
		return h
	case g.LessEq(h):
		return g
	}
	return Host{}
}

// Normal returns h: a pattern is always in normal form.
func (h Host) Normal() Host { return h }

// MarshalText returns the pattern as its string.
func (h Host) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText parses a pattern as ParseHost does.
func (h *Host) UnmarshalText(text []byte) error {
	parsed, err := ParseHost(string(text))
	if err != nil {
		return err
	}
	*h = parsed
	return nil
}
