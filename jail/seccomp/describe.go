package seccomp

import (
	"fmt"
	"strings"
)

// Describe says what a call asked for, where its arguments are what it is refused for: "socket(AF_VSOCK)", "prctl(PR_SET_SECCOMP)". It
// looks at as many bits as the kernel reads. Elsewhere it is the name alone.
func Describe(name string, args []uint64) string {
	if len(args) < 3 {
		return name
	}
	switch name {
	case "socket", "socketpair":
		return name + "(" + socketText(uint32(args[0]), uint32(args[1]), uint32(args[2])) + ")"
	case "prctl":
		return name + "(" + named(prctls, uint32(args[0])) + ")"
	case "ioctl":
		return name + "(" + named(ioctls, uint32(args[1])) + ")"
	case "clone":
		return call(name, spaces(uint32(args[0])))
	case "unshare":
		return call(name, spaces(uint32(args[0])))
	}
	return name
}

func call(name, args string) string {
	if args == "" {
		return name
	}
	return name + "(" + args + ")"
}

func named(names map[uint32]string, n uint32) string {
	if name, ok := names[n]; ok {
		return name
	}
	return fmt.Sprintf("%#x", n)
}

// socketText names the family, and the type and protocol where they are not the usual ones.
func socketText(family, kind, protocol uint32) string {
	kind &= 0xf // flags are in the other bits
	parts := []string{named(families, family)}
	if kind != 1 {
		parts = append(parts, named(kinds, kind))
	}
	if protocol != 0 {
		parts = append(parts, fmt.Sprintf("protocol %d", protocol))
	}
	return strings.Join(parts, ", ")
}

// spaces names the new namespaces of clone(2) and unshare(2).
func spaces(flags uint32) string {
	var parts []string
	for _, f := range namespaceFlags {
		if flags&f.bit != 0 {
			parts = append(parts, f.name)
		}
	}
	return strings.Join(parts, "|")
}

var namespaceFlags = []struct {
	bit  uint32
	name string
}{
	{0x20000, "CLONE_NEWNS"}, {0x02000000, "CLONE_NEWCGROUP"}, {0x04000000, "CLONE_NEWUTS"}, {0x08000000, "CLONE_NEWIPC"},
	{0x10000000, "CLONE_NEWUSER"}, {0x20000000, "CLONE_NEWPID"}, {0x40000000, "CLONE_NEWNET"},
}

var kinds = map[uint32]string{1: "SOCK_STREAM", 2: "SOCK_DGRAM", 3: "SOCK_RAW", 4: "SOCK_RDM", 5: "SOCK_SEQPACKET", 6: "SOCK_DCCP", 10: "SOCK_PACKET"}

var families = map[uint32]string{
	0: "AF_UNSPEC", 1: "AF_UNIX", 2: "AF_INET", 3: "AF_AX25", 4: "AF_IPX", 5: "AF_APPLETALK", 6: "AF_NETROM", 7: "AF_BRIDGE", 8: "AF_ATMPVC", 9: "AF_X25",
	10: "AF_INET6", 11: "AF_ROSE", 12: "AF_DECnet", 13: "AF_NETBEUI", 14: "AF_SECURITY", 15: "AF_KEY", 16: "AF_NETLINK", 17: "AF_PACKET", 18: "AF_ASH",
	19: "AF_ECONET", 20: "AF_ATMSVC", 21: "AF_RDS", 22: "AF_SNA", 23: "AF_IRDA", 24: "AF_PPPOX", 25: "AF_WANPIPE", 26: "AF_LLC", 27: "AF_IB", 28: "AF_MPLS",
	29: "AF_CAN", 30: "AF_TIPC", 31: "AF_BLUETOOTH", 32: "AF_IUCV", 33: "AF_RXRPC", 34: "AF_ISDN", 35: "AF_PHONET", 36: "AF_IEEE802154", 37: "AF_CAIF",
	38: "AF_ALG", 39: "AF_NFC", 40: "AF_VSOCK", 41: "AF_KCM", 42: "AF_QIPCRTR", 43: "AF_SMC", 44: "AF_XDP", 45: "AF_MCTP",
}

var prctls = map[uint32]string{
	1: "PR_SET_PDEATHSIG", 2: "PR_GET_PDEATHSIG", 3: "PR_GET_DUMPABLE", 4: "PR_SET_DUMPABLE", 8: "PR_SET_KEEPCAPS", 15: "PR_SET_NAME", 16: "PR_GET_NAME",
	22: "PR_SET_SECCOMP", 24: "PR_CAPBSET_DROP", 26: "PR_SET_TSC", 28: "PR_SET_SECUREBITS", 35: "PR_SET_MM", 36: "PR_SET_CHILD_SUBREAPER",
	38: "PR_SET_NO_NEW_PRIVS", 39: "PR_GET_NO_NEW_PRIVS", 47: "PR_CAP_AMBIENT", 53: "PR_SET_SPECULATION_CTRL", 0x53564d41: "PR_SET_VMA", 0x59616d61: "PR_SET_PTRACER",
}

var ioctls = map[uint32]string{
	0x5401: "TCGETS", 0x5402: "TCSETS", 0x5403: "TCSETSW", 0x5404: "TCSETSF", 0x540e: "TIOCSCTTY", 0x5412: "TIOCSTI", 0x5413: "TIOCGWINSZ", 0x541c: "TIOCLINUX",
	0x541d: "TIOCCONS", 0x5422: "TIOCNOTTY", 0x5423: "TIOCSETD",
}
