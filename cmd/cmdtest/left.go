package cmdtest

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Left lists what there is on the host that belongs to this test's state: control groups, mounts,
// loop devices, processes, and what is kept in the state directory for as long as a run lives.
// Other jails on the same host, those of other tests among them, are none of it.
func Left(h *Host, kept []string) []string {
	var left []string
	add := func(format string, args ...any) { left = append(left, fmt.Sprintf(format, args...)) }
	runs := map[string]bool{}
	for _, r := range h.Records("", "") {
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
		strings.Contains(string(text), h.Root+"/") {
		add("a mount below %s (%v)", h.Root, err)
	}
	devices, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, d := range devices {
		if text, err := os.ReadFile(d); err == nil && strings.HasPrefix(string(text), h.Root+"/") {
			add("loop device %s of %s", d, strings.TrimSpace(string(text)))
		}
	}
	for _, pid := range h.processes(runs) {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		add("process %d: %s", pid, strings.ReplaceAll(string(text), "\x00", " "))
	}
	for _, dir := range []string{"runs", "workspaces", "terms", "modules"} {
		for _, e := range NamesIn(filepath.Join(h.State, "state", dir)) {
			id := h.shownName(strings.TrimSuffix(e, ".json"))
			entry := dir == "modules" && !strings.HasPrefix(e, "new-")
			template := strings.HasPrefix(e, ".template-") && strings.HasSuffix(e, ".img")
			// The lock, and no layer.
			live := e == ".live" && len(NamesIn(filepath.Join(h.State, "state", dir, e))) == 1
			if !entry && !template && !live && !h.Foreign[dir+"/"+e] && (dir == "runs" ||
				!slices.Contains(kept, id)) {
				add("%s/%s", dir, e)
			}
		}
	}
	return Sorted(left)
}

// processes returns those that were started with this state, are in the jail of one of the runs, or
// have a mount of it.
func (h *Host) processes(runs map[string]bool) []int {
	var all []int
	for _, name := range NamesIn("/proc") {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == os.Getpid() || h.Daemons[pid] {
			continue
		}
		dir := filepath.Join("/proc", name)
		environ, _ := os.ReadFile(filepath.Join(dir, "environ"))
		mounts, _ := os.ReadFile(filepath.Join(dir, "mountinfo"))
		groups, _ := os.ReadFile(filepath.Join(dir, "cgroup"))
		ours := strings.Contains("\x00"+string(environ), "\x00JAIL_STATE="+h.State+"\x00") ||
			strings.Contains(string(mounts), h.Root+"/")
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

// NamesIn returns the names in a directory; none if it cannot be read.
func NamesIn(dir string) []string {
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

// GlobalID is the id of what a user of this state calls name: that of the name, or name itself.
func (h *Host) GlobalID(name string) string {
	h.T.Helper()
	found, err := filepath.Glob(filepath.Join(h.State, "state", "names", "[0-9]*", name))
	if err != nil || len(found) > 1 {
		h.T.Fatalf("%s: %q, %v", name, found, err)
	}
	if len(found) == 0 {
		return name
	}
	id, err := os.Readlink(found[0])
	if err != nil {
		h.T.Fatal(err)
	}
	return id
}

// shownName is what users of this state call the run of an id.
func (h *Host) shownName(id string) string {
	to, _ := os.Readlink(filepath.Join(h.State, "state", "names", "ids", id))
	_, name, _ := strings.Cut(to, "/")
	return cmp.Or(name, id)
}
