package jail

import (
	"slices"
	"strings"
)

// A call is a system call that a group allows, and why.
type call struct {
	name, why string
	only      []demand // one of these must hold; none: with any arguments
}

// A demand is on the arguments of one call; all of its bits must be as they are demanded.
type demand []Bits

// groups are the named groups that filters are made of. What is in none of a filter's groups is refused.
var groups = map[string][]call{
	"runtime": runtimeCalls, "wasi": wasiCalls, "init": initCalls,
	"memory": memoryCalls, "processes": processCalls, "signals": signalCalls, "time": timeCalls, "files": fileCalls, "streams": streamCalls,
	"sockets": socketCalls, "host": hostCalls,
	"fetch": fetchCalls, "network": networkCalls, "shell": shellCalls, "compile": compileCalls, "terminal": terminalCalls,
	"loopback": loopbackCalls, "confine": confineCalls,
}

// Groups of the filters there are, by kind of runner.
var (
	WASIGroups   = []string{"runtime", "wasi"}
	InitGroups   = []string{"runtime", "wasi", "init"} // before the inner filter takes the last away
	NativeGroups = []string{"memory", "processes", "signals", "time", "files", "streams", "sockets", "host"}
)

// fallBack are answered ENOSYS and counted by nobody, so that a C library asks anew in a way whose arguments a filter can see, or that a filter
// knows: the flags of clone3 are in memory, and fchmodat2 is younger than the library that compiles filters.
var fallBack = []string{"clone3", "fchmodat2"}

// low are the bits of an argument that the kernel reads as an int.
const low = 0xffffffff

// arg demands that the int at this place has this value, whatever is above its bits.
func arg(n uint, value uint64) Bits { return Bits{Arg: n, Mask: low, Value: value} }

// oneOf demands one of these values at this place.
func oneOf(n uint, values ...uint64) []demand {
	var all []demand
	for _, v := range values {
		all = append(all, demand{arg(n, v)})
	}
	return all
}

// NewFilter returns the allow-list of the named groups, as the inner filter of a run. Refused calls fail with EPERM.
func NewFilter(names ...string) Filter {
	f := Filter{Groups: names, ENOSYS: slices.Clone(fallBack), Errno: "EPERM"}
	if slices.Contains(names, "processes") {
		f.ENOSYS = append(f.ENOSYS, nativeFallBack...)
	}
	demands, whole := map[string][]demand{}, map[string]bool{}
	for _, g := range names {
		for _, c := range groups[g] {
			f.Allow = append(f.Allow, c.name)
			demands[c.name] = append(demands[c.name], c.only...)
			whole[c.name] = whole[c.name] || len(c.only) == 0
		}
	}
	slices.SortFunc(f.Allow, strings.Compare)
	f.Allow = slices.Compact(f.Allow)
	for _, name := range f.Allow {
		if !whole[name] {
			f.Only = append(f.Only, conditions(name, demands[name])...)
		}
	}
	return f
}

// NewOuterFilter returns the allow-list of the named groups as the filter that is there from the start. Alone it is met only until the inner one
// is loaded, and refuses with ENOSYS.
func NewOuterFilter(names ...string) Filter {
	f := NewFilter(names...)
	f.Errno = "ENOSYS"
	return f
}

func conditions(name string, demands []demand) []Condition {
	var all []Condition
	seen := map[string]bool{}
	for _, d := range demands {
		c := Condition{Call: name, Arg: d[0].Arg, Mask: d[0].Mask, Value: d[0].Value, And: slices.Clone(d[1:])}
		if text := c.String(); !seen[text] {
			seen[text] = true
			all = append(all, c)
		}
	}
	return all
}
