package cmdtest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Pool sets how many jails may wait for runs; a daemon that starts takes that up.
func (h *Host) Pool(size int) {
	h.T.Helper()
	if err := os.WriteFile(filepath.Join(h.State, "jaild.toml"), fmt.Appendf(nil,
		"[pool]\nsize = %d\n[compile]\ntimes = %d\n", size, Slower()), 0o600); err != nil {
		h.T.Fatal(err)
	}
}

// Metric returns one of the daemon's, by its name and labels.
func Metric(h *Host, name string) int {
	h.T.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(h.State, "jail.sock"))
		}}}
	res, err := client.Get("http://jail/v1/metrics")
	if err != nil {
		h.T.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		h.T.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "\n"+name+" ")
	value, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.Atoi(value)
	if !found || err != nil {
		h.T.Fatalf("metric %s: %q, %v", name, value, err)
	}
	return n
}

// Stands waits until so many jails wait for runs.
func (h *Host) Stands(n int) {
	h.T.Helper()
	Eventually(h.T, fmt.Sprintf("%d jails wait for runs", n),
		func() bool { return Metric(h, "jail_pool_jails") == n })
}

// StartOf says how a run came to its jail.
func (h *Host) StartOf(id string) string {
	h.T.Helper()
	o := h.Jail("audit", "query", "--json", "--run", id, "--type", "run.started")
	var r struct{ Start string }
	if err := json.Unmarshal([]byte(strings.SplitN(o.Out, "\n", 2)[0]), &r); err != nil {
		h.T.Fatalf("%s: %v: %+v", id, err, o)
	}
	return r.Start
}

// Waiting are the first processes of the jails that wait for runs, and their shims: the daemon's
// other children that are of no run.
func Waiting(h *Host) (pids []int) {
	h.T.Helper()
	for _, id := range NamesIn(filepath.Join(h.State, "state", "pool")) {
		for _, dir := range GroupsOf(id) {
			text, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
			for _, f := range strings.Fields(string(text)) {
				if pid, err := strconv.Atoi(f); err == nil && !slices.Contains(pids, pid) {
					pids = append(pids, pid, ParentOf(h.T, pid))
				}
			}
		}
	}
	return pids
}

// GroupsOf are the control groups of a jail of that name.
func GroupsOf(id string) []string {
	found, _ := filepath.Glob("/sys/fs/cgroup/*/jail/" + id + ".[0-9]*")
	more, _ := filepath.Glob("/sys/fs/cgroup/jail/" + id + ".[0-9]*")
	held, _ := filepath.Glob("/sys/fs/cgroup/*/jail/" + id + ".*.ceiling/" + id + ".[0-9]*")
	heldToo, _ := filepath.Glob("/sys/fs/cgroup/jail/" + id + ".*.ceiling/" + id + ".[0-9]*")
	all := slices.Concat(found, more, held, heldToo)
	// Of calls, and what waits for them.
	for _, in := range []string{"/sys/fs/cgroup/*/jail/*.session/",
		"/sys/fs/cgroup/jail/*.session/"} {
		call, _ := filepath.Glob(in + id + ".[0-9]*")
		heldCall, _ := filepath.Glob(in + id + ".*.ceiling/" + id + ".[0-9]*")
		all = slices.Concat(all, call, heldCall)
	}
	return all
}

const (
	StartCold = "cold"
	StartWarm = "warm"
)

// WantNoneWaiting wants nothing of jails that waited, when their daemon has ended.
func WantNoneWaiting(h *Host) {
	h.T.Helper()
	if names := NamesIn(filepath.Join(h.State, "state", "pool")); len(names) != 0 {
		h.T.Errorf("jails wait still: %q", names)
	}
}

// Waits is how many jails wait in this process's daemon.
func (h *PolicyHost) Waits() string {
	var text strings.Builder
	if _, err := h.S.Meters().WriteTo(&text); err != nil {
		h.T.Fatal(err)
	}
	_, rest, _ := strings.Cut(text.String(), "\njail_pool_jails ")
	n, _, _ := strings.Cut(rest, "\n")
	return n
}

// GroupOf are the control groups of a session's calls.
func GroupOf(session string) []string {
	found, _ := filepath.Glob("/sys/fs/cgroup/*/jail/" + session + ".[0-9]*.session")
	more, _ := filepath.Glob("/sys/fs/cgroup/jail/" + session + ".[0-9]*.session")
	return append(found, more...)
}
