package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
)

// noLimit is the value of a limit that is not set.
const noLimit = -1

// Held are the limits that the kernel holds on a leaf now.
type Held struct {
	// Memory is in bytes.
	Memory int64
	// Swap is in bytes of memory and swap together.
	Swap int64
	// PIDs is in tasks.
	PIDs int64
	// CPUQuota is in microseconds per period.
	CPUQuota int64
	// CPUPeriod is in microseconds.
	CPUPeriod int64
	// Read and Write are in bytes per second, for each bounded disk by its device number.
	Read, Write map[string]int64
	// Devices lists the device rules of the devices controller, sorted. nil if the rules are a BPF
	// program, which no file shows.
	Devices []string
}

// Held reads the leaf's limits.
func (l *Leaf) Held() (Held, error) {
	var h Held
	read := []struct {
		controller, v1, v2 string
		to                 *int64
	}{
		{"memory", "memory.limit_in_bytes", "memory.max", &h.Memory},
		{"memory", "memory.memsw.limit_in_bytes", "memory.swap.max", &h.Swap},
		{"pids", "pids.max", "pids.max", &h.PIDs},
		{"cpu", "cpu.cfs_quota_us", "", &h.CPUQuota},
		{"cpu", "cpu.cfs_period_us", "", &h.CPUPeriod},
	}
	var errs []error
	for _, r := range read {
		name := r.v1
		if l.layout == V2 {
			name = r.v2
		}
		if name == "" {
			continue
		}
		words, err := l.words(r.controller, name)
		if err == nil {
			*r.to, err = limitOf(words[0])
		}
		errs = append(errs, err)
	}
	if l.layout == V2 {
		errs = append(errs, l.heldV2(&h), l.heldDisks("io", "io.max", "rbps=", &h.Read),
			l.heldDisks("io", "io.max", "wbps=", &h.Write))
	} else {
		errs = append(errs, l.heldDevices(&h), l.heldDisks("blkio", readV1, "", &h.Read),
			l.heldDisks("blkio", writeV1, "", &h.Write))
	}
	if err := errors.Join(errs...); err != nil {
		return Held{}, named(l.path, err)
	}
	return h, nil
}

func (l *Leaf) heldV2(h *Held) error {
	if h.Memory != noLimit && h.Swap != noLimit {
		h.Swap += h.Memory
	}
	words, err := l.words("cpu", "cpu.max")
	if err != nil || len(words) != 2 {
		return errors.Join(err, fs.ErrInvalid)
	}
	if h.CPUQuota, err = limitOf(words[0]); err != nil {
		return err
	}
	h.CPUPeriod, err = limitOf(words[1])
	return err
}

// heldDisks reads the values that begin with key. A kernel that cannot bound disks has no such
// file.
func (l *Leaf) heldDisks(controller, name, key string, to *map[string]int64) error {
	text, err := os.ReadFile(l.file(controller, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	*to = map[string]int64{}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		for _, w := range words[min(1, len(words)):] {
			value, ok := strings.CutPrefix(w, key)
			if !ok {
				continue
			}
			n, err := limitOf(value)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if n != noLimit {
				(*to)[words[0]] = n
			}
		}
	}
	return nil
}

func (l *Leaf) heldDevices(h *Held) error {
	text, err := os.ReadFile(l.file("devices", "devices.list"))
	if err != nil {
		return err
	}
	h.Devices = []string{}
	if s := strings.TrimSpace(string(text)); s != "" {
		h.Devices = strings.Split(s, "\n")
	}
	slices.Sort(h.Devices)
	return nil
}

func (l *Leaf) words(controller, name string) ([]string, error) {
	words, err := wordsOf(l.file(controller, name))
	if err == nil && len(words) == 0 {
		err = fmt.Errorf("%s is empty", name)
	}
	return words, err
}

// limitOf parses a limit. cgroup v1 writes "no limit" as a number that no machine reaches or as -1,
// cgroup v2 as "max".
func limitOf(word string) (int64, error) {
	if word == "max" {
		return noLimit, nil
	}
	n, err := strconv.ParseInt(word, 10, 64)
	if err != nil {
		return 0, err
	}
	// Rounded down to a page of any size.
	if n < 0 || n >= math.MaxInt64/(64<<10)*(64<<10) {
		return noLimit, nil
	}
	return n, nil
}
