// Package seccomp says which system calls a process of a jail may make. rules.go lists every rule;
// NewFilter joins groups of rules to a Filter, which is plain data and part of a plan. The package
// computes only: jail/seccomp/libseccomp compiles a Filter and answers refused calls.
package seccomp

import (
	"fmt"
	"slices"
	"strings"
)

// A Filter is an allow-list. Every other call fails with Errno, or with ENOSYS where no call has
// that number.
type Filter struct {
	Groups []string `json:"groups"`
	// Allow is sorted.
	Allow []string `json:"allow"`
	// Only restricts the arguments of calls in Allow. A call with several conditions is allowed
	// where one of them holds.
	Only []Condition `json:"only"`
	// ENOSYS are calls that fail with ENOSYS and that no listener counts.
	ENOSYS []string `json:"enosys"`
	// ENOTSUP are calls that fail with ENOTSUP, as on a file system that has no such thing, and
	// that no listener counts.
	ENOTSUP []string `json:"enotsup,omitempty"`
	// EINVAL are calls that fail with EINVAL, as with files that do not support them, and that no
	// listener counts.
	EINVAL []string `json:"einval,omitempty"`
	// Errno is EPERM or ENOSYS.
	Errno string `json:"errno"`
}

// A Condition allows a call only where the bits of Mask in argument Arg (from 0) equal Value, and
// all of And hold too. A filter sees 64 bits of an argument that the kernel may read as 32: no mask
// is wider than what the kernel reads.
type Condition struct {
	Call string `json:"call"`
	// From 0.
	Arg   uint   `json:"arg"`
	Mask  uint64 `json:"mask"`
	Value uint64 `json:"value"`
	// Must hold besides.
	And []Bits `json:"and,omitempty"`
}

// Bits is a comparison of one argument (from 0): the bits of Mask must equal Value.
type Bits struct {
	// From 0.
	Arg   uint   `json:"arg"`
	Mask  uint64 `json:"mask"`
	Value uint64 `json:"value"`
}

// All returns all comparisons of the condition.
func (c Condition) All() []Bits { return append([]Bits{{c.Arg, c.Mask, c.Value}}, c.And...) }

// intMask are the bits of an argument that the kernel reads as an int.
const intMask = 0xffffffff

// String returns the condition in readable form, such as "socket(0=0x1, 1&0xf=0x1)". It leaves out
// a mask of all 32 bits.
func (c Condition) String() string {
	var parts []string
	for _, b := range c.All() {
		mask := ""
		if b.Mask != intMask {
			mask = fmt.Sprintf("&%#x", b.Mask)
		}
		parts = append(parts, fmt.Sprintf("%d%s=%#x", b.Arg, mask, b.Value))
	}
	return c.Call + "(" + strings.Join(parts, ", ") + ")"
}

// A rule allows calls for a reason, whatever their arguments are or, with alternatives, where one
// of these holds.
type rule struct {
	why          string
	calls        []string
	alternatives []demand
}

// A demand holds when all of its comparisons hold.
type demand []Bits

func allow(why string, calls ...string) rule { return rule{why: why, calls: calls} }

// when restricts r to arguments that meet one of the demands.
func (r rule) when(alternatives ...demand) rule {
	r.alternatives = alternatives
	return r
}

// arg returns one demand for each value: the int in argument n equals it.
func arg(n uint, values ...uint64) []demand {
	var all []demand
	for _, v := range values {
		all = append(all, masked(n, intMask, v))
	}
	return all
}

// masked demands that the bits of mask in argument n equal value.
func masked(n uint, mask, value uint64) demand { return demand{{Arg: n, Mask: mask, Value: value}} }

// NewFilter returns the allow-list of the named groups, as the inner filter of a run. Refused calls
// fail with EPERM.
func NewFilter(names ...string) Filter {
	f := Filter{Groups: names, ENOSYS: slices.Clone(absent), Errno: "EPERM"}
	if slices.Contains(names, "processes") {
		f.ENOSYS = append(f.ENOSYS, absentNative...)
		f.ENOTSUP = slices.Clone(unsupportedNative)
		f.EINVAL = slices.Clone(invalidNative)
	}
	demands, whole := map[string][]demand{}, map[string]bool{}
	for _, g := range names {
		for _, r := range groups[g] {
			for _, call := range r.calls {
				f.Allow = append(f.Allow, call)
				demands[call] = append(demands[call], r.alternatives...)
				whole[call] = whole[call] || len(r.alternatives) == 0
			}
		}
	}
	slices.Sort(f.Allow)
	f.Allow = slices.Compact(f.Allow)
	for _, call := range f.Allow {
		if !whole[call] {
			f.Only = append(f.Only, conditions(call, demands[call])...)
		}
	}
	return f
}

// NewOuterFilter returns the allow-list of the named groups as the filter that libcontainer loads
// before it starts jail-init. Refused calls fail with ENOSYS until the inner filter is loaded.
func NewOuterFilter(names ...string) Filter {
	f := NewFilter(names...)
	f.Errno = "ENOSYS"
	return f
}

// conditions returns the demands on a call as conditions, each once.
func conditions(call string, demands []demand) []Condition {
	var all []Condition
	seen := map[string]bool{}
	for _, d := range demands {
		c := Condition{
			Call: call, Arg: d[0].Arg, Mask: d[0].Mask, Value: d[0].Value, And: slices.Clone(d[1:]),
		}
		if text := c.String(); !seen[text] {
			seen[text] = true
			all = append(all, c)
		}
	}
	return all
}
