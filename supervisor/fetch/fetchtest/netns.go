// Package fetchtest simulates an internet for tests: a network namespace that answers for public
// and private addresses, name servers that follow a script, and hosts that keep every byte they
// receive, so that tests see what a proxy really sent.
package fetchtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
)

const insideEnv = "FETCHTEST_INSIDE"

// ranges are the addresses that the namespace answers for. The first two look public. A proxy must
// never reach the others.
var ranges = []string{"93.184.216.0/24", "2606:2800::/32", "10.0.0.0/8", "169.254.0.0/16",
	"168.63.129.16/32", "100.64.0.0/10"}

// Own is a public-looking address that belongs to the host itself.
const Own = "203.0.114.9"

// Main runs a package's tests in their own network namespace and returns the exit code.
func Main(tests func() int) int {
	if slices.Contains(os.Args, "-test.fuzzworker") {
		// A fuzz worker already runs in its parent's namespace.
		return tests()
	}
	if !Inside() {
		return again()
	}
	if err := Enter(); err != nil {
		fmt.Fprintln(os.Stderr, "fetchtest:", err)
		return 1
	}
	return tests()
}

// Inside reports whether this process runs in a namespace made by Main or Command.
func Inside() bool { return os.Getenv(insideEnv) != "" }

// Command returns a command that runs this program in a new namespace, where it must call Enter.
func Command(args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET,
		Pdeathsig: syscall.SIGKILL}
	return cmd
}

func again() int {
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr,
			"fetchtest: only root can make a network namespace; the tests are skipped")
		return 0
	}
	cmd := Command(os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	// The child gets these signals, too, and handles them.
	signal.Ignore(syscall.SIGINT, syscall.SIGQUIT)
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return max(exit.ExitCode(), 1)
	case err != nil:
		fmt.Fprintln(os.Stderr, "fetchtest:", err)
		return 1
	}
	return 0
}

// loopback is the interface index of lo in every namespace.
const loopback = 1

// Enter brings lo up, adds the address Own, and makes the host answer for ranges.
func Enter() error {
	fd, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC,
		syscall.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	link := make([]byte, 16)
	binary.NativeEndian.PutUint32(link[4:], loopback)
	binary.NativeEndian.PutUint32(link[8:], syscall.IFF_UP)
	binary.NativeEndian.PutUint32(link[12:], syscall.IFF_UP)
	if err := ask(fd, syscall.RTM_NEWLINK, 0, link); err != nil {
		return fmt.Errorf("lo: %w", err)
	}
	if err := askAddress(fd, Own, true); err != nil {
		return err
	}
	for _, text := range ranges {
		p := netip.MustParsePrefix(text)
		family := byte(syscall.AF_INET)
		if p.Addr().Is6() {
			family = syscall.AF_INET6
		}
		route := []byte{family, byte(p.Bits()), 0, 0, syscall.RT_TABLE_LOCAL, syscall.RTPROT_BOOT,
			syscall.RT_SCOPE_HOST, syscall.RTN_LOCAL, 0, 0, 0, 0}
		route = append(route, attribute(syscall.RTA_DST, p.Addr().AsSlice())...)
		route = append(route, attribute(syscall.RTA_OIF, []byte{loopback, 0, 0, 0})...)
		if err := ask(fd, syscall.RTM_NEWROUTE, syscall.NLM_F_CREATE, route); err != nil {
			return fmt.Errorf("route %s: %w", text, err)
		}
	}
	return nil
}

// SetAddress adds an address to the host, or removes it if there is false.
func SetAddress(address string, there bool) error {
	fd, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC,
		syscall.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	return askAddress(fd, address, there)
}

func askAddress(fd int, address string, there bool) error {
	a := netip.MustParseAddr(address)
	family, kind, flags := byte(syscall.AF_INET), uint16(syscall.RTM_NEWADDR),
		uint16(syscall.NLM_F_CREATE)
	if a.Is6() {
		family = syscall.AF_INET6
	}
	if !there {
		kind, flags = syscall.RTM_DELADDR, 0
	}
	own := a.AsSlice()
	body := append([]byte{family, byte(a.BitLen()), 0, 0, loopback, 0, 0, 0},
		append(attribute(syscall.IFA_LOCAL, own), attribute(syscall.IFA_ADDRESS, own)...)...)
	if err := ask(fd, kind, flags, body); err != nil {
		return fmt.Errorf("address %s: %w", address, err)
	}
	return nil
}

func attribute(kind uint16, value []byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
	b = append(binary.NativeEndian.AppendUint16(b, kind), value...)
	return append(b, make([]byte, (4-len(b)%4)%4)...)
}

// ask sends one netlink(7) message and waits for its acknowledgement.
func ask(fd int, kind, flags uint16, body []byte) error {
	b := binary.NativeEndian.AppendUint32(nil, uint32(16+len(body)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = binary.NativeEndian.AppendUint16(b, flags|syscall.NLM_F_REQUEST|syscall.NLM_F_ACK)
	b = append(append(b, make([]byte, 8)...), body...)
	if err := syscall.Sendto(fd, b, 0,
		&syscall.SockaddrNetlink{Family: syscall.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	n, _, err := syscall.Recvfrom(fd, answer, 0)
	if err != nil {
		return err
	}
	if n < 20 {
		return errors.New("a short answer of netlink")
	}
	if code := int32(binary.NativeEndian.Uint32(answer[16:])); code != 0 {
		return syscall.Errno(-code)
	}
	return nil
}
