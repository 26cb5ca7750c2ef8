package fetch

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
)

// zone is a range of addresses that no policy can grant, and its name for refusals.
type zone struct {
	prefix netip.Prefix
	what   string
}

func zones(what string, prefixes ...string) []zone {
	out := make([]zone, len(prefixes))
	for i, p := range prefixes {
		out[i] = zone{netip.MustParsePrefix(p), what}
	}
	return out
}

func join(lists ...[]zone) (out []zone) {
	for _, l := range lists {
		out = append(out, l...)
	}
	return out
}

// metadataZones are the addresses at which clouds serve a machine's credentials. Some look public,
// or lie in ranges that an operator could open; they are checked first, so that a refusal names
// them.
var metadataZones = zones("metadata", "169.254.169.254/32", "169.254.170.2/32", "169.254.170.23/32",
	"100.100.100.200/32", "168.63.129.16/32",
	"192.0.0.192/32", "fd00:ec2::/32", "fd20:ce::254/128")

// special4 and special6 are special ranges that are neither public nor an internal host's: they are
// not routed, belong to no single host, or carry an IPv4 address.
var (
	special4 = join(
		zones("this network", "0.0.0.0/8"),
		zones("link-local", "169.254.0.0/16"),
		zones("protocol assignments", "192.0.0.0/24"),
		zones("6to4 relay", "192.88.99.0/24"),
		zones("multicast", "224.0.0.0/4"),
		zones("reserved", "240.0.0.0/4"),
	)
	special6 = join(
		zones("protocol assignments, Teredo", "2001::/23"),
		zones("6to4", "2002::/16"),
		zones("unspecified", "::/128"),
		zones("IPv4-mapped", "::ffff:0:0/96"),
		zones("IPv4-translated", "::ffff:0:0:0/96"),
		zones("NAT64", "64:ff9b::/96", "64:ff9b:1::/48"),
		zones("discard", "100::/64", "100:0:0:1::/64"),
		zones("segment routing", "5f00::/16"),
		zones("link-local", "fe80::/10"),
		zones("site-local", "fec0::/10"),
		zones("multicast", "ff00::/8"),
	)
)

// floor4 is IANA's registry of special-purpose IPv4 addresses, plus multicast and reserved space.
var floor4 = join(special4,
	zones("private", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"),
	zones("carrier-grade NAT", "100.64.0.0/10"),
	zones("loopback", "127.0.0.0/8"),
	zones("documentation", "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24"),
	zones("AS112", "192.31.196.0/24", "192.175.48.0/24"),
	zones("AMT", "192.52.193.0/24"),
	zones("benchmarking", "198.18.0.0/15"),
)

// floor6 has the special ranges in 2000::/3, and names for other ranges, which are never public.
var floor6 = join(special6,
	zones("documentation", "2001:db8::/32", "3fff::/20"),
	zones("AS112", "2620:4f:8000::/48"),
	zones("loopback", "::1/128"),
	zones("IPv4-compatible", "::/96"),
	zones("private", "fc00::/7"),
)

var public6 = netip.MustParsePrefix("2000::/3")

// Forbidden returns why an address must not be dialled, or "" for a public one. An address that is
// not known to be public is forbidden. nat64 lists the /96 prefixes of this network's NAT64: below
// one of them Forbidden judges the IPv4 address inside.
func Forbidden(a netip.Addr, nat64 []netip.Prefix) string {
	switch {
	case !a.IsValid():
		return "no address"
	case a.Zone() != "":
		return "scoped to an interface"
	case a.Is4In6():
		a = a.Unmap()
	}
	if what := lookup(metadataZones, a); what != "" {
		return what
	}
	if a.Is4() {
		return lookup(floor4, a)
	}
	for _, p := range nat64 {
		if p.Contains(a) {
			return Forbidden(embedded(a, 12), nil)
		}
	}
	if what := lookup(floor6, a); what != "" {
		return what
	}
	if !public6.Contains(a) {
		return "not assigned to the public"
	}
	if isatap(a) {
		return "ISATAP"
	}
	return ""
}

// isatap reports whether an IPv6 address carries an IPv4 address by ISATAP (RFC 5214), which is
// possible below any prefix: ::0:5efe:a.b.c.d and ::200:5efe:a.b.c.d.
func isatap(a netip.Addr) bool {
	b := a.As16()
	return a.Is6() && b[8]&^2 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe
}

func lookup(list []zone, a netip.Addr) string {
	for _, z := range list {
		if z.prefix.Contains(a) {
			return z.what
		}
	}
	return ""
}

// embedded returns the IPv4 address in the four bytes of an IPv6 address that start at byte at.
func embedded(a netip.Addr, at int) netip.Addr {
	b := a.As16()
	return netip.AddrFrom4([4]byte(b[at : at+4]))
}

// checkNAT64 returns an error unless p is a NAT64 prefix of 96 bits, below which the last four
// bytes are the IPv4 address (RFC 6052).
func checkNAT64(p netip.Prefix) error {
	if !p.IsValid() || !p.Addr().Is6() || p.Bits() != 96 || p != p.Masked() {
		return fmt.Errorf("NAT64 prefix %s is not an IPv6 prefix of 96 bits", p)
	}
	if mapped := netip.MustParsePrefix("::/32"); mapped.Contains(p.Addr()) {
		return fmt.Errorf("NAT64 prefix %s has addresses with an IPv4 address inside", p)
	}
	return nil
}

// hostAddresses caches the addresses of this host. It lists them again after the kernel has
// reported a change. The kernel reports a change before the call that makes it returns
// (rtnetlink(7)), so checking for reports is as good as listing each time, and costs one system
// call.
type hostAddresses struct {
	mu sync.Mutex
	// fd is the netlink socket that receives the kernel's reports.
	fd    int
	known bool
	list  map[netip.Addr]bool
}

// theHost caches the addresses of the daemon's host.
var theHost hostAddresses

// addressGroups are the multicast groups of rtnetlink(7) for changes of addresses.
const addressGroups = 0x10 | 0x100 // RTMGRP_IPV4_IFADDR, RTMGRP_IPV6_IFADDR

// any returns why addrs must not be dialled: one of them is this host's, or this host's addresses
// are unknown. Otherwise it returns "".
func (h *hostAddresses) any(addrs []netip.Addr) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.refresh(); err != nil {
		return "the addresses of this host are not known: " + err.Error()
	}
	for _, a := range addrs {
		if h.list[a.Unmap().WithZone("")] {
			return "an address of this host"
		}
	}
	return ""
}

func (h *hostAddresses) refresh() error {
	if !h.known {
		if err := h.listen(); err != nil {
			return err
		}
	}
	changed, err := h.changed()
	if err != nil {
		return h.forget(err)
	}
	if !changed && h.list != nil {
		return nil
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return h.forget(err)
	}
	list := make(map[netip.Addr]bool, len(own))
	for _, o := range own {
		prefix, err := netip.ParsePrefix(o.String())
		if err != nil {
			return h.forget(err)
		}
		list[prefix.Addr().Unmap().WithZone("")] = true
	}
	h.list = list
	return nil
}

func (h *hostAddresses) listen() error {
	fd, err := syscall.Socket(syscall.AF_NETLINK,
		syscall.SOCK_RAW|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, syscall.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	if err := syscall.Bind(fd,
		&syscall.SockaddrNetlink{Family: syscall.AF_NETLINK, Groups: addressGroups}); err != nil {
		return errors.Join(fmt.Errorf("netlink: %w", err), syscall.Close(fd))
	}
	h.fd, h.known, h.list = fd, true, nil
	return nil
}

// changed reads the kernel's reports and reports whether there were any since the last call.
// Reports that were lost because the buffer was full count as a change.
func (h *hostAddresses) changed() (bool, error) {
	changed := false
	// A longer report is truncated: only its arrival matters.
	for buf := make([]byte, 512); ; {
		_, _, err := syscall.Recvfrom(h.fd, buf, 0)
		switch {
		case errors.Is(err, syscall.EAGAIN):
			return changed, nil
		case errors.Is(err, syscall.EINTR):
		case err == nil, errors.Is(err, syscall.ENOBUFS):
			changed = true
		default:
			return false, fmt.Errorf("netlink: %w", err)
		}
	}
}

// forget clears the cache and closes the socket, so that the next call lists the addresses again.
// It returns err, joined with the error of the close.
func (h *hostAddresses) forget(err error) error {
	h.known, h.list = false, nil
	return errors.Join(err, syscall.Close(h.fd))
}
