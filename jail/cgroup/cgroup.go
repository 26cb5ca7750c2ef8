// Package cgroup owns the control group slice above all jails and reads, freezes and kills the leaves below it; libcontainer makes the leaves.
// One interface covers cgroup v2 and the v1 and hybrid layouts. It is the only user of containerd/cgroups.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/cgroups/v3"
	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/containerd/cgroups/v3/cgroup2"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// Root is where the hierarchies are mounted (cgroups(7)).
const Root = "/sys/fs/cgroup"

// ErrUnsupported says that this host has no control groups that a jail's limits could be put on.
var ErrUnsupported = errors.New("no usable control groups")

// Layout says which control groups a host has.
type Layout string

// The layouts.
const (
	V1     Layout = "v1"
	Hybrid Layout = "hybrid" // v1 for the limits, v2 for killing and freezing
	V2     Layout = "v2"
)

// Detect returns the layout of this host.
func Detect() (Layout, error) {
	switch cgroups.Mode() {
	case cgroups.Unified:
		return V2, nil
	case cgroups.Hybrid:
		return Hybrid, nil
	case cgroups.Legacy:
		return V1, nil
	}
	return "", fmt.Errorf("%w: nothing that is known is mounted on %s", ErrUnsupported, Root)
}

// Needed are the controllers without which a jail does not start.
var Needed = []string{"cpu", "memory", "pids"}

// Missing returns those of Needed that this host does not offer.
func Missing() ([]string, error) {
	layout, err := Detect()
	if err != nil {
		return nil, err
	}
	have := map[string]bool{}
	if layout == V2 {
		text, err := os.ReadFile(filepath.Join(Root, "cgroup.controllers"))
		if err != nil {
			return nil, err
		}
		for _, c := range strings.Fields(string(text)) {
			have[c] = true
		}
	} else {
		for _, c := range append([]string{"devices", "freezer"}, Needed...) {
			_, err := os.Stat(filepath.Join(Root, c, "tasks"))
			have[c] = err == nil
		}
	}
	var missing []string
	for _, c := range Needed {
		if !have[c] {
			missing = append(missing, c)
		}
	}
	return missing, nil
}

// Ceiling are the host's own bounds on all jails together. Zero is no bound.
type Ceiling struct {
	Memory int64 // bytes, swap included
	PIDs   int64
	Weight int64 // of its processor time against what is beside it, which has 100 each, where there is too little for both
}

// BesideDaemon is the weight of all jails of a service. Beside them in the service's own group is the daemon alone: a jail waits for the daemon (the
// record of a fetch, say) while others compute, and the scheduler lets who has used less than its due go first. What the service as a whole has
// against the rest of the host stays the same.
const BesideDaemon = 25

// MakeSlice makes the control group above all jails and puts the ceiling on it. It may be called again, also by several daemons at once.
func MakeSlice(path string, c Ceiling) error {
	layout, err := Detect()
	if err != nil {
		return err
	}
	if layout == V2 {
		return makeSliceV2(path, c)
	}
	resources := &specs.LinuxResources{}
	if c.Weight > 0 {
		shares := uint64(c.Weight) * 1024 / 100
		resources.CPU = &specs.LinuxCPU{Shares: &shares}
	}
	if c.Memory > 0 {
		resources.Memory = &specs.LinuxMemory{Limit: &c.Memory, Swap: &c.Memory}
	}
	if c.PIDs > 0 {
		resources.Pids = &specs.LinuxPids{Limit: &c.PIDs}
	}
	if _, err := cgroup1.New(cgroup1.StaticPath(path), resources); err != nil {
		return fmt.Errorf("control group %s: %w", path, err)
	}
	return nil
}

func makeSliceV2(path string, c Ceiling) error {
	resources := &cgroup2.Resources{CPU: &cgroup2.CPU{}, Memory: &cgroup2.Memory{}, Pids: &cgroup2.Pids{}}
	if c.Memory > 0 {
		none := int64(0)
		resources.Memory = &cgroup2.Memory{Max: &c.Memory, Swap: &none}
	}
	if c.PIDs > 0 {
		resources.Pids.Max = c.PIDs
	}
	if c.Weight > 0 {
		weight := uint64(c.Weight)
		resources.CPU.Weight = &weight
	}
	slice, err := cgroup2.NewManager(Root, path, resources)
	if err == nil {
		wanted := Needed
		if MissingIO() == nil && handedOn(filepath.Dir(path), "io") {
			wanted = append(slices.Clip(wanted), "io") // for the runs whose policy asks for it
		}
		err = slice.ToggleControllers(wanted, cgroup2.Enable)
	}
	if err != nil {
		return fmt.Errorf("control group %s: %w", path, err)
	}
	return nil
}

// handedOn reports whether a group has a controller to give to those below it, as one of a user's manager need not.
func handedOn(group, controller string) bool {
	text, err := os.ReadFile(filepath.Join(Root, group, "cgroup.controllers"))
	return err == nil && slices.Contains(strings.Fields(string(text)), controller)
}

// Usage is what a leaf has used.
type Usage struct {
	CPU        time.Duration
	MemoryPeak int64         // bytes
	PIDsPeak   int64         // tasks; 0 where the kernel does not count them
	OOMKills   int64         // processes that were ended because memory ran out
	PIDsDenied int64         // tasks that were refused
	Throttled  time.Duration // how long its CPUs were kept from it by the quota, all together
	IORead     int64         // bytes that disks were asked for; 0 where the kernel does not count them
	IOWrite    int64         // bytes
}

// A Leaf is the control group of one jail.
type Leaf struct {
	path   string
	layout Layout
	v1     cgroup1.Cgroup
	v2     *cgroup2.Manager
}

// ErrNotLeaf says that a path cannot be that of a jail's control group.
var ErrNotLeaf = errors.New("not a jail's control group")

// checkLeaf refuses the root of a hierarchy and what is directly below it, whose processes are the host's: a leaf lies in a slice.
func checkLeaf(path string) error {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path || strings.Count(path, "/") < 2 {
		return fmt.Errorf("control group %q: %w", path, ErrNotLeaf)
	}
	return nil
}

// Open returns the leaf at path, which libcontainer has made.
func Open(path string) (*Leaf, error) {
	if err := checkLeaf(path); err != nil {
		return nil, err
	}
	layout, err := Detect()
	if err != nil {
		return nil, err
	}
	l := &Leaf{path: path, layout: layout}
	if layout == V2 {
		l.v2, err = cgroup2.Load(path)
	} else {
		l.v1, err = cgroup1.Load(cgroup1.StaticPath(path))
	}
	if err != nil {
		return nil, fmt.Errorf("control group %s: %w", path, err)
	}
	return l, nil
}

// Usage reads the leaf's counters. They stay readable after its last process has ended.
func (l *Leaf) Usage() (Usage, error) {
	u, err := l.stat()
	if err != nil {
		return Usage{}, fmt.Errorf("control group %s: %w", l.path, err)
	}
	u.PIDsPeak = l.number("pids", "pids.peak")
	if events := l.field("pids", "pids.events", "max"); events > 0 {
		u.PIDsDenied = events
	}
	return u, nil
}

func (l *Leaf) stat() (Usage, error) {
	var u Usage
	if l.layout == V2 {
		m, err := l.v2.StatFiltered(cgroup2.StatAll)
		if err != nil {
			return u, err
		}
		u.CPU = time.Duration(m.GetCPU().GetUsageUsec()) * time.Microsecond
		u.MemoryPeak = int64(m.GetMemory().GetMaxUsage())
		u.OOMKills = int64(m.GetMemoryEvents().GetOomKill())
		u.Throttled = time.Duration(m.GetCPU().GetThrottledUsec()) * time.Microsecond
		for _, d := range m.GetIo().GetUsage() {
			u.IORead, u.IOWrite = u.IORead+int64(d.GetRbytes()), u.IOWrite+int64(d.GetWbytes())
		}
		return u, nil
	}
	m, err := l.v1.Stat(cgroup1.IgnoreNotExist)
	if err != nil {
		return u, err
	}
	u.CPU = time.Duration(m.GetCPU().GetUsage().GetTotal())
	u.MemoryPeak = int64(m.GetMemory().GetUsage().GetMax())
	u.OOMKills = int64(m.GetMemoryOomControl().GetOomKill())
	u.Throttled = time.Duration(m.GetCPU().GetThrottling().GetThrottledTime())
	u.IORead, u.IOWrite = l.servedV1()
	return u, nil
}

// file returns the path of one of the leaf's files.
func (l *Leaf) file(controller, name string) string {
	if l.layout == V2 {
		return filepath.Join(Root, l.path, name)
	}
	return filepath.Join(Root, controller, l.path, name)
}

// number reads a file that holds one number, 0 where the kernel has none.
func (l *Leaf) number(controller, name string) int64 {
	text, err := os.ReadFile(l.file(controller, name))
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func (l *Leaf) field(controller, name, key string) int64 {
	text, err := os.ReadFile(l.file(controller, name))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseInt(v, 10, 64); k == key && err == nil {
			return n
		}
	}
	return 0
}

// Freeze stops every process of the leaf, Thaw lets them go on.
func (l *Leaf) Freeze() error {
	if l.layout == V2 {
		return l.v2.Freeze()
	}
	return l.freezeV1()
}

// freezeV1 tries for about a second. A v1 freezer can stay on its way for good when it meets a process in the middle of an exec; letting all go
// for a moment and freezing them again helps, and waiting does not.
func (l *Leaf) freezeV1() error {
	file := l.file("freezer", "freezer.state")
	for try := range 1000 {
		if try%20 == 19 {
			if err := os.WriteFile(file, []byte("THAWED"), 0); err != nil {
				return err
			}
		}
		if err := os.WriteFile(file, []byte("FROZEN"), 0); err != nil {
			return err
		}
		state, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if strings.TrimSpace(string(state)) == "FROZEN" {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return errors.Join(fmt.Errorf("control group %s: its processes do not freeze", l.path), l.Thaw())
}

// Thaw undoes Freeze.
func (l *Leaf) Thaw() error {
	if l.layout == V2 {
		return l.v2.Thaw()
	}
	return l.v1.Thaw()
}

// PIDs returns the host's numbers of the leaf's processes.
func (l *Leaf) PIDs() ([]int, error) {
	text, err := os.ReadFile(l.file("pids", "cgroup.procs"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, f := range strings.Fields(string(text)) {
		pid, err := strconv.Atoi(f)
		if err != nil {
			return nil, fmt.Errorf("control group %s: process %q", l.path, f)
		}
		pids = append(pids, pid)
	}
	return pids, nil
}
