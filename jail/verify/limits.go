package verify

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/cgroup"
)

// hierarchies returns the hierarchies in which a jail has a leaf, as /proc names them; "" is cgroup
// v2.
func hierarchies(layout cgroup.Layout) []string {
	switch layout {
	case cgroup.V2:
		return []string{""}
	case cgroup.Hybrid:
		return append([]string{"", "devices", "freezer"}, cgroup.Needed...)
	}
	return append([]string{"devices", "freezer"}, cgroup.Needed...)
}

func (v *viewer) members() ([]int, error) {
	leaf, err := cgroup.Open(v.Plan.Cgroup.Path)
	if err != nil {
		return nil, err
	}
	return leaf.PIDs()
}

// controlGroup checks that the jail is in its leaf and that the leaf has the plan's limits.
func (v *viewer) controlGroup() error {
	layout, err := cgroup.Detect()
	if err != nil {
		return err
	}
	text, err := os.ReadFile(proc(v.PID, "cgroup"))
	if err != nil {
		return err
	}
	paths := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3); len(f) == 3 {
			for c := range strings.SplitSeq(f[1], ",") {
				paths[c] = f[2]
			}
		}
	}
	for _, h := range hierarchies(layout) {
		what := "place in " + h
		if h == "" {
			what = "place in the unified hierarchy"
		}
		v.is("control group", what, v.Plan.Cgroup.Path, paths[h])
	}
	leaf, err := cgroup.Open(v.Plan.Cgroup.Path)
	if err != nil {
		return err
	}
	held, err := leaf.Held()
	if err != nil {
		return err
	}
	v.held(held)
	if err := v.ceiling(); err != nil {
		return err
	}
	score, err := os.ReadFile(proc(v.PID, "oom_score_adj"))
	if err != nil {
		return err
	}
	v.is("control group", "oom_score_adj", strconv.Itoa(v.Plan.Cgroup.OOMScore),
		strings.TrimSpace(string(score)))
	return nil
}

// ceiling checks that the group above the leaf has the host's limits.
func (v *viewer) ceiling() error {
	c := cgroup.CeilingOf(v.Plan)
	if c == nil {
		return nil
	}
	group, err := cgroup.Open(c.Path)
	if err != nil {
		return err
	}
	held, err := group.Held()
	if err != nil {
		return err
	}
	v.limits("ceiling", c.Memory, c.PIDs, c.CPUQuota, held)
	return nil
}

// limits checks the limits that a jail's group has, and the group above it.
func (v *viewer) limits(layer string, memory, pids, cpu int64, h cgroup.Held) {
	v.limit(layer, "memory", wholePages(memory), h.Memory, "bytes")
	v.limit(layer, "pids", pids, h.PIDs, "tasks")
	v.limit(layer, "cpu quota", cpu, h.CPUQuota, "µs")
}

func (v *viewer) limit(layer, what string, want, got int64, unit string) {
	v.is(layer, what, limitText(want, unit), limitText(got, unit))
}

// wholePages returns a memory limit in bytes as the kernel rounds it, to whole pages.
func wholePages(bytes int64) int64 {
	if bytes > 0 {
		bytes -= bytes % int64(os.Getpagesize())
	}
	return bytes
}

func (v *viewer) held(h cgroup.Held) {
	c := v.Plan.Cgroup
	v.limits("control group", c.Memory, c.PIDs, c.CPUQuota, h)
	v.limit("control group", "memory and swap", wholePages(c.Memory), h.Swap, "bytes")
	if c.CPUQuota > 0 {
		v.limit("control group", "cpu period", int64(c.CPUPeriod), h.CPUPeriod, "µs")
	}
	v.disks("disk reads", c.IORead, h.Read)
	v.disks("disk writes", c.IOWrite, h.Write)
	if v.Plan.IDs.User {
		// An ordinary user cannot load such a program or write such a rule: nodev alone keeps other
		// device nodes from being opened.
		return
	}
	var want []string
	for _, d := range v.Plan.Devices {
		number := jail.DeviceNumbers[d]
		want = append(want, fmt.Sprintf("c %d:%d rw", number[0], number[1]))
	}
	for _, m := range v.Plan.Mounts {
		if m.Kind == jail.MountPTS {
			want = append(want, "c 5:2 rw", "c 136:* rw")
		}
	}
	slices.Sort(want)
	// The rules are a BPF program, whose content no file shows.
	if h.Devices == nil {
		v.findings = append(v.findings, Finding{Layer: "control group", What: "devices",
			Answer: Unreadable, Want: strings.Join(want, ", ")})
		return
	}
	v.is("control group", "devices", strings.Join(want, ", "), strings.Join(h.Devices, ", "))
}

// disks checks the bound of each bounded disk. The plan does not say which disks a run uses.
func (v *viewer) disks(what string, want int64, got map[string]int64) {
	text := limitText(want, "bytes a second")
	var others []string
	for disk, n := range got {
		if n != want {
			others = append(others, disk+" "+limitText(n, "bytes a second"))
		}
	}
	slices.Sort(others)
	if len(others) > 0 {
		v.differs("control group", what, text, strings.Join(others, ", "))
		return
	}
	v.is("control group", what, text, text)
}

func limitText(n int64, unit string) string {
	// 0 is no limit in a plan.
	if n <= 0 {
		return "no limit"
	}
	return fmt.Sprintf("%d %s", n, unit)
}

// rlimitNames maps the plan's names of limits to those of /proc/PID/limits.
var rlimitNames = map[string]string{"core": "Max core file size",
	"memlock": "Max locked memory", "nofile": "Max open files",
	"fsize": "Max file size", "cpu": "Max cpu time", "nproc": "Max processes",
	"stack": "Max stack size", "nice": "Max nice priority", "rtprio": "Max realtime priority",
	"msgqueue": "Max msgqueue size", "sigpending": "Max pending signals"}

// rlimits checks that soft and hard limits are the plan's, or lower if the host's hard limit is
// lower.
func (v *viewer) rlimits() error {
	text, err := os.ReadFile(proc(v.PID, "limits"))
	if err != nil {
		return err
	}
	for _, r := range v.Plan.Rlimits {
		want, got := strconv.FormatUint(r.Value, 10)+" at most", "not shown"
		for line := range strings.Lines(string(text)) {
			values, ok := strings.CutPrefix(line, rlimitNames[r.Name]+" ")
			if f := strings.Fields(values); ok && len(f) >= 2 {
				got = f[0] + ", and at most " + f[1]
				soft, softErr := strconv.ParseUint(f[0], 10, 64)
				hard, hardErr := strconv.ParseUint(f[1], 10, 64)
				if softErr == nil && hardErr == nil && soft <= r.Value && hard <= r.Value {
					got = want
				}
			}
		}
		v.is("rlimits", r.Name, want, got)
	}
	return nil
}
