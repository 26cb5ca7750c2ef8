// Command differential says of addresses whether two independent libraries would let a program connect to them. It is a module of its own, so that
// jail needs neither.
//
// It reads addresses, 16 bytes each, from standard input, an IPv4 address in its mapped form, and writes one byte for each: bit 0 is set where
// code.dny.dev/ssrf refuses it, bit 1 where github.com/doyensec/safeurl does.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	_ "unsafe" // for linkname

	"code.dny.dev/ssrf"
	_ "github.com/doyensec/safeurl"
)

// isIPBlocked is what safeurl asks before it connects, with no lists of the caller's own.
//
//go:linkname isIPBlocked github.com/doyensec/safeurl.isIPBlocked
func isIPBlocked(ip net.IP, blocked []net.IP, blockedNets []net.IPNet) bool

func main() {
	if err := run(bufio.NewReader(os.Stdin), bufio.NewWriter(os.Stdout)); err != nil {
		fmt.Fprintln(os.Stderr, "differential:", err)
		os.Exit(1)
	}
}

func run(in *bufio.Reader, out *bufio.Writer) error {
	guardian := ssrf.New(ssrf.WithAnyPort())
	for {
		var b [16]byte
		switch _, err := io.ReadFull(in, b[:]); {
		case errors.Is(err, io.EOF):
			return out.Flush()
		case err != nil:
			return err
		}
		a := netip.AddrFrom16(b).Unmap()
		var said byte
		if guardian.SafeAddr(a) != nil {
			said |= 1
		}
		if isIPBlocked(net.IP(a.AsSlice()), nil, nil) {
			said |= 2
		}
		if err := out.WriteByte(said); err != nil {
			return err
		}
	}
}
