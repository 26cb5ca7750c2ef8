package runc

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/internal/sys"
	"github.com/jail-sandbox/jail/jail/machine"
	"github.com/jail-sandbox/jail/jail/tick"
)

// refreshEvery is the interval at which changing files are written.
const refreshEvery = time.Second

// shown holds the files that show the machine to the jail's programs (package machine).
type shown struct {
	machine machine.Machine
	// The files that change, open for writing.
	files map[string]*os.File
	// Open files that keep the mount points in the narrowed proc (sys.ShowIn).
	names []*os.File
}

func isMachine(m jail.Mount) bool { return m.Kind == jail.MountMachine }

// pageAbove rounds size up to whole pages, which a file takes in a tmpfs.
func pageAbove(size int) int {
	page := os.Getpagesize()
	return (size + page - 1) / page * page
}

// machineOf returns the machine of a plan, and the host's uptime.
func machineOf(p jail.Plan) (machine.Machine, time.Duration, error) {
	up, err := uptime()
	if err != nil {
		return machine.Machine{}, 0, err
	}
	memory, err := memoryOf("/proc/meminfo")
	if err != nil {
		return machine.Machine{}, 0, err
	}
	processor, err := firstProcessor("/proc/cpuinfo")
	if err != nil {
		return machine.Machine{}, 0, err
	}
	return machine.New(
		machine.Limits{Memory: p.ToolMemory(), Quota: p.Cgroup.CPUQuota,
			Period: p.Cgroup.CPUPeriod},
		machine.Host{Processors: runtime.NumCPU(), Processor: processor, Memory: memory,
			Boot: time.Now().Add(-up)}), up, nil
}

// uptime returns the host's uptime (proc_uptime(5)).
func uptime() (time.Duration, error) {
	text, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return 0, err
	}
	seconds, _, _ := strings.Cut(string(text), " ")
	return time.ParseDuration(seconds + "s")
}

// head returns the first 4096 bytes of a file in /proc. The kernel generates the text as it is
// read, and all of it can take milliseconds on a large machine.
func head(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text := make([]byte, 4096)
	n, err := f.Read(text)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	return string(text[:n]), nil
}

// memoryOf returns MemTotal of a meminfo file, in bytes.
func memoryOf(path string) (int64, error) {
	text, err := head(path)
	if err != nil {
		return 0, err
	}
	if fields := strings.Fields(text); len(fields) > 2 && fields[0] == "MemTotal:" &&
		fields[2] == "kB" {
		kib, err := strconv.ParseInt(fields[1], 10, 64)
		return kib << 10, err
	}
	return 0, fmt.Errorf("%s: it does not begin with MemTotal", path)
}

// firstProcessor returns the first processor's lines of a cpuinfo file.
func firstProcessor(path string) (string, error) {
	text, err := head(path)
	first, _, _ := strings.Cut(text, "\n\n")
	return first, err
}

// machineFiles returns the texts of the machine's files by path, or nil if the plan has no such
// mount.
func machineFiles(p jail.Plan) (map[string]string, error) {
	if !slices.ContainsFunc(p.Mounts, isMachine) {
		return nil, nil
	}
	m, up, err := machineOf(p)
	if err != nil {
		return nil, err
	}
	return m.Files(machine.Reading{Uptime: up}), nil
}

// writeMachine writes the files below root, in jail.MachineDir.
func writeMachine(root string, files map[string]string) error {
	var all []jail.File
	for name, text := range files {
		all = append(all, jail.File{Path: filepath.Join(jail.MachineDir, name), Text: text})
	}
	return writeFiles(root, all)
}

// showMachine mounts the files of the machine in the jail, in which no tool runs yet. If some are
// in the jail's proc, it then narrows the proc to processes and these files, which needed the
// proc's own names as mount points.
func (j *Jail) showMachine() error {
	if !slices.ContainsFunc(j.plan.Mounts, isMachine) {
		return nil
	}
	inProc := j.plan.MachineInProc()
	m, _, err := machineOf(j.plan)
	if err != nil {
		return err
	}
	s := &shown{machine: m, files: map[string]*os.File{}}
	from := func(name string) string { return filepath.Join(j.root, jail.MachineDir, name) }
	for name := range m.Changing(machine.Reading{}) {
		if s.files[name], err = os.OpenFile(from(name), os.O_WRONLY, 0); err != nil {
			return err
		}
	}
	if j.plan.KernelInside() {
		// The outer layer has mounted them.
		j.shown = s
		return nil
	}
	var trees []sys.Shown
	for _, m := range j.plan.Mounts {
		if !isMachine(m) {
			continue
		}
		source, err := sys.OpenTarget(filepath.Join(j.root, m.MachineFile()))
		if err != nil {
			return err
		}
		tree, err := sys.CloneTree(source)
		source.Close()
		if err != nil {
			return err
		}
		defer tree.Close()
		trees = append(trees, sys.Shown{Tree: tree, Target: m.Target})
	}
	s.names, err = sys.ShowIn(j.PID, trees, inProc)
	if !inProc {
		// All changing files are in proc.
		s.close()
		return err
	}
	j.shown = s
	return err
}

// Refresh rewrites the changing files of the machine each second, until stop is closed. It returns
// at once if the jail has no such files.
func (j *Jail) Refresh(stop <-chan struct{}) error {
	s := j.shown
	if s == nil {
		return nil
	}
	defer s.close()
	var last machine.Reading
	var used func() time.Duration
	for range tick.Each(stop, refreshEvery) {
		if used == nil {
			used = j.usage()
		}
		now := machine.Reading{Used: used()}
		var err error
		if now.Uptime, err = uptime(); err != nil {
			return err
		}
		if last.Uptime > 0 {
			now.Load = last.Load.Next(now.Used-last.Used, now.Uptime-last.Uptime)
		}
		for name, text := range s.machine.Changing(now) {
			if err := rewrite(s.files[name], text); err != nil {
				return err
			}
		}
		last = now
	}
	return nil
}

// rewrite replaces the content of f by text, in place, since programs may have f open.
func rewrite(f *os.File, text string) error {
	if _, err := f.WriteAt([]byte(text), 0); err != nil {
		return err
	}
	return f.Truncate(int64(len(text)))
}

func (s *shown) close() {
	for _, f := range s.files {
		f.Close()
	}
	for _, f := range s.names {
		f.Close()
	}
}

// usage returns a function that reads the CPU time of the jail from its cgroup, v1 or v2. It
// returns 0 if that fails.
func (j *Jail) usage() func() time.Duration {
	groups := j.held.groups()
	if groups == nil {
		return func() time.Duration { return 0 }
	}
	return func() time.Duration { return usageOf(groups) }
}

func usageOf(groups map[string]string) time.Duration {
	parse := func(number string, unit time.Duration) time.Duration {
		n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
		if err != nil {
			return 0
		}
		return time.Duration(n) * unit
	}
	if dir, ok := groups["cpuacct"]; ok {
		text, _ := os.ReadFile(filepath.Join(dir, "cpuacct.usage"))
		return parse(string(text), time.Nanosecond)
	}
	text, _ := os.ReadFile(filepath.Join(groups[""], "cpu.stat"))
	for line := range strings.Lines(string(text)) {
		if n, ok := strings.CutPrefix(line, "usage_usec "); ok {
			return parse(n, time.Microsecond)
		}
	}
	return 0
}
