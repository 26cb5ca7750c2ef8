// Package cgroup makes the slice above all jails, and reads, freezes and kills the leaves below it.
// libcontainer makes the leaves. One interface covers cgroup v2, v1 and hybrid layouts. It is the
// only importer of containerd/cgroups.
package cgroup

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/cgroups/v3"
	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/containerd/cgroups/v3/cgroup2"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/jail-sandbox/jail/jail"
)

// Root is the mount point of the hierarchies (cgroups(7)).
const Root = "/sys/fs/cgroup"

// errUnsupported is returned on a host without cgroups for a jail's limits.
var errUnsupported = errors.New("no usable control groups")

// Layout is a cgroup layout of a host.
type Layout string

// The layouts.
const (
	v1 Layout = "v1"
	// Hybrid uses v1 for the limits and v2 for killing and freezing.
	Hybrid Layout = "hybrid"
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
		return v1, nil
	}
	return "", fmt.Errorf("%w: no known cgroup layout is mounted on %s", errUnsupported, Root)
}

// Needed are the controllers without which no jail starts.
var Needed = []string{"cpu", "memory", "pids"}

// Missing returns the controllers of Needed that this host lacks.
func Missing() ([]string, error) {
	layout, err := Detect()
	if err != nil {
		return nil, err
	}
	has := func(c string) bool {
		_, err := os.Stat(filepath.Join(Root, c, "tasks"))
		return err == nil
	}
	if layout == V2 {
		all, err := wordsOf(filepath.Join(Root, "cgroup.controllers"))
		if err != nil {
			return nil, err
		}
		has = func(c string) bool { return slices.Contains(all, c) }
	}
	return slices.DeleteFunc(slices.Clone(Needed), has), nil
}

// wordsOf returns the words of a file.
func wordsOf(file string) ([]string, error) {
	text, err := os.ReadFile(file)
	return strings.Fields(string(text)), err
}

// named names the group of an error, or returns nil.
func named(path string, err error) error {
	if err != nil {
		return fmt.Errorf("control group %s: %w", path, err)
	}
	return nil
}

// Ceiling bounds all jails together, or those of a session. A zero field is no bound.
type Ceiling struct {
	// Memory is in bytes and includes swap.
	Memory int64
	PIDs   int64
	// CPUQuota is in microseconds of CPU time per CPUPeriod, which is in microseconds, too.
	CPUQuota  int64
	CPUPeriod uint64
	// Weight is cpu.weight (1 to 10000, default 100).
	Weight int64
}

// BesideDaemon is the weight of all jails of a service. Only the daemon is beside them in the
// service's cgroup. Jails wait for the daemon, for the record of a fetch for example, while other
// jails compute, and the scheduler prefers the group that has used less than its share. The share
// of the whole service on the host does not change.
const BesideDaemon = 25

// MakeSlice makes the cgroup above all jails and sets the ceiling on it. It may be called again,
// also by several daemons at once.
func MakeSlice(path string, c Ceiling) error {
	layout, err := Detect()
	if err != nil {
		return err
	}
	if layout != V2 {
		_, err := newV1(path, c)
		return named(path, err)
	}
	slice, err := newV2(path, c)
	if err == nil {
		wanted := Needed
		if handedOn(filepath.Dir(path), "io") {
			// For runs whose policy has io_read or io_write.
			wanted = append(slices.Clip(wanted), "io")
		}
		err = slice.ToggleControllers(wanted, cgroup2.Enable)
	}
	return named(path, err)
}

// newV1 makes a cgroup with a ceiling.
func newV1(path string, c Ceiling) (cgroup1.Cgroup, error) {
	resources := &specs.LinuxResources{CPU: &specs.LinuxCPU{}}
	if c.Weight > 0 {
		resources.CPU.Shares = new(uint64(c.Weight) * 1024 / 100)
	}
	if c.CPUQuota > 0 {
		resources.CPU.Quota, resources.CPU.Period = &c.CPUQuota, &c.CPUPeriod
	}
	if c.Memory > 0 {
		resources.Memory = &specs.LinuxMemory{Limit: &c.Memory, Swap: &c.Memory}
	}
	if c.PIDs > 0 {
		resources.Pids = &specs.LinuxPids{Limit: &c.PIDs}
	}
	return cgroup1.New(cgroup1.StaticPath(path), resources)
}

func newV2(path string, c Ceiling) (*cgroup2.Manager, error) {
	resources := &cgroup2.Resources{CPU: &cgroup2.CPU{}, Memory: &cgroup2.Memory{},
		Pids: &cgroup2.Pids{}}
	if c.Memory > 0 {
		resources.Memory = &cgroup2.Memory{Max: &c.Memory, Swap: new(int64)}
	}
	if c.PIDs > 0 {
		resources.Pids.Max = c.PIDs
	}
	if c.Weight > 0 {
		resources.CPU.Weight = new(uint64(c.Weight))
	}
	if c.CPUQuota > 0 {
		resources.CPU.Max = cgroup2.NewCPUMax(&c.CPUQuota, &c.CPUPeriod)
	}
	return cgroup2.NewManager(Root, path, resources)
}

// MakeCeiling makes the cgroup that holds a run's leaf to the host's ceiling, if the plan has a
// ceiling. Remove removes it after the leaf.
func MakeCeiling(p jail.Plan) error {
	c := CeilingOf(p)
	if c == nil {
		return nil
	}
	return MakeBounded(c.Path, Ceiling{Memory: max(c.Memory, 0), PIDs: c.PIDs,
		CPUQuota: c.CPUQuota, CPUPeriod: c.CPUPeriod})
}

// RemoveCeiling removes the cgroup that MakeCeiling made.
func RemoveCeiling(p jail.Plan) error {
	c := CeilingOf(p)
	if c == nil {
		return nil
	}
	return Remove(c.Path)
}

// CeilingOf returns the cgroup of the ceiling, or nil.
func CeilingOf(p jail.Plan) *jail.Cgroup {
	if p.Ceiling == nil {
		return nil
	}
	return p.Ceiling.Cgroup
}

// MakeBounded makes a cgroup below a slice for the leaves of jails that share a ceiling. The kernel
// applies the smallest bound on the way up. Remove removes the group after its leaves.
func MakeBounded(path string, c Ceiling) error {
	if err := checkLeaf(path); err != nil {
		return err
	}
	return MakeSlice(path, c)
}

// Enclose makes a leaf with a ceiling for one process of the host, and moves the process into it.
// Remove removes the leaf after the process has ended.
func Enclose(path string, c Ceiling, pid int) error {
	if err := checkLeaf(path); err != nil {
		return err
	}
	layout, err := Detect()
	if err != nil {
		return err
	}
	if layout == V2 {
		leaf, err := newV2(path, c)
		if err == nil {
			err = leaf.AddProc(uint64(pid))
		}
		return named(path, err)
	}
	leaf, err := newV1(path, c)
	if err == nil {
		err = leaf.AddProc(uint64(pid))
	}
	return named(path, err)
}

// handedOn reports whether the cgroup can enable the controller for its children. A group of a
// user's manager may lack it.
func handedOn(group, controller string) bool {
	all, err := wordsOf(filepath.Join(Root, group, "cgroup.controllers"))
	return err == nil && slices.Contains(all, controller)
}

// Leaf is the cgroup of one jail.
type Leaf struct {
	path   string
	layout Layout
	meter  meter
	// dirs are the directories by controller where they are not all at path.
	dirs map[string]string
}

// errNotLeaf is returned for a path that cannot be the cgroup of a jail.
var errNotLeaf = errors.New("not a jail's control group")

// checkLeaf refuses the root of a hierarchy and its direct children, whose processes are the
// host's. A leaf is below a slice.
func checkLeaf(path string) error {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path || strings.Count(path, "/") < 2 {
		return fmt.Errorf("control group %q: %w", path, errNotLeaf)
	}
	return nil
}

// Open returns the leaf at path, which libcontainer has made. A caller of Usage closes it.
func Open(path string) (*Leaf, error) {
	if err := checkLeaf(path); err != nil {
		return nil, err
	}
	layout, err := Detect()
	if err != nil {
		return nil, err
	}
	l := &Leaf{path: path, layout: layout}
	if err := l.exists(); err != nil {
		return nil, err
	}
	return l, nil
}

// OpenForeign returns the cgroup of a container that an engine has placed, for Usage. dirs are its
// directories by controller; in cgroup v2 the one directory has the key "".
func OpenForeign(dirs map[string]string) (*Leaf, error) {
	l := &Leaf{path: dirs["pids"], layout: v1, dirs: dirs}
	if unified := dirs[""]; unified != "" && len(dirs) == 1 {
		l.path, l.layout = unified, V2
	}
	if l.path == "" {
		return nil, fmt.Errorf("control group of a container: %w", errNotLeaf)
	}
	for _, dir := range dirs {
		if rel, ok := strings.CutPrefix(dir, Root+"/"); !ok || filepath.Clean(dir) != dir || rel == "" {
			return nil, fmt.Errorf("control group %q: %w", dir, errNotLeaf)
		}
	}
	return l, nil
}

// exists returns an error if the leaf is not in the hierarchy of the controller pids, which every
// jail needs.
func (l *Leaf) exists() error {
	_, err := os.Stat(filepath.Dir(l.file("pids", "cgroup.procs")))
	return named(l.path, err)
}

// file returns the path of a file of the leaf.
func (l *Leaf) file(controller, name string) string {
	switch {
	case l.dirs != nil && l.layout == V2:
		return filepath.Join(l.path, name)
	case l.dirs != nil:
		// A controller that the container has not is a directory that is not there.
		return filepath.Join(cmp.Or(l.dirs[controller], filepath.Join(Root, "none")), name)
	case l.layout == V2:
		return filepath.Join(Root, l.path, name)
	}
	return filepath.Join(Root, controller, l.path, name)
}

// Freeze stops every process of the leaf.
func (l *Leaf) Freeze() error {
	if l.layout == V2 {
		return l.freezeV2("1")
	}
	return l.freezeV1()
}

// freezeV2 tries for about a second. The kernel sets frozen in cgroup.events when the last process
// has stopped or runs again.
func (l *Leaf) freezeV2(value string) error {
	if err := os.WriteFile(l.file("", "cgroup.freeze"), []byte(value), 0); err != nil {
		return err
	}
	for range 1000 {
		text, err := os.ReadFile(l.file("", "cgroup.events"))
		if err != nil {
			return err
		}
		if strconv.FormatInt(fieldOf(string(text), "frozen"), 10) == value {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return fmt.Errorf("control group %s: its processes do not freeze or thaw", l.path)
}

// freezeV1 tries for about a second. A v1 freezer can stay in FREEZING for good if it meets a
// process in the middle of an exec. Thawing and freezing again helps; waiting does not.
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
	return errors.Join(fmt.Errorf("control group %s: its processes do not freeze", l.path),
		l.Thaw())
}

// Thaw undoes Freeze.
func (l *Leaf) Thaw() error {
	if l.layout == V2 {
		return l.freezeV2("0")
	}
	return os.WriteFile(l.file("freezer", "freezer.state"), []byte("THAWED"), 0)
}

// PIDs returns the host PIDs of the leaf's processes.
func (l *Leaf) PIDs() ([]int, error) {
	words, err := wordsOf(l.file("pids", "cgroup.procs"))
	// The kernel answers ENODEV if the group is removed between the open and the read: by the shim
	// of a jail, while the next daemon clears what a killed one left.
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, f := range words {
		pid, err := strconv.Atoi(f)
		if err != nil {
			return nil, fmt.Errorf("control group %s: process %q", l.path, f)
		}
		pids = append(pids, pid)
	}
	return pids, nil
}
