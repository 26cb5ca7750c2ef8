package fetch

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"os"
	"testing"
)

// floorEdges are the first and the last address of each range that is no host's, and those beside it where they are public (T-201, T-202).
var floorEdges = []struct{ first, last, below, above string }{
	{"0.0.0.0", "0.255.255.255", "", "1.0.0.0"},
	{"10.0.0.0", "10.255.255.255", "9.255.255.255", "11.0.0.0"},
	{"100.64.0.0", "100.127.255.255", "100.63.255.255", "100.128.0.0"},
	{"127.0.0.0", "127.255.255.255", "126.255.255.255", "128.0.0.0"},
	{"169.254.0.0", "169.254.255.255", "169.253.255.255", "169.255.0.0"},
	{"172.16.0.0", "172.31.255.255", "172.15.255.255", "172.32.0.0"},
	{"192.0.0.0", "192.0.0.255", "191.255.255.255", "192.0.1.0"},
	{"192.0.2.0", "192.0.2.255", "192.0.1.255", "192.0.3.0"},
	{"192.31.196.0", "192.31.196.255", "192.31.195.255", "192.31.197.0"},
	{"192.52.193.0", "192.52.193.255", "192.52.192.255", "192.52.194.0"},
	{"192.88.99.0", "192.88.99.255", "192.88.98.255", "192.88.100.0"},
	{"192.168.0.0", "192.168.255.255", "192.167.255.255", "192.169.0.0"},
	{"192.175.48.0", "192.175.48.255", "192.175.47.255", "192.175.49.0"},
	{"198.18.0.0", "198.19.255.255", "198.17.255.255", "198.20.0.0"},
	{"198.51.100.0", "198.51.100.255", "198.51.99.255", "198.51.101.0"},
	{"203.0.113.0", "203.0.113.255", "203.0.112.255", "203.0.114.0"},
	{"224.0.0.0", "239.255.255.255", "223.255.255.255", ""},
	{"240.0.0.0", "255.255.255.255", "", ""},
	{"::", "::", "", ""},
	{"::1", "::1", "", ""},
	{"::2", "::ffff:ffff", "", ""},
	{"::ffff:0:0:0", "::ffff:0:ffff:ffff", "", ""},
	{"64:ff9b::", "64:ff9b::ffff:ffff", "", ""},
	{"64:ff9b:1::", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff", "", ""},
	{"100::", "100::ffff:ffff:ffff:ffff", "", ""},
	{"2001::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff", "", "2001:200::"},
	{"2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", "2001:db7:ffff:ffff::", "2001:db9::"},
	{"2002::", "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "2001:ffff:ffff:ffff::", "2003::"},
	{"2620:4f:8000::", "2620:4f:8000:ffff:ffff:ffff:ffff:ffff", "2620:4f:7fff:ffff::", "2620:4f:8001::"},
	{"3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff", "3ffe:ffff:ffff:ffff::", "3fff:1000::"},
	{"4000::", "4000::1", "", ""},
	{"5f00::", "5f00:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "", ""},
	{"fc00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "", ""},
	{"fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "", ""},
	{"fec0::", "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "", ""},
	{"ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "", ""},
}

func TestFloorEdges(t *testing.T) {
	n := 0
	check := func(text string, denied bool) {
		if text == "" {
			return
		}
		n++
		if why := Forbidden(netip.MustParseAddr(text), nil); (why != "") != denied {
			t.Errorf("%s: %q, want denied %v", text, why, denied)
		}
	}
	for _, e := range floorEdges {
		check(e.first, true)
		check(e.last, true)
		check(e.below, false)
		check(e.above, false)
	}
	if n < 110 {
		t.Errorf("only %d addresses", n)
	}
}

// TestForbidden are addresses that others have taken for public, each with what it is.
func TestForbidden(t *testing.T) {
	for text, want := range map[string]string{
		"169.254.169.254": "metadata", "169.254.170.2": "metadata", "100.100.100.200": "metadata", "168.63.129.16": "metadata", "192.0.0.192": "metadata",
		"fd00:ec2::254": "metadata", "fd20:ce::254": "metadata", "::ffff:169.254.169.254": "metadata", "::ffff:168.63.129.16": "metadata",
		"0.1.2.3": "this network", "240.0.0.1": "reserved", "192.0.0.170": "protocol assignments", "198.18.0.1": "benchmarking", "100.64.0.1": "carrier-grade NAT",
		"::ffff:127.0.0.1": "loopback", "::ffff:10.0.0.1": "private", "::127.0.0.1": "IPv4-compatible", "::ffff:0:127.0.0.1": "IPv4-translated",
		"64:ff9b::7f00:1": "NAT64", "64:ff9b::808:808": "NAT64", "64:ff9b:1::7f00:1": "NAT64", "2002:7f00:1::": "6to4", "2001:0:4136:e378:8000:63bf:3fff:fdd2": "protocol assignments, Teredo",
		"fec0::1": "site-local", "2001:db8::1": "documentation", "100::1": "discard", "3fff::1": "documentation", "5f00::1": "segment routing",
		"2607:f8b0::5efe:7f00:1": "ISATAP", "2607:f8b0::200:5efe:808:808": "ISATAP", "fe80::1%eth0": "scoped to an interface", "2607:f8b0::1%lo": "scoped to an interface",
		"1.1.1.1": "", "8.8.8.8": "", "93.184.216.34": "", "2606:4700:4700::1111": "", "2a00:1450:4001::1": "", "::ffff:8.8.8.8": "",
		"4000::1": "not assigned to the public", "1::1": "not assigned to the public",
	} {
		if got := Forbidden(netip.MustParseAddr(text), nil); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	if Forbidden(netip.Addr{}, nil) == "" {
		t.Error("no address is allowed")
	}
}

// TestEmbedded: an IPv6 address that carries an IPv4 address is never more than that one is, and below an operator's prefix it is that one.
func TestEmbedded(t *testing.T) {
	own := netip.MustParsePrefix("2a0a:1234:5678::/96")
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		var four [4]byte
		binary.BigEndian.PutUint32(four[:], rng.Uint32())
		if rng.IntN(2) == 0 {
			e := floorEdges[rng.IntN(18)]
			four = netip.MustParseAddr(e.first).As4()
		}
		why := Forbidden(netip.AddrFrom4(four), nil)
		for at, prefix := range map[string]netip.Addr{"mapped": netip.MustParseAddr("::ffff:0:0"), "operator": own.Addr()} {
			b := prefix.As16()
			copy(b[12:], four[:])
			if got := Forbidden(netip.AddrFrom16(b), []netip.Prefix{own}); got != why {
				t.Fatalf("%s %v: %q, the IPv4 address alone %q", at, four, got, why)
			}
		}
		for _, prefix := range []string{"::", "64:ff9b::", "::ffff:0:0:0"} {
			b := netip.MustParseAddr(prefix).As16()
			copy(b[12:], four[:])
			if Forbidden(netip.AddrFrom16(b), nil) == "" {
				t.Fatalf("%s with %v is allowed", prefix, four)
			}
		}
	}
	for _, bad := range []string{"::/96", "::ffff:0:0/96", "64:ff9b::/64", "10.0.0.0/8", "64:ff9b::1/96"} {
		if CheckNAT64(netip.MustParsePrefix(bad)) == nil {
			t.Errorf("%s is taken for a NAT64 prefix", bad)
		}
	}
}

// TestRandomIPv6: nothing outside 2000::/3 is ever public. JAIL_TEST_LONG asks for a million addresses.
func TestRandomIPv6(t *testing.T) {
	n := 50_000
	if os.Getenv("JAIL_TEST_LONG") != "" {
		n = 1_000_000
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for range n {
		var b [16]byte
		binary.BigEndian.PutUint64(b[:], rng.Uint64())
		binary.BigEndian.PutUint64(b[8:], rng.Uint64())
		a := netip.AddrFrom16(b)
		if Forbidden(a, nil) == "" && !public6.Contains(a) {
			t.Fatalf("%s is allowed", a)
		}
	}
}
