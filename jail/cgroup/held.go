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

// NoLimit is the value of a limit that is not set.
const NoLimit = -1

// Held are the limits that the kernel holds on a leaf now, whatever was asked for.
type Held struct {
	Memory    int64 // bytes
	Swap      int64 // bytes of memory and swap together
	PIDs      int64 // tasks
	CPUQuota  int64 // microseconds in each period
	CPUPeriod int64 // microseconds
	// Read and Write are bytes a second, for each disk that has a bound, by its number.
	Read, Write map[string]int64
	// Devices that may be opened, as the devices controller lists them, sorted. nil where the rules are a program, which no file shows.
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
		errs = append(errs, l.heldV2(&h), l.heldDisks("io", "io.max", "rbps=", &h.Read), l.heldDisks("io", "io.max", "wbps=", &h.Write))
	} else {
		errs = append(errs, l.heldDevices(&h), l.heldDisks("blkio", readV1, "", &h.Read), l.heldDisks("blkio", writeV1, "", &h.Write))
	}
	if err := errors.Join(errs...); err != nil {
		return Held{}, fmt.Errorf("control group %s: %w", l.path, err)
	}
	return h, nil
}

func (l *Leaf) heldV2(h *Held) error {
	if h.Memory != NoLimit && h.Swap != NoLimit {
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

// heldDisks reads the values that begin with key. A host whose kernel cannot bound its disks has no such file.
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
			if n != NoLimit {
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
	text, err := os.ReadFile(l.file(controller, name))
	if err != nil {
		return nil, err
	}
	words := strings.Fields(string(text))
	if len(words) == 0 {
		return nil, fmt.Errorf("%s is empty", name)
	}
	return words, nil
}

// limitOf reads a limit. The first kernel interface says "no limit" with a number that no machine reaches, or with -1; the second with a word.
func limitOf(word string) (int64, error) {
	if word == "max" {
		return NoLimit, nil
	}
	n, err := strconv.ParseInt(word, 10, 64)
	if err != nil {
		return 0, err
	}
	if n < 0 || n >= math.MaxInt64/(64<<10)*(64<<10) { // rounded down to a page, of whatever size
		return NoLimit, nil
	}
	return n, nil
}
