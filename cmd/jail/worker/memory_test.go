package worker_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// A scanner looks for secrets in the memory of all processes of the jails of a daemon.
type scanner struct {
	t      *testing.T
	daemon int

	mu sync.Mutex
	// programs are those that were looked at.
	programs map[string]bool
	// control: the daemon, which has the fetch proxy, was found to have a secret.
	control bool
}

// scan looks at the processes that there are now.
func (s *scanner) scan() {
	s.mu.Lock()
	defer s.mu.Unlock()
	own, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		s.t.Error(err)
	}
	var sought [][]byte
	for _, secret := range secrets {
		sought = append(sought, []byte(secret))
	}
	sought = append(sought, []byte(base64.StdEncoding.EncodeToString([]byte("worker:"+forgeToken))))
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		s.t.Error(err)
	}
	if s.programs == nil {
		s.programs = map[string]bool{}
	}
	for _, dir := range all {
		// A process may end meanwhile.
		space, err := os.Readlink(filepath.Join(dir, "ns/pid"))
		if err != nil || space == own || !s.below(dir) {
			continue
		}
		name, _ := os.ReadFile(filepath.Join(dir, "comm"))
		if found, n := search(dir, sought); found != nil {
			s.t.Errorf("process %s (%s) has %s in its memory", dir, name, found)
		} else if n > 0 {
			s.programs[strings.TrimSpace(string(name))] = true
		}
	}
	if !s.control {
		found, _ := search(fmt.Sprint("/proc/", s.daemon), sought)
		s.control = found != nil
	}
}

// below reports whether a process descends from the daemon.
func (s *scanner) below(dir string) bool {
	for range 100 {
		text, err := os.ReadFile(filepath.Join(dir, "status"))
		_, rest, _ := strings.Cut(string(text), "\nPPid:\t")
		parent, _, _ := strings.Cut(rest, "\n")
		if err != nil || parent == "" || parent == "0" {
			return false
		}
		if parent == strconv.Itoa(s.daemon) {
			return true
		}
		dir = "/proc/" + parent
	}
	return false
}

// done checks that the scans saw what they had to see.
func (s *scanner) done() {
	for _, name := range []string{"init", "git-remote-http"} {
		if !s.programs[name] {
			s.t.Errorf("no memory of %s was looked at, but that of %v", name, s.programs)
		}
	}
	if !s.control {
		s.t.Error("control: no secret was found in the memory of the daemon either")
	}
}

// search looks for texts in those pages of a process that are there, and returns how many bytes these
// are (proc_pid_pagemap(5)). Pages of files that are mapped privately are what the files are.
func search(dir string, sought [][]byte) (found []byte, n int64) {
	maps, err := os.ReadFile(filepath.Join(dir, "maps"))
	mem, memErr := os.Open(filepath.Join(dir, "mem"))
	pages, pagesErr := os.Open(filepath.Join(dir, "pagemap"))
	if err != nil || memErr != nil || pagesErr != nil {
		return nil, 0
	}
	defer mem.Close()
	defer pages.Close()
	size := int64(os.Getpagesize())
	for line := range strings.Lines(string(maps)) {
		var from, to int64
		var rights string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &rights); err != nil || rights[0] != 'r' {
			continue
		}
		flags := make([]byte, (to-from)/size*8)
		if _, err := pages.ReadAt(flags, from/size*8); err != nil {
			continue
		}
		var run []byte
		look := func() {
			for _, text := range sought {
				if bytes.Contains(run, text) {
					found = text
				}
			}
			n, run = n+int64(len(run)), run[:0]
		}
		page := make([]byte, size)
		for i := int64(0); i < (to-from)/size; i++ {
			// Bit 63 says present, bit 62 swapped, bit 61 of a file or shared.
			bits := binary.NativeEndian.Uint64(flags[i*8:]) >> 61
			if bits>>1 == 0 || bits&1 == 1 && rights[3] == 'p' {
				look()
				continue
			}
			if _, err := mem.ReadAt(page, from+i*size); err != nil {
				look()
				continue
			}
			run = append(run, page...)
		}
		look()
	}
	return found, n
}
