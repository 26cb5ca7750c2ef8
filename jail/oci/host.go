package oci

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/policy"
)

// deviceNames are the device nodes of every container.
var deviceNames = []string{"full", "null", "random", "tty", "urandom", "zero"}

// devices returns an error for other device nodes. The device rules come from the plan.
func (g *granter) devices() error {
	l := g.plan.Spec.Linux
	for _, d := range l.Devices {
		name, in := strings.CutPrefix(d.Path, devDir+"/")
		number, ok := jail.DeviceNumbers[name]
		if !in || !ok || d.Type != "c" || d.Major != number[0] || d.Minor != number[1] {
			return fmt.Errorf("device %s of config.json (%s %d:%d): a container has %s only", d.Path,
				d.Type, d.Major, d.Minor, strings.Join(deviceNames, ", "))
		}
	}
	l.Devices = nil
	return nil
}

// maskedPaths and readonlyPaths are the defaults of container engines. They are added to those of
// config.json.
var (
	maskedPaths = []string{"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore",
		"/proc/keys", "/proc/kmsg", "/proc/latency_stats", "/proc/sched_debug", "/proc/scsi",
		"/proc/timer_list", "/proc/timer_stats", "/sys/devices/virtual/powercap", "/sys/firmware"}
	readonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys",
		"/proc/sysrq-trigger"}
)

func (g *granter) paths() error {
	l := g.plan.Spec.Linux
	l.MaskedPaths = joined(l.MaskedPaths, maskedPaths)
	l.ReadonlyPaths = joined(l.ReadonlyPaths, readonlyPaths)
	return nil
}

func joined(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// bounded are the cgroup v2 files whose values the policy limits.
var bounded = []string{"memory.max", "memory.swap.max", "pids.max", "cpu.max"}

// In microseconds. The kernel takes no smaller quota.
const cpuPeriod, leastQuota = 100_000, 1000

// resources limits the resources of config.json to the policy's limits.
func (g *granter) resources() error {
	linux, limits := g.plan.Spec.Linux, g.pol.Limits
	r := specs.LinuxResources{}
	if linux.Resources != nil {
		r = *linux.Resources
	}
	for _, name := range bounded {
		if _, ok := r.Unified[name]; ok {
			return fmt.Errorf("linux.resources.unified of config.json: %s has a key of its own, which "+
				"jail bounds", name)
		}
	}
	if r.Network != nil && (r.Network.ClassID != nil || len(r.Network.Priorities) > 0) {
		return errors.New("linux.resources.network of config.json is not supported")
	}
	r.Devices, r.Network = nil, nil
	if limits.Memory != policy.Unlimited {
		m := specs.LinuxMemory{}
		if r.Memory != nil {
			m = *r.Memory
		}
		m.Limit = least(m.Limit, limits.Memory)
		// Memory and swap together: no swap.
		swap := *m.Limit
		m.Swap = &swap
		m.DisableOOMKiller = nil
		r.Memory = &m
	}
	if limits.PIDs != policy.Unlimited {
		p := specs.LinuxPids{}
		if r.Pids != nil {
			p = *r.Pids
		}
		p.Limit = least(p.Limit, limits.PIDs)
		r.Pids = &p
	}
	if limits.CPUs != policy.Unlimited {
		c := specs.LinuxCPU{}
		if r.CPU != nil {
			c = *r.CPU
		}
		period := uint64(cpuPeriod)
		if c.Period != nil && *c.Period > 0 {
			period = *c.Period
		}
		c.Period = &period
		c.Quota = least(c.Quota, max(limits.CPUs*int64(period)/1000, leastQuota))
		c.RealtimePeriod, c.RealtimeRuntime = nil, nil
		r.CPU = &c
	}
	linux.Resources = &r
	return nil
}

// MemoryLimit returns the container's memory limit in bytes; 0 is no limit.
func (p Plan) MemoryLimit() int64 {
	if r := p.Spec.Linux.Resources; r != nil && r.Memory != nil && r.Memory.Limit != nil {
		return max(*r.Memory.Limit, 0)
	}
	return 0
}

// least returns the lower of asked and bound. asked is no limit if it is nil or not positive.
func least(asked *int64, bound int64) *int64 {
	if asked != nil && *asked > 0 {
		bound = min(*asked, bound)
	}
	return &bound
}
