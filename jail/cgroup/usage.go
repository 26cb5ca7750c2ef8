package cgroup

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Usage is the resource usage of a leaf.
type Usage struct {
	CPU time.Duration
	// MemoryPeak is in bytes.
	MemoryPeak int64
	// PIDsPeak counts tasks; 0 if the kernel does not count them.
	PIDsPeak int64
	// OOMKills counts processes that the kernel killed because memory ran out.
	OOMKills int64
	// PIDsDenied counts tasks that the kernel refused.
	PIDsDenied int64
	// Throttled is the time for which the quota kept the leaf from its CPUs, summed over CPUs.
	Throttled time.Duration
	// IORead is in bytes requested from disks; 0 if the kernel does not count them.
	IORead int64
	// IOWrite is in bytes.
	IOWrite int64
}

// A counter is a file of a leaf with some of its usage (cgroups(7), and
// Documentation/admin-guide/cgroup-v1 and cgroup-v2.rst of Linux).
type counter struct {
	controller, name string
	add              func(u *Usage, text string)
}

var countersV1 = []counter{
	{"cpuacct", "cpuacct.usage",
		func(u *Usage, text string) { u.CPU = time.Duration(numberOf(text)) }},
	{"cpu", "cpu.stat", func(u *Usage, text string) {
		u.Throttled = time.Duration(fieldOf(text, "throttled_time"))
	}},
	{"memory", "memory.max_usage_in_bytes",
		func(u *Usage, text string) { u.MemoryPeak = numberOf(text) }},
	{"memory", "memory.oom_control",
		func(u *Usage, text string) { u.OOMKills = fieldOf(text, "oom_kill") }},
	pidsPeak, pidsDenied,
	{"blkio", servedV1, func(u *Usage, text string) { u.IORead, u.IOWrite = served(text) }},
}

var countersV2 = []counter{
	{"cpu", "cpu.stat", func(u *Usage, text string) {
		u.CPU = time.Duration(fieldOf(text, "usage_usec")) * time.Microsecond
		u.Throttled = time.Duration(fieldOf(text, "throttled_usec")) * time.Microsecond
	}},
	{"memory", "memory.peak", func(u *Usage, text string) { u.MemoryPeak = numberOf(text) }},
	{"memory", "memory.events",
		func(u *Usage, text string) { u.OOMKills = fieldOf(text, "oom_kill") }},
	pidsPeak, pidsDenied,
	{"io", "io.stat", func(u *Usage, text string) {
		u.IORead, u.IOWrite = sumOf(text, "rbytes="), sumOf(text, "wbytes=")
	}},
}

var (
	pidsPeak   = counter{"pids", "pids.peak", func(u *Usage, t string) { u.PIDsPeak = numberOf(t) }}
	pidsDenied = counter{"pids", "pids.events",
		func(u *Usage, t string) { u.PIDsDenied = fieldOf(t, "max") }}
)

// meter is a leaf's counters, kept open from the first reading on. The files of a kernel without a
// counter are missing.
type meter struct {
	mu     sync.Mutex
	opened bool
	files  map[string]*os.File
	buf    []byte
}

// Usage reads the leaf's counters. They stay readable after its last process has ended. The usage
// of a leaf that was removed is zero.
func (l *Leaf) Usage() (Usage, error) {
	m := &l.meter
	m.mu.Lock()
	defer m.mu.Unlock()
	counters := countersV1
	if l.layout == V2 {
		counters = countersV2
	}
	if !m.opened {
		if err := l.openMeter(counters); err != nil {
			return Usage{}, err
		}
	}
	var u Usage
	for _, c := range counters {
		f := m.files[c.name]
		if f == nil {
			continue
		}
		text, err := m.read(f)
		if errors.Is(err, syscall.ENODEV) {
			// The leaf is gone.
			continue
		}
		if err != nil {
			return Usage{}, fmt.Errorf("control group %s: %w", l.path, err)
		}
		c.add(&u, text)
	}
	return u, nil
}

// openMeter opens the counters. A kernel may lack some, and a leaf that is gone has none.
func (l *Leaf) openMeter(counters []counter) error {
	files := map[string]*os.File{}
	for _, c := range counters {
		name := l.file(c.controller, c.name)
		// Not os.Open, which has the runtime's poller watch the file, and that costs more than to
		// read it.
		fd, err := syscall.Open(name, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
		if err == nil {
			files[c.name] = os.NewFile(uintptr(fd), name)
		} else if !errors.Is(err, fs.ErrNotExist) {
			for _, f := range files {
				f.Close()
			}
			return &fs.PathError{Op: "open", Path: name, Err: err}
		}
	}
	l.meter.files, l.meter.opened = files, true
	return nil
}

// read reads a file from its beginning. m.mu is held.
func (m *meter) read(f *os.File) (string, error) {
	if m.buf == nil {
		m.buf = make([]byte, 4<<10)
	}
	for n := 0; ; {
		got, err := f.ReadAt(m.buf[n:], int64(n))
		n += got
		if errors.Is(err, io.EOF) {
			return string(m.buf[:n]), nil
		}
		if err != nil {
			return "", err
		}
		m.buf = append(m.buf, make([]byte, len(m.buf))...)
	}
}

// Close closes what Usage has opened. The control group stays.
func (l *Leaf) Close() {
	l.meter.mu.Lock()
	defer l.meter.mu.Unlock()
	for _, f := range l.meter.files {
		f.Close()
	}
	l.meter.files, l.meter.opened = nil, false
}

// numberOf parses a file with one number; 0 if it has none.
func numberOf(text string) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// fieldOf returns the number behind key at the beginning of a line; 0 if there is none.
func fieldOf(text, key string) int64 {
	for line := range strings.Lines(text) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseInt(v, 10, 64); k == key && err == nil {
			return n
		}
	}
	return 0
}

// sumOf returns the sum of the numbers behind prefix in all lines.
func sumOf(text, prefix string) (sum int64) {
	for word := range strings.FieldsSeq(text) {
		if v, ok := strings.CutPrefix(word, prefix); ok {
			sum += numberOf(v)
		}
	}
	return sum
}

// served returns the bytes that disks read and wrote. Lines are "8:0 Read 4096", and at the end
// "Total 4096".
func served(text string) (read, written int64) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) != 3 {
			continue
		}
		switch f[1] {
		case "Read":
			read += numberOf(f[2])
		case "Write":
			written += numberOf(f[2])
		}
	}
	return read, written
}
