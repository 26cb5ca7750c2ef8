package fetch

import (
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/jail-sandbox/jail/supervisor/fetch/fetchtest"
)

// TestOwnAddresses: an address that this host is given is its own for the very next request, and
// one that it lost is not (T-205).
func TestOwnAddresses(t *testing.T) {
	var h hostAddresses
	is := func(address string, want bool) {
		t.Helper()
		if got := h.any([]netip.Addr{netip.MustParseAddr(upIP),
			netip.MustParseAddr(address)}); (got != "") != want {
			t.Errorf("%s: %q", address, got)
		}
	}
	is(fetchtest.Own, true)
	is("::ffff:"+fetchtest.Own, true)
	is("127.0.0.1", true)
	is("::1", true)
	for range 50 {
		for _, a := range []string{"203.0.114.77", "2606:4700::77"} {
			is(a, false)
			if err := fetchtest.SetAddress(a, true); err != nil {
				t.Fatal(err)
			}
			is(a, true)
			// And without a change in between.
			is(a, true)
			if err := fetchtest.SetAddress(a, false); err != nil {
				t.Fatal(err)
			}
		}
	}
	is("203.0.114.77", false)
}

// TestOwnAddressesLost: changes that the kernel had no room to tell are changes, and a socket that
// is gone refuses once and is made anew.
func TestOwnAddressesLost(t *testing.T) {
	var h hostAddresses
	if got := h.any(nil); got != "" {
		t.Fatal(got)
	}
	// The least that there is.
	if err := syscall.SetsockoptInt(h.fd, syscall.SOL_SOCKET, syscall.SO_RCVBUF, 1); err != nil {
		t.Fatal(err)
	}
	const address = "203.0.114.78"
	for range 100 {
		for _, there := range []bool{true, false} {
			if err := fetchtest.SetAddress(address, there); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := fetchtest.SetAddress(address, true); err != nil {
		t.Fatal(err)
	}
	defer fetchtest.SetAddress(address, false)
	if got := h.any([]netip.Addr{netip.MustParseAddr(address)}); got != "an address of this host" {
		t.Errorf("after more changes than the buffer holds: %q", got)
	}
	// In place of the socket.
	var pipe [2]int
	if err := syscall.Pipe2(pipe[:], syscall.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Dup3(pipe[0], h.fd, syscall.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	syscall.Close(pipe[0])
	syscall.Close(pipe[1])
	if got := h.any([]netip.Addr{netip.MustParseAddr(upIP)}); !strings.Contains(got, "not known") {
		t.Errorf("without its socket: %q", got)
	}
	if got := h.any([]netip.Addr{netip.MustParseAddr(upIP)}); got != "" {
		t.Errorf("with a new one: %q", got)
	}
}
