// Package machine generates the files of /proc and /sys from which a jail's programs learn the
// number of processors and the size of memory. They show the limits of the jail, at most what the
// host has, and no activity of the host. The package only computes.
package machine

import (
	"cmp"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"
)

// Limits are the limits of a jail.
type Limits struct {
	// In bytes; negative without a limit.
	Memory int64
	// CPU time in microseconds per period; 0 without a limit.
	Quota int64
	// Microseconds.
	Period uint64
}

// A Host describes the host.
type Host struct {
	// Number of processors that may be used.
	Processors int
	// The first processor's lines of /proc/cpuinfo.
	Processor string
	// Bytes.
	Memory int64
	// The time of boot.
	Boot time.Time
}

// A Machine is the machine as the programs of a jail see it.
type Machine struct {
	limits Limits
	host   Host
	// Number of processors, at least 1.
	processors int
	memory     int64 // bytes
}

// New returns the machine that a jail with these limits sees on the host.
func New(l Limits, h Host) Machine {
	m := Machine{limits: l, host: h, processors: max(h.Processors, 1), memory: h.Memory}
	if l.Quota > 0 && l.Period > 0 {
		whole := (l.Quota + int64(l.Period) - 1) / int64(l.Period)
		m.processors = int(min(int64(m.processors), max(whole, 1)))
	}
	if l.Memory >= 0 {
		m.memory = min(m.memory, l.Memory)
	}
	return m
}

// A Reading holds the values of a machine that change while the jail lives.
type Reading struct {
	// Uptime of the host.
	Uptime time.Duration
	// CPU time that the jail has used.
	Used time.Duration
	Load Load
}

// Load is the mean number of processors that the jail has kept busy in the last 1, 5 and 15
// minutes.
type Load [3]float64

// Files returns the texts of all files by path. Paths that start with "sys/" are below /, the
// others below /proc.
func (m Machine) Files(r Reading) map[string]string {
	files := map[string]string{"cpuinfo": m.cpuinfo(), "meminfo": m.meminfo()}
	maps.Copy(files, m.Changing(r))
	last := ""
	if m.processors > 1 {
		last = "-" + strconv.Itoa(m.processors-1)
	}
	const cpu = "sys/devices/system/cpu/"
	for _, name := range []string{"online", "possible", "present"} {
		files[cpu+name] = "0" + last + "\n"
	}
	for n := range m.processors {
		files[cpu+"cpu"+strconv.Itoa(n)+"/online"] = "1\n"
	}
	for name, text := range m.group() {
		files["sys/fs/cgroup/"+name] = text
	}
	return files
}

// group returns the files of /sys/fs/cgroup that show the limits, of cgroup v1 and v2. Programs
// read those of the version that /proc/self/cgroup names.
func (m Machine) group() map[string]string {
	memory, quota, old := "max", "max", int64(-1)
	// This is what the kernel shows for a group without a limit.
	bytes := int64(1<<63 - 1<<12)
	if m.limits.Memory >= 0 {
		bytes = m.limits.Memory
		memory = strconv.FormatInt(bytes, 10)
	}
	period := cmp.Or(m.limits.Period, 100_000)
	if m.limits.Quota > 0 {
		old = m.limits.Quota
		quota = strconv.FormatInt(old, 10)
	}
	return map[string]string{
		"memory.max":  memory + "\n",
		"memory.high": "max\n",
		"cpu.max":     fmt.Sprintf("%s %d\n", quota, period),

		"memory/memory.limit_in_bytes":      fmt.Sprintf("%d\n", bytes),
		"memory/memory.soft_limit_in_bytes": fmt.Sprintf("%d\n", int64(1<<63-1<<12)),
		"cpu/cpu.cfs_quota_us":              fmt.Sprintf("%d\n", old),
		"cpu/cpu.cfs_period_us":             fmt.Sprintf("%d\n", period),
	}
}

// Changing returns the texts of the files that must be rewritten while the jail lives.
func (m Machine) Changing(r Reading) map[string]string {
	return map[string]string{"stat": m.stat(r), "loadavg": m.loadavg(r), "uptime": m.uptime(r)}
}

// ticks returns d in hundredths of a second (USER_HZ, proc_stat(5)).
func ticks(d time.Duration) int64 { return int64(d / (10 * time.Millisecond)) }

// idle returns the idle time since boot, summed over all processors.
func (m Machine) idle(r Reading) time.Duration {
	return max(time.Duration(m.processors)*r.Uptime-r.Used, 0)
}

func (m Machine) stat(r Reading) string {
	var b strings.Builder
	line := func(name string, share time.Duration) {
		fmt.Fprintf(&b, "%s %d 0 0 %d 0 0 0 0 0 0\n", name, ticks(r.Used/share),
			ticks(m.idle(r)/share))
	}
	line("cpu ", 1)
	for n := range m.processors {
		line("cpu"+strconv.Itoa(n), time.Duration(m.processors))
	}
	fmt.Fprintf(&b, "intr 0\nctxt 0\nbtime %d\nprocesses 1\nprocs_running 1\nprocs_blocked 0\n",
		m.host.Boot.Unix())
	return b.String()
}

func (m Machine) loadavg(r Reading) string {
	return fmt.Sprintf("%.2f %.2f %.2f 1/1 1\n", r.Load[0], r.Load[1], r.Load[2])
}

func (m Machine) uptime(r Reading) string {
	return fmt.Sprintf("%.2f %.2f\n", float64(ticks(r.Uptime))/100, float64(ticks(m.idle(r)))/100)
}

// meminfo returns a meminfo in which all memory is free, as at the start.
func (m Machine) meminfo() string {
	var b strings.Builder
	for _, l := range []struct {
		name string
		kib  int64
	}{
		{"MemTotal", m.memory / 1024}, {"MemFree", m.memory / 1024},
		{"MemAvailable", m.memory / 1024},
		{"Buffers", 0}, {"Cached", 0}, {"SwapCached", 0}, {"Active", 0}, {"Inactive", 0},
		{"SwapTotal", 0}, {"SwapFree", 0}, {"Shmem", 0}, {"Slab", 0}, {"SReclaimable", 0},
	} {
		fmt.Fprintf(&b, "%-15s %8d kB\n", l.name+":", l.kib)
	}
	return b.String()
}

// cpuinfo returns the host's first processor once for each processor, with its number.
func (m Machine) cpuinfo() string {
	var b strings.Builder
	for n := range m.processors {
		for line := range strings.Lines(strings.TrimRight(m.host.Processor, "\n") + "\n") {
			key, _, ok := strings.Cut(line, ":")
			if !ok {
				b.WriteString(line)
				continue
			}
			switch strings.TrimSpace(key) {
			case "processor", "core id", "apicid", "initial apicid":
				fmt.Fprintf(&b, "%s: %d\n", key, n)
			case "siblings", "cpu cores":
				fmt.Fprintf(&b, "%s: %d\n", key, m.processors)
			default:
				b.WriteString(line)
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

// minutes are the periods of a Load.
var minutes = Load{1, 5, 15}

// Next returns the load after a further time d in which the jail has used the CPU time used.
func (l Load) Next(used, d time.Duration) Load {
	if d <= 0 {
		return l
	}
	busy := max(used.Seconds(), 0) / d.Seconds()
	for n, mean := range l {
		// The first term of an exponential mean.
		part := min(d.Minutes()/minutes[n], 1)
		l[n] = mean + (busy-mean)*part
	}
	return l
}
