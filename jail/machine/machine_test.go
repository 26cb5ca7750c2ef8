package machine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/jail/machine"
)

var host = machine.Host{Processors: 4, Memory: 8 << 30, Boot: time.Unix(1000, 0),
	Processor: "processor\t: 0\nmodel name\t: X\nsiblings\t: 4\ncore id\t\t: 3\n"}

// TestProcessors: a jail has as many processors as its limit lets it keep busy, and never more than
// the host.
func TestProcessors(t *testing.T) {
	for _, c := range []struct {
		quota int64
		want  int
	}{{0, 4}, {1000, 1}, {100_000, 1}, {100_001, 2}, {250_000, 3}, {400_000, 4}, {900_000, 4}} {
		m := machine.New(machine.Limits{Memory: -1, Quota: c.quota, Period: 100_000}, host)
		files := m.Files(machine.Reading{Uptime: time.Hour})
		if n := strings.Count(files["cpuinfo"], "processor\t: "); n != c.want {
			t.Errorf("quota %d: %d processors in cpuinfo, want %d", c.quota, n, c.want)
		}
		if n := strings.Count(files["stat"], "\ncpu"); n != c.want {
			t.Errorf("quota %d: %d processors in stat, want %d", c.quota, n, c.want)
		}
		dirs := 0
		for name := range files {
			if strings.HasPrefix(name, "sys/devices/system/cpu/cpu") {
				dirs++
			}
		}
		if dirs != c.want {
			t.Errorf("quota %d: %d processors in sys, want %d", c.quota, dirs, c.want)
		}
	}
}

// TestFiles compares the text of every file with what it is to be.
func TestFiles(t *testing.T) {
	limits := machine.Limits{Memory: 64 << 20, Quota: 150_000, Period: 100_000}
	files := machine.New(limits, host).Files(machine.Reading{Uptime: 10 * time.Second,
		Used: 4 * time.Second, Load: machine.Load{1, 0.5, 0.25}})
	one := "model name\t: X\nsiblings\t: 2\ncore id\t\t: "
	checkFiles(t, files, "MemTotal:          65536 kB\nMemFree:", map[string]string{
		"cpuinfo": "processor\t: 0\n" + one + "0\n\nprocessor\t: 1\n" + one + "1\n\n",
		"stat": "cpu  400 0 0 1600 0 0 0 0 0 0\ncpu0 200 0 0 800 0 0 0 0 0 0\n" +
			"cpu1 200 0 0 800 0 0 0 0 0 0\nintr 0\nctxt 0\nbtime 1000\nprocesses 1\n" +
			"procs_running 1\nprocs_blocked 0\n",
		"loadavg":                                    "1.00 0.50 0.25 1/1 1\n",
		"uptime":                                     "10.00 16.00\n",
		"sys/devices/system/cpu/online":              "0-1\n",
		"sys/fs/cgroup/memory.max":                   "67108864\n",
		"sys/fs/cgroup/cpu.max":                      "150000 100000\n",
		"sys/fs/cgroup/cpu/cpu.cfs_quota_us":         "150000\n",
		"sys/fs/cgroup/cpu/cpu.cfs_period_us":        "100000\n",
		"sys/fs/cgroup/memory/memory.limit_in_bytes": "67108864\n",
	})
}

// checkFiles compares files with their texts, and the beginning of meminfo.
func checkFiles(t *testing.T, files map[string]string, meminfo string, want map[string]string) {
	t.Helper()
	for name, text := range want {
		if files[name] != text {
			t.Errorf("%s:\n%s\nwant\n%s", name, files[name], text)
		}
	}
	if !strings.HasPrefix(files["meminfo"], meminfo) {
		t.Errorf("meminfo:\n%s", files["meminfo"])
	}
}

// TestNoLimits: without limits a jail sees what the host has.
func TestNoLimits(t *testing.T) {
	files := machine.New(machine.Limits{Memory: -1}, host).Files(machine.Reading{})
	checkFiles(t, files, "MemTotal:        8388608 kB\n", map[string]string{
		"sys/fs/cgroup/memory.max":                   "max\n",
		"sys/fs/cgroup/cpu.max":                      "max 100000\n",
		"sys/fs/cgroup/cpu/cpu.cfs_quota_us":         "-1\n",
		"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
		"sys/devices/system/cpu/present":             "0-3\n",
	})
}

// TestLoad: the load comes close to the number of busy processors, the mean of the last minute
// first, and falls again.
func TestLoad(t *testing.T) {
	var l machine.Load
	for range 120 {
		l = l.Next(2*time.Second, time.Second)
	}
	if l[0] < 1.5 || l[0] > 2 || l[1] >= l[0] || l[2] >= l[1] || l[2] <= 0 {
		t.Errorf("after two busy minutes: %v", l)
	}
	busy := l
	for range 120 {
		l = l.Next(0, time.Second)
	}
	if l[0] > 0.5 || l[0] >= busy[0] || l.Next(time.Second, 0) != l {
		t.Errorf("after two idle minutes: %v", l)
	}
}
