package cmd_test

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// left lists what there is on the host that belongs to this test's state: control groups, mounts,
// loop devices, processes, and what is kept in the state directory for as long as a run lives.
// Other jails on the same host, those of other tests among them, are none of it.
func (h *host) left(kept []string) []string {
	var left []string
	add := func(format string, args ...any) { left = append(left, fmt.Sprintf(format, args...)) }
	runs := map[string]bool{}
	for _, r := range h.records("", "") {
		if id := cmp.Or(r.RunID, r.Run); id != "" {
			runs[id] = true
		}
	}
	for id := range runs {
		for _, name := range []string{id, id + ".compile"} {
			found, _ := filepath.Glob("/sys/fs/cgroup/*/jail/" + name + ".[0-9]*")
			more, _ := filepath.Glob("/sys/fs/cgroup/jail/" + name + ".[0-9]*")
			for _, dir := range append(found, more...) {
				add("control group %s", dir)
			}
		}
	}
	if text, err := os.ReadFile("/proc/self/mountinfo"); err != nil ||
		strings.Contains(string(text), h.root+"/") {
		add("a mount below %s (%v)", h.root, err)
	}
	devices, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, d := range devices {
		if text, err := os.ReadFile(d); err == nil && strings.HasPrefix(string(text), h.root+"/") {
			add("loop device %s of %s", d, strings.TrimSpace(string(text)))
		}
	}
	for _, pid := range h.processes(runs) {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		add("process %d: %s", pid, strings.ReplaceAll(string(text), "\x00", " "))
	}
	for _, dir := range []string{"runs", "workspaces", "terms", "modules"} {
		for _, e := range namesIn(filepath.Join(h.state, "state", dir)) {
			id := h.shownName(strings.TrimSuffix(e, ".json"))
			entry := dir == "modules" && !strings.HasPrefix(e, "new-")
			template := strings.HasPrefix(e, ".template-") && strings.HasSuffix(e, ".img")
			// The lock, and no layer.
			live := e == ".live" && len(namesIn(filepath.Join(h.state, "state", dir, e))) == 1
			if !entry && !template && !live && !h.foreign[dir+"/"+e] && (dir == "runs" ||
				!slices.Contains(kept, id)) {
				add("%s/%s", dir, e)
			}
		}
	}
	return sorted(left)
}

// processes returns those that were started with this state, are in the jail of one of the runs, or
// have a mount of it.
func (h *host) processes(runs map[string]bool) []int {
	var all []int
	for _, name := range namesIn("/proc") {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == os.Getpid() || h.daemons[pid] {
			continue
		}
		dir := filepath.Join("/proc", name)
		environ, _ := os.ReadFile(filepath.Join(dir, "environ"))
		mounts, _ := os.ReadFile(filepath.Join(dir, "mountinfo"))
		groups, _ := os.ReadFile(filepath.Join(dir, "cgroup"))
		ours := strings.Contains("\x00"+string(environ), "\x00JAIL_STATE="+h.state+"\x00") ||
			strings.Contains(string(mounts), h.root+"/")
		for line := range strings.Lines(string(groups)) {
			_, id, ok := strings.Cut(strings.TrimSpace(line), ":/jail/")
			// Behind the id stands the range of host ids.
			if dot := strings.LastIndexByte(id, '.'); ok && dot > 0 {
				ours = ours || runs[strings.TrimSuffix(id[:dot], ".compile")]
			}
		}
		if ours {
			all = append(all, pid)
		}
	}
	return all
}

// namesIn returns the names in a directory; none if it cannot be read.
func namesIn(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// idRanges counts the ranges of host ids that a process holds.
func idRanges(pid int) int {
	held := map[string]bool{}
	for _, name := range namesIn(fmt.Sprintf("/proc/%d/fd", pid)) {
		if target, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, name)); err == nil {
			held[target] = true
		}
	}
	n := 0
	text, _ := os.ReadFile("/proc/net/unix")
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) == 8 && strings.HasPrefix(f[7], "@jail/ids/") && held["socket:["+f[6]+"]"] {
			n++
		}
	}
	return n
}
