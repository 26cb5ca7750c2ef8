package policy

import (
	"slices"
)

// The groups of system calls. A policy only grants them; package seccomp defines their calls.
const (
	GroupWASI   = "wasi"
	GroupNative = "native"
	// GroupLoopback has an effect only with GroupNative.
	GroupLoopback = "loopback"
)

var syscallGroups = []Named{
	{GroupLoopback,
		"for programs of the host: they may listen on the jail's own loopback and connect there, " +
			"as the servers of a test suite do, send datagrams there, and ask for its addresses; " +
			"nothing of the host is on it"},
	{GroupNative,
		"what programs of the host need: processes, threads, files, signals; no new namespaces, " +
			"no tracing, no sockets but those granted"},
	{GroupWASI, "what the WebAssembly engine needs, and no way to start another program"},
}

// SyscallGroups returns all groups, sorted by name.
func SyscallGroups() []Named { return slices.Clone(syscallGroups) }

// Syscalls is a set of groups. If it is empty, nothing can run.
type Syscalls struct {
	Groups []string `json:"groups"`
}

// TopSyscalls grants every group.
func TopSyscalls() Syscalls { return Syscalls{NamesOf(syscallGroups)} }

// Meet grants the groups in both.
func (s Syscalls) Meet(t Syscalls) Syscalls {
	return Syscalls{meetStrings(s.Groups, t.Groups)}.Normal()
}

// LessEq reports whether t has every group of s.
func (s Syscalls) LessEq(t Syscalls) bool {
	return subsetStrings(s.Normal().Groups, t.Normal().Groups)
}

// Normal sorts the groups and drops unknown names.
func (s Syscalls) Normal() Syscalls {
	return Syscalls{unionStrings(meetStrings(s.Groups, TopSyscalls().Groups), nil)}
}

// Has reports whether a group is granted.
func (s Syscalls) Has(group string) bool { return slices.Contains(s.Normal().Groups, group) }

func (s Syscalls) String() string { return setString(s.Normal().Groups) }

// CheckSyscallGroup returns an error unless name is a group. The error lists the groups.
func CheckSyscallGroup(name string) error {
	return checkKnown("syscall group", TopSyscalls().Groups, name)
}
