package policy

import (
	"slices"
)

// SyscallGroup is a named set of system calls. What is in it is the affair of the zone
// that compiles filters; the policy only grants it or not.
type SyscallGroup struct {
	Name  string
	About string
}

// The groups there are.
const (
	GroupWASI   = "wasi"
	GroupNative = "native"
	// GroupLoopback is of use beside GroupNative only.
	GroupLoopback = "loopback"
)

var syscallGroups = []SyscallGroup{
	{GroupLoopback,
		"for programs of the host: they may listen on the jail's own loopback and connect there, " +
			"as the servers of a test suite do, send datagrams there, and ask for its addresses; " +
			"nothing of the host is on it"},
	{GroupNative,
		"what programs of the host need: processes, threads, files, signals; no new namespaces, " +
			"no tracing, no sockets but those granted"},
	{GroupWASI, "what the WebAssembly engine needs, and no way to start another program"},
}

// SyscallGroups returns the groups there are, by name.
func SyscallGroups() []SyscallGroup { return slices.Clone(syscallGroups) }

// Syscalls is a set of groups. Empty means that nothing can run.
type Syscalls struct {
	Groups []string `json:"groups"`
}

// TopSyscalls grants every group.
func TopSyscalls() Syscalls {
	var out Syscalls
	for _, g := range syscallGroups {
		out.Groups = append(out.Groups, g.Name)
	}
	return out
}

// Meet grants the groups in both.
func (s Syscalls) Meet(t Syscalls) Syscalls {
	return Syscalls{meetStrings(s.Groups, t.Groups)}.Normal()
}

// LessEq reports whether t has every group of s.
func (s Syscalls) LessEq(t Syscalls) bool {
	return subsetStrings(s.Normal().Groups, t.Normal().Groups)
}

// Normal sorts the groups, and drops names that are no group: nothing is known of what
// they would grant.
func (s Syscalls) Normal() Syscalls {
	known := slices.DeleteFunc(slices.Clone(s.Groups),
		func(g string) bool { return CheckSyscallGroup(g) != nil })
	return Syscalls{unionStrings(known, nil)}
}

// Has reports whether a group is granted.
func (s Syscalls) Has(group string) bool { return slices.Contains(s.Normal().Groups, group) }

func (s Syscalls) String() string { return setString(s.Normal().Groups) }

// CheckSyscallGroup returns an error that names the groups there are, if name is none.
func CheckSyscallGroup(name string) error {
	return checkKnown("syscall group", TopSyscalls().Groups, name)
}
