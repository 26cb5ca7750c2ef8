package fetch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jail-sandbox/jail/policy"
)

// Internal is an entry [[internal]] of fetch.toml: hosts inside the operator's network. If a policy
// grants the request, the proxy may dial the entry's addresses for its names and ports.
type Internal struct {
	Host  policy.Host `json:"host"`
	Ports []uint16    `json:"ports"`
	// Addresses has all addresses that the names may resolve to. A single address is a prefix of
	// full length.
	Addresses []netip.Prefix `json:"addresses,omitempty"`
	// Fixed: no name server is asked, and each of Addresses is a single address of the host.
	Fixed bool `json:"fixed,omitempty"`
	// Socket is the path of a Unix socket of the host, which is dialled instead of an address.
	Socket string `json:"socket,omitempty"`
	// Line is the line of the entry in fetch.toml.
	Line int `json:"line,omitempty"`
}

// internalEntry is an entry in the format of fetch.toml.
type internalEntry struct {
	Host      string   `json:"host"`
	Addresses []string `json:"addresses"`
	Ports     []uint16 `json:"ports"`
	Resolve   *bool    `json:"resolve"`
	Socket    string   `json:"socket"`
}

// maxInternal bounds the entries of fetch.toml, and the addresses and the ports of each.
const maxInternal = 256

// maxSocketPath is the length of sun_path without the final zero byte (unix(7)).
const maxSocketPath = 107

// neverInternal are ranges that no entry may name, besides metadataZones. Link-local addresses need
// an interface, or serve the metadata of clouds.
var neverInternal = join(special4, special6)

var loopbackZones = zones("loopback", "127.0.0.0/8", "::1/128")

// compatibleZone contains the loopback and the unspecified address, so it is checked after them.
var compatibleZone = zones("IPv4-compatible", "::/96")

// mistake is an error in a key of fetch.toml. The caller adds the line.
type mistake struct {
	key  string
	text string
}

func (m *mistake) Error() string { return m.text }

func wrong(key, format string, args ...any) error {
	return &mistake{key, fmt.Sprintf(format, args...)}
}

// parse checks an entry and returns its parsed form. An error is a mistake with the wrong key.
func (e internalEntry) parse(nat64 []netip.Prefix) (Internal, error) {
	out := Internal{Socket: e.Socket}
	var err error
	switch {
	case e.Host == "":
		return out, wrong("", "host is missing: name the host that a policy may grant")
	case e.Host == "*":
		return out, wrong("host",
			"host \"*\" would make every name internal: name the hosts, as in *.corp.example")
	case len(e.Ports) == 0:
		return out, wrong("ports",
			"ports are missing: list the ports of the host, as in ports = [443]")
	case len(e.Ports) > maxInternal || len(e.Addresses) > maxInternal:
		return out, wrong("", "an entry has at most %d ports and %d addresses", maxInternal,
			maxInternal)
	case slices.Contains(e.Ports, 0):
		return out, wrong("ports", "port 0 is no port")
	case e.Socket != "" && len(e.Addresses) > 0:
		return out, wrong("socket", "socket and addresses exclude each other: write one of them")
	case e.Socket == "" && len(e.Addresses) == 0:
		return out, wrong("",
			"addresses are missing: list all that the name may have, as in "+
				"addresses = [\"10.1.0.0/16\"]")
	case e.Socket != "" && e.Resolve != nil:
		return out, wrong("resolve",
			"resolve has no meaning for a socket, whose name is not looked up")
	}
	if out.Host, err = policy.ParseHost(e.Host); err != nil {
		return out, wrong("host", "%v", err)
	}
	out.Ports = slices.Compact(slices.Sorted(slices.Values(e.Ports)))
	if e.Socket != "" {
		if !filepath.IsAbs(e.Socket) || filepath.Clean(e.Socket) != e.Socket ||
			strings.ContainsRune(e.Socket, 0) || len(e.Socket) > maxSocketPath {
			return out, wrong("socket",
				"socket %q is no absolute path of at most %d bytes", e.Socket, maxSocketPath)
		}
		return out, nil
	}
	out.Fixed = e.Resolve != nil && !*e.Resolve
	for _, text := range e.Addresses {
		p, err := internalPrefix(text, nat64)
		if err != nil {
			return out, wrong("addresses", "%v", err)
		}
		if out.Fixed && !p.IsSingleIP() {
			return out, wrong("addresses",
				"%s is a range, and resolve = false needs the addresses of the host themselves",
				text)
		}
		out.Addresses = append(out.Addresses, p)
	}
	if out.Fixed && len(out.Addresses) > maxAddresses {
		return out, wrong("addresses", "with resolve = false an entry has at most %d addresses",
			maxAddresses)
	}
	return out, nil
}

// internalPrefix parses an address or range. It returns an error for one that no entry may name.
func internalPrefix(text string, nat64 []netip.Prefix) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" {
			return p, fmt.Errorf("%q is neither an address nor a range such as 10.1.0.0/16", text)
		}
		p = netip.PrefixFrom(a, a.BitLen())
	}
	if p != p.Masked() {
		return p, fmt.Errorf("%s has bits beyond its length: write %s", text, p.Masked())
	}
	for _, z := range metadataZones {
		if z.prefix.Overlaps(p) {
			return p, fmt.Errorf("%s holds %s, where a cloud serves the credentials of its "+
				"machines, which nothing may reach: write narrower ranges", text, z.prefix)
		}
	}
	for _, z := range loopbackZones {
		if z.prefix.Overlaps(p) && !p.IsSingleIP() {
			return p, fmt.Errorf("%s holds the loopback of this host, which is only reached by a "+
				"single address: write it, as in 127.0.0.1", text)
		}
	}
	never := neverInternal
	if !p.IsSingleIP() || p.Addr() != netip.IPv6Loopback() {
		never = append(slices.Clip(never), compatibleZone...)
	}
	for _, prefix := range nat64 {
		never = append(slices.Clip(never), zone{prefix, "NAT64"})
	}
	for _, z := range never {
		if z.prefix.Overlaps(p) {
			return p, fmt.Errorf("%s holds addresses of %s (%s), which no entry may name", text,
				z.prefix, z.what)
		}
	}
	return p, nil
}

// findInternal returns the entry for a host and port, or nil. fetch.toml has at most one.
func findInternal(list []Internal, host string, port uint16) *Internal {
	for i := range list {
		if list[i].Host.Match(host) && slices.Contains(list[i].Ports, port) {
			return &list[i]
		}
	}
	return nil
}

// Find returns the entry for a host and port, or nil.
func (s Settings) Find(host string, port uint16) *Internal {
	return findInternal(s.internal, host, port)
}

// Hosts returns the entries [[internal]].
func (s Settings) Hosts() []Internal { return slices.Clone(s.internal) }

// String describes the entry in the terms of fetch.toml.
func (e Internal) String() string {
	var to []string
	for _, p := range e.Addresses {
		if p.IsSingleIP() {
			to = append(to, p.Addr().String())
		} else {
			to = append(to, p.String())
		}
	}
	if e.Socket != "" {
		to = []string{"unix:" + e.Socket}
	}
	ports := strings.Trim(strings.ReplaceAll(fmt.Sprint(e.Ports), " ", ", "), "[]")
	return fmt.Sprintf("%s, ports %s, at %s", e.Host, ports, strings.Join(to, ", "))
}

// overlap returns an error if e and an entry of list match the same host and port.
func overlap(list []Internal, e Internal) error {
	for _, other := range list {
		if other.Host.Meet(e.Host) == (policy.Host{}) {
			continue
		}
		for _, port := range e.Ports {
			if slices.Contains(other.Ports, port) {
				return wrong("host",
					"%s and %s of line %d share hosts at port %d: write one entry for them", e.Host,
					other.Host, other.Line, port)
			}
		}
	}
	return nil
}

// refuses returns why an address must not be dialled under the entry, or "". A nil entry allows
// public addresses only. It checks metadataZones and neverInternal again, since no entry may open
// them.
func (e *Internal) refuses(a netip.Addr, nat64 []netip.Prefix) string {
	if e == nil {
		return Forbidden(a, nat64)
	}
	if !a.IsValid() || a.Zone() != "" {
		return "no address"
	}
	a = a.Unmap()
	for _, list := range [][]zone{metadataZones, neverInternal} {
		if what := lookup(list, a); what != "" {
			return what
		}
	}
	for _, p := range nat64 {
		if p.Contains(a) {
			return "NAT64"
		}
	}
	switch loop := lookup(loopbackZones, a); {
	case isatap(a):
		return "ISATAP"
	case loop != "" && !e.exactly(a):
		return loop
	}
	if !slices.ContainsFunc(e.Addresses, func(p netip.Prefix) bool { return p.Contains(a) }) {
		return "not one of the addresses that [[internal]] lists for " + e.Host.String()
	}
	return ""
}

// exactly reports whether the entry lists a as a single address.
func (e *Internal) exactly(a netip.Addr) bool {
	a = a.Unmap()
	return slices.Contains(e.Addresses, netip.PrefixFrom(a, a.BitLen()))
}

// outward returns the addresses of an intent that must not be this host's own: all but those that
// an entry lists singly. list must be the daemon's, since the proxy is not trusted.
func outward(list []Internal, i Intent) []netip.Addr {
	e := findInternal(list, i.Host, i.Port)
	if e == nil {
		return i.Addresses
	}
	return slices.DeleteFunc(slices.Clone(i.Addresses), e.exactly)
}

// dialSocketTime bounds the time to connect to a Unix socket of the host.
const dialSocketTime = 2 * time.Second

// dialSocket connects to a Unix socket of the host. Only the daemon can: the proxy opens no files.
func dialSocket(ctx context.Context, path string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialSocketTime)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		if op, ok := errors.AsType[*net.OpError](err); ok {
			err = op.Err
		}
		return nil, fmt.Errorf("the socket of the host cannot be reached: %w", err)
	}
	return conn, nil
}

// internalDenied returns the refusal of an internal host that layer l grants only by the host *.
func internalDenied(l policy.Layer, q policy.Connect) *refusal {
	return &refusal{status: 403, code: codeDenied, layer: l.Name, rule: policy.RuleInternal,
		message: fmt.Sprintf("%s is not allowed: %s is inside the operator's network, and %s (%s)",
			strings.TrimPrefix(q.String(), "connect "), q.Host, policy.RuleInternal, l.Name),
		next: fmt.Sprintf("add to %s: [[fetch.allow]] host = %q, ports = [%d], and the methods "+
			"and paths that are needed", l.Name, q.Host, q.Port)}
}
