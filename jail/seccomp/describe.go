package seccomp

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// Describe returns the name of a refused call, with the arguments that decide: "socket(AF_VSOCK)",
// "prctl(PR_SET_SECCOMP)". It looks at as many bits as the kernel reads.
func Describe(name string, args []uint64) string {
	if len(args) < 3 {
		return name
	}
	switch name {
	case "socket", "socketpair":
		return name + "(" + socketText(uint32(args[0]), uint32(args[1]), uint32(args[2])) + ")"
	case "prctl":
		return name + "(" + named(prctls, uint32(args[0])) + ")"
	case "shmctl":
		return name + "(" + named(segmentCalls, uint32(args[1])) + ")"
	case "ioctl":
		return name + "(" + named(ioctls, uint32(args[1])) + ")"
	case "clone", "unshare":
		if spaces := spaces(uint32(args[0])); spaces != "" {
			return name + "(" + spaces + ")"
		}
	}
	return name
}

func named(names map[uint32]string, n uint32) string {
	if name, ok := names[n]; ok {
		return name
	}
	return fmt.Sprintf("%#x", n)
}

// socketText names the family, and the type and protocol where they are not the usual ones.
func socketText(family, kind, protocol uint32) string {
	kind &= sockTypeMask
	parts := []string{named(families, family)}
	if kind != unix.SOCK_STREAM {
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
	{unix.CLONE_NEWNS, "CLONE_NEWNS"},
	{unix.CLONE_NEWCGROUP, "CLONE_NEWCGROUP"},
	{unix.CLONE_NEWUTS, "CLONE_NEWUTS"},
	{unix.CLONE_NEWIPC, "CLONE_NEWIPC"},
	{unix.CLONE_NEWUSER, "CLONE_NEWUSER"},
	{unix.CLONE_NEWPID, "CLONE_NEWPID"},
	{unix.CLONE_NEWNET, "CLONE_NEWNET"},
}

var kinds = map[uint32]string{
	unix.SOCK_STREAM:    "SOCK_STREAM",
	unix.SOCK_DGRAM:     "SOCK_DGRAM",
	unix.SOCK_RAW:       "SOCK_RAW",
	unix.SOCK_RDM:       "SOCK_RDM",
	unix.SOCK_SEQPACKET: "SOCK_SEQPACKET",
	unix.SOCK_DCCP:      "SOCK_DCCP",
	unix.SOCK_PACKET:    "SOCK_PACKET",
}

var families = map[uint32]string{
	unix.AF_UNSPEC:     "AF_UNSPEC",
	unix.AF_UNIX:       "AF_UNIX",
	unix.AF_INET:       "AF_INET",
	unix.AF_AX25:       "AF_AX25",
	unix.AF_IPX:        "AF_IPX",
	unix.AF_APPLETALK:  "AF_APPLETALK",
	unix.AF_NETROM:     "AF_NETROM",
	unix.AF_BRIDGE:     "AF_BRIDGE",
	unix.AF_ATMPVC:     "AF_ATMPVC",
	unix.AF_X25:        "AF_X25",
	unix.AF_INET6:      "AF_INET6",
	unix.AF_ROSE:       "AF_ROSE",
	unix.AF_DECnet:     "AF_DECnet",
	unix.AF_NETBEUI:    "AF_NETBEUI",
	unix.AF_SECURITY:   "AF_SECURITY",
	unix.AF_KEY:        "AF_KEY",
	unix.AF_NETLINK:    "AF_NETLINK",
	unix.AF_PACKET:     "AF_PACKET",
	unix.AF_ASH:        "AF_ASH",
	unix.AF_ECONET:     "AF_ECONET",
	unix.AF_ATMSVC:     "AF_ATMSVC",
	unix.AF_RDS:        "AF_RDS",
	unix.AF_SNA:        "AF_SNA",
	unix.AF_IRDA:       "AF_IRDA",
	unix.AF_PPPOX:      "AF_PPPOX",
	unix.AF_WANPIPE:    "AF_WANPIPE",
	unix.AF_LLC:        "AF_LLC",
	unix.AF_IB:         "AF_IB",
	unix.AF_MPLS:       "AF_MPLS",
	unix.AF_CAN:        "AF_CAN",
	unix.AF_TIPC:       "AF_TIPC",
	unix.AF_BLUETOOTH:  "AF_BLUETOOTH",
	unix.AF_IUCV:       "AF_IUCV",
	unix.AF_RXRPC:      "AF_RXRPC",
	unix.AF_ISDN:       "AF_ISDN",
	unix.AF_PHONET:     "AF_PHONET",
	unix.AF_IEEE802154: "AF_IEEE802154",
	unix.AF_CAIF:       "AF_CAIF",
	unix.AF_ALG:        "AF_ALG",
	unix.AF_NFC:        "AF_NFC",
	unix.AF_VSOCK:      "AF_VSOCK",
	unix.AF_KCM:        "AF_KCM",
	unix.AF_QIPCRTR:    "AF_QIPCRTR",
	unix.AF_SMC:        "AF_SMC",
	unix.AF_XDP:        "AF_XDP",
	unix.AF_MCTP:       "AF_MCTP",
}

var prctls = map[uint32]string{
	unix.PR_GET_SECUREBITS:       "PR_GET_SECUREBITS",
	unix.PR_SET_THP_DISABLE:      "PR_SET_THP_DISABLE",
	unix.PR_SET_PDEATHSIG:        "PR_SET_PDEATHSIG",
	unix.PR_GET_PDEATHSIG:        "PR_GET_PDEATHSIG",
	unix.PR_GET_DUMPABLE:         "PR_GET_DUMPABLE",
	unix.PR_SET_DUMPABLE:         "PR_SET_DUMPABLE",
	unix.PR_SET_KEEPCAPS:         "PR_SET_KEEPCAPS",
	unix.PR_SET_NAME:             "PR_SET_NAME",
	unix.PR_GET_NAME:             "PR_GET_NAME",
	unix.PR_GET_SECCOMP:          "PR_GET_SECCOMP",
	unix.PR_SET_SECCOMP:          "PR_SET_SECCOMP",
	unix.PR_CAPBSET_DROP:         "PR_CAPBSET_DROP",
	unix.PR_SET_TSC:              "PR_SET_TSC",
	unix.PR_SET_SECUREBITS:       "PR_SET_SECUREBITS",
	unix.PR_SET_MM:               "PR_SET_MM",
	unix.PR_SET_CHILD_SUBREAPER:  "PR_SET_CHILD_SUBREAPER",
	unix.PR_SET_NO_NEW_PRIVS:     "PR_SET_NO_NEW_PRIVS",
	unix.PR_GET_NO_NEW_PRIVS:     "PR_GET_NO_NEW_PRIVS",
	unix.PR_CAP_AMBIENT:          "PR_CAP_AMBIENT",
	unix.PR_SET_SPECULATION_CTRL: "PR_SET_SPECULATION_CTRL",
	unix.PR_SET_VMA:              "PR_SET_VMA",
	unix.PR_SET_PTRACER:          "PR_SET_PTRACER",
}

var segmentCalls = map[uint32]string{
	unix.IPC_RMID: "IPC_RMID",
	unix.IPC_SET:  "IPC_SET",
	unix.IPC_STAT: "IPC_STAT",
}

var ioctls = map[uint32]string{
	unix.SIOCGIFCONF: "SIOCGIFCONF",
	unix.TCGETS:      "TCGETS",
	unix.TCSETS:      "TCSETS",
	unix.TCSETSW:     "TCSETSW",
	unix.TCSETSF:     "TCSETSF",
	unix.TIOCSCTTY:   "TIOCSCTTY",
	unix.TIOCSTI:     "TIOCSTI",
	unix.TIOCGWINSZ:  "TIOCGWINSZ",
	unix.TIOCLINUX:   "TIOCLINUX",
	unix.TIOCCONS:    "TIOCCONS",
	unix.TIOCNOTTY:   "TIOCNOTTY",
	unix.TIOCSETD:    "TIOCSETD",
}
