package fetch_test

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// fetchCanary is the credential of every test of fetches. Nothing but the wire, the daemon and the
// proxy may ever hold it. Each process has one of its own: another run of the suite on this machine
// shows its own on purpose.
var fetchCanary = "c4n4ry-0f-" + rand.Text()

var canaryForms = sync.OnceValue(func() [][]byte {
	plain := hex.EncodeToString([]byte(fetchCanary))
	forms := [][]byte{[]byte(fetchCanary), []byte(plain), []byte(strings.ToUpper(plain)),
		[]byte(url.QueryEscape(fetchCanary))}
	// base64 of a text with something before it
	for lead := range 3 {
		whole := base64.StdEncoding.EncodeToString(append(make([]byte, lead), fetchCanary...))
		forms = append(forms, []byte(whole[4:len(whole)-4]))
	}
	return forms
})

// showsCanary looks for the credential as it is, and as base64, hexadecimal and in a URL, at any
// offset of the first.
func showsCanary(text []byte) bool {
	return slices.ContainsFunc(canaryForms(), func(f []byte) bool {
		return bytes.Contains(text, f)
	})
}

// filesWithCanary searches every file below a directory, but those named so.
func filesWithCanary(t *testing.T, dir string, but ...string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || slices.Contains(but, filepath.Base(path)) {
			return err
		}
		if showsCanary([]byte(filepath.Base(path))) {
			found = append(found, path)
		}
		if !d.Type().IsRegular() {
			return nil
		}
		shows, err := fileShowsCanary(path)
		if shows {
			found = append(found, path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return found
}

// fileShowsCanary reads what a file has but for its holes, of which an image of a file system is
// full.
func fileShowsCanary(path string) (bool, error) {
	const seekData, size, longest = 3, 1 << 20, 256 // lseek(2); bytes
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	text := make([]byte, size)
	// What lies across two pieces is in one of them.
	for at := int64(0); ; at += size - longest {
		if at, err = f.Seek(at, seekData); errors.Is(err, syscall.ENXIO) {
			return false, nil
		} else if err != nil {
			return false, err
		}
		n, err := io.ReadFull(f, text)
		if showsCanary(text[:n]) {
			return true, nil
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return false, nil
		} else if err != nil {
			return false, err
		}
	}
}

// A hunt is a search of the processes that this test has started.
type hunt struct {
	mu       sync.Mutex
	found    []string
	memories int // of the inside, searched
}

// processes looks at all of them: none may show the credential in its arguments or surroundings,
// and none that stands beside or within a jail may hold it in its memory.
func (h *hunt) processes() {
	parents, names := map[int]int{}, map[int]string{}
	paths, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is well-formed
	for _, p := range paths {
		text, err := os.ReadFile(p)
		open, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
		if err != nil || open < 0 || end < 0 {
			continue // it has ended
		}
		pid, _ := strconv.Atoi(strings.TrimSpace(string(text[:open])))
		if fields := strings.Fields(string(text[end+1:])); pid > 0 && len(fields) > 1 {
			parents[pid], _ = strconv.Atoi(fields[1])
			names[pid] = string(text[open+1 : end])
		}
	}
	for pid := range parents {
		ours, jailed := false, false
		for p := pid; p > 1 && !ours; p = parents[p] {
			ours = p == os.Getpid()
			jailed = jailed || names[p] == "jail-shim"
		}
		if !ours || pid == os.Getpid() {
			continue
		}
		for _, what := range []string{"cmdline", "environ"} {
			if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, what)); err == nil &&
				showsCanary(text) {
				h.add("%s of %s", what, names[pid])
			}
		}
		if !jailed {
			continue
		}
		searched, shows := memoryShowsCanary(pid)
		if shows {
			h.add("memory of %s", names[pid])
		}
		if searched {
			h.mu.Lock()
			h.memories++
			h.mu.Unlock()
		}
	}
}

func (h *hunt) add(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.found = append(h.found, fmt.Sprintf(format, args...))
}

// take returns what was found and of how many memories, and forgets it.
func (h *hunt) take() (found []string, memories int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	found, memories = h.found, h.memories
	h.found, h.memories = nil, 0
	return found, memories
}

// memoryShowsCanary reads every page that a process has. searched is false where it has ended.
func memoryShowsCanary(pid int) (searched, shows bool) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return false, false
	}
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return false, false
	}
	defer mem.Close()
	pages, err := os.Open(fmt.Sprintf("/proc/%d/pagemap", pid))
	if err != nil {
		return false, false
	}
	defer pages.Close()
	for line := range strings.Lines(string(maps)) {
		from, rest, _ := strings.Cut(line, "-")
		to, rest, _ := strings.Cut(rest, " ")
		start, err := strconv.ParseUint(from, 16, 64)
		end, err2 := strconv.ParseUint(to, 16, 64)
		if err != nil || err2 != nil || !strings.HasPrefix(rest, "r") {
			continue
		}
		for _, r := range present(pages, start, end) {
			text := make([]byte, r[1]-r[0])
			n, err := mem.ReadAt(text, int64(r[0]))
			searched = searched || n > 0
			if showsCanary(text[:n]) {
				return true, true
			}
			if err != nil && !errors.Is(err, io.EOF) {
				// Such as [vvar], or it has ended.
				continue
			}
		}
	}
	return searched, false
}

// present returns the ranges of pages that are there, in memory or swapped out: most of a large
// area never was.
func present(pages *os.File, start, end uint64) (ranges [][2]uint64) {
	const page, entry, there = 4096, 8, 3 << 62 // proc_pid_pagemap(5)
	for at := start; at < end; {
		part := make([]byte, min((end-at)/page, 1<<16)*entry)
		n, err := pages.ReadAt(part, int64(at/page*entry))
		for i := 0; i+entry <= n; i += entry {
			if binary.NativeEndian.Uint64(part[i:])&there != 0 {
				if last := len(ranges) - 1; last >= 0 && ranges[last][1] == at {
					ranges[last][1] += page
				} else {
					ranges = append(ranges, [2]uint64{at, at + page})
				}
			}
			at += page
		}
		if err != nil || n < entry {
			break
		}
	}
	return ranges
}
