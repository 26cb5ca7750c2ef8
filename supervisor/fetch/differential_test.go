package fetch

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestDifferential: what two libraries of others refuse to connect to, we refuse too, at every edge
// of every range that any of us knows, and at random. JAIL_TEST_LONG asks for a million addresses.
// What we refuse beyond them is counted.
func TestDifferential(t *testing.T) {
	random := 60_000
	if os.Getenv("JAIL_TEST_LONG") != "" {
		random = 1_000_000
	}
	judge := filepath.Join(t.TempDir(), "differential")
	build := exec.Command("go", "build", "-trimpath", "-o", judge, ".")
	build.Dir = "testdata/differential"
	build.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false", "GOWORK=off", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		if text := string(out); strings.Contains(text, "dial tcp") || strings.Contains(text,
			"module lookup disabled") {
			t.Skipf("the two libraries cannot be had without a network: %s", text)
		}
		t.Fatalf("%v\n%s", err, out)
	}
	addrs := edges()
	rng := rand.New(rand.NewPCG(5, 6))
	for range random {
		addrs = append(addrs, someAddress(rng))
	}
	var in bytes.Buffer
	for _, a := range addrs {
		b := a.As16()
		in.Write(b[:])
	}
	cmd := exec.Command(judge)
	cmd.Stdin = &in
	said, err := cmd.Output()
	if err != nil || len(said) != len(addrs) {
		t.Fatalf("%d verdicts on %d addresses, %v", len(said), len(addrs), err)
	}
	var one, two, ours, alone, missed int
	for i, a := range addrs {
		why := Forbidden(a, nil)
		if why != "" {
			ours++
		}
		one += int(said[i] & 1)
		two += int(said[i] >> 1)
		if said[i] == 0 && why != "" {
			alone++
		}
		if said[i] != 0 && why == "" {
			if missed++; missed <= 20 {
				t.Errorf("%s is allowed here, and refused by %v", a, said[i])
			}
		}
	}
	if one == 0 || two == 0 || ours == len(addrs) {
		t.Errorf("of %d addresses %d and %d are refused by the others, %d by us: one of us says "+
			"nothing", len(addrs), one, two, ours)
	}
	t.Logf("%d addresses: ssrf refuses %d, safeurl %d, we %d, of which %d alone", len(addrs), one,
		two, ours, alone)
}

// edges are the first and the last address of each range, and those beside it, ours and those of
// prefixes of every length of some well-known ones.
func edges() (out []netip.Addr) {
	add := func(a netip.Addr) {
		if a.IsValid() {
			out = append(out, a)
		}
	}
	prefixes := []netip.Prefix{public6}
	for _, z := range join(metadataZones, floor4, floor6) {
		prefixes = append(prefixes, z.prefix)
	}
	for _, text := range []string{"192.0.0.8/29", "192.0.0.170/31", "2001:1::/32", "2001:2::/48",
		"2001:3::/32", "2001:4:112::/48", "2001:10::/28", "2001:20::/28", "2001:30::/28",
		"2620:4f:8000::/48", "64:ff9b:1::/48", "5f00::/16", "3fff::/20", "fec0::/10",
		"::ffff:0:0:0/96", "100:0:0:1::/64", "255.255.255.255/32"} {
		prefixes = append(prefixes, netip.MustParsePrefix(text))
	}
	for _, p := range prefixes {
		first, last := p.Masked().Addr(), lastOf(p)
		for _, a := range []netip.Addr{first, last} {
			add(a)
			add(a.Prev())
			add(a.Next())
		}
	}
	return out
}

func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < 8*len(b); i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// someAddress is random, half of them near a range of the floor, since most of the space is not.
func someAddress(rng *rand.Rand) netip.Addr {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], rng.Uint64())
	binary.BigEndian.PutUint64(b[8:], rng.Uint64())
	four := netip.AddrFrom4([4]byte(b[:4]))
	list := floor6
	switch rng.IntN(4) {
	case 0:
		return four
	case 1:
		return netip.AddrFrom16(b)
	case 2:
		list = floor4
	}
	p := list[rng.IntN(len(list))].prefix
	a := p.Addr().AsSlice()
	for i := max(p.Bits()-rng.IntN(3), 0); i < 8*len(a); i++ { // sometimes just outside
		a[i/8] ^= (b[i/8] >> (7 - i%8) & 1) << (7 - i%8)
	}
	out, _ := netip.AddrFromSlice(a)
	return out
}
