package libseccomp_test

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jail-sandbox/jail/jail/seccomp"
)

// TestLinks asks for every family, type and protocol of a socket: what programs have with the
// jail's own loopback to themselves are streams and datagrams of the internet, and netlink(7) of
// the one protocol of routes. The control is the filter without it (T-062, T-071 to T-074).
func TestLinks(t *testing.T) {
	groups := append(slices.Clone(seccomp.NativeGroups), "loopback")
	with := compile(t, seccomp.NewFilter(append(slices.Clone(groups), "links")...))
	without := compile(t, seccomp.NewFilter(groups...))
	socket, granted := number(t, "socket"), 0
	for family := range uint64(64) {
		for kind := range uint64(16) {
			for protocol := range uint64(270) {
				inet := family == unix.AF_INET || family == unix.AF_INET6
				base := protocol == 0 && kind == unix.SOCK_STREAM &&
					(inet || family == unix.AF_UNIX) ||
					protocol == unix.IPPROTO_TCP && kind == unix.SOCK_STREAM && inet
				links := inet && kind == unix.SOCK_DGRAM &&
					(protocol == 0 || protocol == unix.IPPROTO_UDP) ||
					family == unix.AF_NETLINK && protocol == unix.NETLINK_ROUTE &&
						(kind == unix.SOCK_RAW || kind == unix.SOCK_DGRAM)
				args := []uint64{family, kind | unix.SOCK_CLOEXEC, protocol | 1<<40}
				if got := run(t, with, data(x64, socket, args...)) == retAllow; got != (base ||
					links) {
					t.Errorf("socket(%#x) is allowed: %v", args, got)
				}
				if links {
					granted++
					if run(t, without, data(x64, socket, args...)) == retAllow {
						t.Errorf("control: socket(%#x) is allowed without the group", args)
					}
				}
			}
		}
	}
	if granted != 6 {
		t.Errorf("%d kinds of sockets more, want 6", granted)
	}
}
