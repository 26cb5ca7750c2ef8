package fetch

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"os"
	"testing"

	"github.com/jail-sandbox/jail/supervisor/fetch/fetchtest"
)

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
	for _, e := range fetchtest.FloorEdges {
		check(e.First, true)
		check(e.Last, true)
		check(e.Below, false)
		check(e.Above, false)
	}
	if n < 110 {
		t.Errorf("only %d addresses", n)
	}
}

// TestForbidden are addresses that others have taken for public, each with what it is.
func TestForbidden(t *testing.T) {
	for text, want := range map[string]string{
		"169.254.169.254": "metadata", "169.254.170.2": "metadata", "100.100.100.200": "metadata",
		"168.63.129.16": "metadata", "192.0.0.192": "metadata",
		"fd00:ec2::254": "metadata", "fd20:ce::254": "metadata",
		"::ffff:169.254.169.254": "metadata", "::ffff:168.63.129.16": "metadata",
		"0.1.2.3": "this network", "240.0.0.1": "reserved", "192.0.0.170": "protocol assignments",
		"198.18.0.1": "benchmarking", "100.64.0.1": "carrier-grade NAT",
		"::ffff:127.0.0.1": "loopback", "::ffff:10.0.0.1": "private",
		"::127.0.0.1": "IPv4-compatible", "::ffff:0:127.0.0.1": "IPv4-translated",
		"64:ff9b::7f00:1": "NAT64", "64:ff9b::808:808": "NAT64", "64:ff9b:1::7f00:1": "NAT64",
		"2002:7f00:1::":                        "6to4",
		"2001:0:4136:e378:8000:63bf:3fff:fdd2": "protocol assignments, Teredo",
		"fec0::1":                              "site-local", "2001:db8::1": "documentation",
		"100::1":  "discard",
		"3fff::1": "documentation", "5f00::1": "segment routing",
		"2607:f8b0::5efe:7f00:1": "ISATAP", "2607:f8b0::200:5efe:808:808": "ISATAP",
		"fe80::1%eth0": "scoped to an interface", "2607:f8b0::1%lo": "scoped to an interface",
		"1.1.1.1": "", "8.8.8.8": "", "93.184.216.34": "", "2606:4700:4700::1111": "",
		"2a00:1450:4001::1": "", "::ffff:8.8.8.8": "",
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

// TestEmbedded: an IPv6 address that carries an IPv4 address is never more than that one is, and
// below an operator's prefix it is that one.
func TestEmbedded(t *testing.T) {
	own := netip.MustParsePrefix("2a0a:1234:5678::/96")
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		var four [4]byte
		binary.BigEndian.PutUint32(four[:], rng.Uint32())
		if rng.IntN(2) == 0 {
			e := fetchtest.FloorEdges[rng.IntN(18)]
			four = netip.MustParseAddr(e.First).As4()
		}
		why := Forbidden(netip.AddrFrom4(four), nil)
		for at, prefix := range map[string]netip.Addr{"mapped": netip.MustParseAddr("::ffff:0:0"),
			"operator": own.Addr()} {
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
	for _, bad := range []string{"::/96", "::ffff:0:0/96", "64:ff9b::/64", "10.0.0.0/8",
		"64:ff9b::1/96"} {
		if checkNAT64(netip.MustParsePrefix(bad)) == nil {
			t.Errorf("%s is taken for a NAT64 prefix", bad)
		}
	}
}

// TestRandomIPv6: nothing outside 2000::/3 is ever public. JAIL_TEST_LONG asks for a million
// addresses.
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
