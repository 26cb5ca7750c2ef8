package cmd_test

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
	"testing"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/supervisor/message"
)

// pool sets how many jails may wait for runs; a daemon that starts takes that up.
func (h *host) pool(size int) {
	h.t.Helper()
	if err := os.WriteFile(filepath.Join(h.state, "jaild.toml"), fmt.Appendf(nil,
		"[pool]\nsize = %d\n[compile]\ntimes = %d\n", size, slower()), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

// metric returns one of the daemon's, by its name and labels.
func (h *host) metric(name string) int {
	h.t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(h.state, "jail.sock"))
		}}}
	res, err := client.Get("http://jail/v1/metrics")
	if err != nil {
		h.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "\n"+name+" ")
	value, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.Atoi(value)
	if !found || err != nil {
		h.t.Fatalf("metric %s: %q, %v", name, value, err)
	}
	return n
}

// stands waits until so many jails wait for runs.
func (h *host) stands(n int) {
	h.t.Helper()
	eventually(h.t, fmt.Sprintf("%d jails wait for runs", n),
		func() bool { return h.metric("jail_pool_jails") == n })
}

// startOf says how a run came to its jail.
func (h *host) startOf(id string) string {
	h.t.Helper()
	o := h.jail("audit", "query", "--json", "--run", id, "--type", "run.started")
	var r struct{ Start string }
	if err := json.Unmarshal([]byte(strings.SplitN(o.out, "\n", 2)[0]), &r); err != nil {
		h.t.Fatalf("%s: %v: %+v", id, err, o)
	}
	return r.Start
}

// waiting are the first processes of the jails that wait for runs, and their shims: the daemon's
// other children that are of no run.
func (h *host) waiting() (pids []int) {
	h.t.Helper()
	for _, id := range namesIn(filepath.Join(h.state, "state", "pool")) {
		for _, dir := range groupsOf(id) {
			text, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
			for _, f := range strings.Fields(string(text)) {
				if pid, err := strconv.Atoi(f); err == nil && !slices.Contains(pids, pid) {
					pids = append(pids, pid, parentOf(h.t, pid))
				}
			}
		}
	}
	return pids
}

// groupsOf are the control groups of a jail of that name.
func groupsOf(id string) []string {
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

// A run in a jail that waited is a run as any: its result, its plan and what the kernel says of its
// jail are those of a cold one, with a shadow and without a workspace. Nothing of a run is there
// for the next one.
func TestWarm(t *testing.T) {
	h := newHost(t)
	h.pool(2)
	d := h.daemon()
	h.files(map[string]string{"a.txt": "one\n"})
	for n, flags := range [][]string{{"--discard"}, {"--no-workspace"}} {
		cold := h.live("cold", flags...)
		if v := h.verification("cold", 0); !v.OK {
			t.Errorf("cold: %+v", v)
		}
		h.stands(1 + n) // one of each kind
		warm := h.live("warm", flags...)
		a, b := h.planOf("cold"), h.planOf("warm")
		v := h.verification("warm", 0)
		for _, f := range v.Findings {
			if f.Answer == "differs" {
				t.Errorf("%q: %+v", flags, f)
			}
		}
		if !v.OK || v.PID != warm.initPID() || len(v.Findings) < 40 {
			t.Errorf("%+v", v)
		}
		if a.Cgroup.Path == b.Cgroup.Path || a.IDs.Base == b.IDs.Base {
			t.Errorf("two jails have the same place: %+v, %+v", a.Cgroup, a.IDs)
		}
		for _, p := range []*jail.Plan{&a, &b} {
			p.ID, p.Cgroup.Path, p.IDs.Base, p.IDs.Owner = "", "", 0, 0
		}
		if a, b := must(json.Marshal(a))(t), must(json.Marshal(b))(t); string(a) != string(b) {
			t.Errorf("the warm run's plan is\n%s\nand the cold one's\n%s", b, a)
		}
		if c, w := h.startOf("cold"), h.startOf("warm"); c != "cold" || w != "warm" {
			t.Errorf("on record: %s, %s", c, w)
		}
		for _, r := range []*liveRun{cold, warm} {
			r.in.Close()
			if o := r.wait(); o.code != 0 || o.err != "" {
				t.Errorf("%s: %+v", r.id, o)
			}
		}
	}
	// What one leaves in /tmp, in the shadow, and open, the next one does not find, whether it was
	// made for it or has waited.
	const script = "ls /tmp; cat a.txt; cat new.txt; echo mine > new.txt; echo left > /tmp/left; cat new.txt; exit 3"
	var first outcome
	for n, want := range []string{startCold, startWarm, startWarm} {
		id := fmt.Sprint("n", n)
		before := namesIn(filepath.Join(h.state, "state", "pool"))
		o := h.jail("sh", "--id", id, "--discard", "-c", script)
		if o.err = strings.ReplaceAll(o.err, id, "ID"); n == 0 {
			first = o
		}
		if o != first || o.out != "one\nmine\n" || o.code != 3 || h.startOf(id) != want {
			t.Errorf("%s: %+v, and the first %+v", h.startOf(id), o, first)
		}
		eventually(t, "a new jail waits for the next one", func() bool {
			now := namesIn(filepath.Join(h.state, "state", "pool"))
			fresh := slices.ContainsFunc(now,
				func(name string) bool { return !slices.Contains(before, name) })
			// None is being made or on its way out.
			return fresh && h.metric("jail_pool_jails") == len(now)
		})
	}
	if ps := h.jail("ps"); strings.Count(ps.out, "\n") > 1 {
		t.Errorf("what waits is shown as a run: %s", ps.out)
	}
	d.stop()
	h.wantNoneWaiting()
}

const (
	startCold = "cold"
	startWarm = "warm"
)

// wantNoneWaiting wants nothing of jails that waited, when their daemon has ended.
func (h *host) wantNoneWaiting() {
	h.t.Helper()
	if names := namesIn(filepath.Join(h.state, "state", "pool")); len(names) != 0 {
		h.t.Errorf("jails wait still: %q", names)
	}
}

// warmed is a run after which a jail is made for the next one.
func (h *host) warmed(id string, args ...string) {
	h.t.Helper()
	h.wants(h.jail(append([]string{"run", "--id", id, "--discard", "--"}, args...)...), 0, "")
}

// What waits ends with its daemon, however that ends, and the next one clears away what is left of
// it.
func TestKilledWhileJailsWait(t *testing.T) {
	h := newHost(t)
	h.pool(2)
	d := h.daemon()
	h.warmed("first", "true")
	h.stands(1)
	pids := h.waiting()
	ids := namesIn(filepath.Join(h.state, "state", "pool"))
	if len(pids) < 2 || len(ids) != 1 {
		t.Fatalf("waiting: %v, %q", pids, ids)
	}
	d.kill()
	eventually(t, "the jail and its shim are gone", func() bool {
		return !slices.ContainsFunc(pids, func(p int) bool { return !gone(p) })
	})
	h.pool(0)
	d = h.daemon()
	// By then it has cleared up.
	h.wants(h.jail("ps"), 0, "")
	h.wantNoneWaiting()
	for _, id := range ids {
		if dirs := groupsOf(h.globalID(id)); len(dirs) != 0 {
			t.Errorf("control groups %q", dirs)
		}
	}
	d.stop()
	// Daemon and shim at once: nobody is left to end the jail but the kernel, and its control group
	// stays for the next daemon.
	h.pool(2)
	d = h.daemon()
	h.warmed("second", "true")
	h.stands(1)
	pids, ids = h.waiting(), namesIn(filepath.Join(h.state, "state", "pool"))
	d.killWith(pids)
	h.pool(0)
	h.daemon().stop()
	h.wantNoneWaiting()
	for _, id := range ids {
		if dirs := groupsOf(h.globalID(id)); len(dirs) != 0 {
			t.Errorf("control groups %q", dirs)
		}
	}
}

// One that was killed while it waited is nobody's: the run has another.
func TestWaitingJailIsKilled(t *testing.T) {
	h := newHost(t)
	h.pool(1)
	h.daemon()
	h.warmed("first", "true")
	h.stands(1)
	pids := h.waiting()
	for _, pid := range pids {
		kill9(t, pid)
	}
	h.warmed("second", "true")
	h.stands(1)
	h.warmed("third", "true")
	if got := h.startOf("second") + " " + h.startOf("third"); got != "cold warm" {
		t.Error(got)
	}
}

// waits is how many jails wait in this process's daemon.
func (h *policyHost) waits() string {
	var text strings.Builder
	if _, err := h.s.Meters().WriteTo(&text); err != nil {
		h.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(text.String(), "\njail_pool_jails ")
	n, _, _ := strings.Cut(rest, "\n")
	return n
}

// Jails that wait were made from what counted then. When that changes they end, and what runs from
// then on has what counts now.
func TestPoolIsDrained(t *testing.T) {
	h := newPolicyHost(t,
		map[string]string{"ceiling": "policy = 1\n[limits]\nmemory = \"200MiB\"\n"})
	h.close()
	h.warm = 2
	h.open()
	warmed := func() []int {
		t.Helper()
		h.wantRun(request("default", "true"))
		eventually(t, "a jail waits", func() bool { return h.waits() == "1" })
		return h.waiting()
	}
	for _, c := range []struct {
		name   string
		change func() error
	}{
		{"the bundles", func() error {
			return os.MkdirAll(filepath.Join(h.state, "tools", "keys"), 0o755)
		}},
		{"a profile", func() error {
			h.write("more",
				"policy = 1\nname = \"more\"\nabout = \"More.\"\ninclude = [\"default\"]\n")
			return h.s.Policies().Reload()
		}},
		{"the ceiling", func() error {
			h.write("ceiling", "policy = 1\n[limits]\nmemory = \"100MiB\"\n")
			return h.s.Policies().Reload()
		}},
	} {
		pids := warmed()
		if len(pids) == 0 {
			t.Fatalf("%s: no jail waits", c.name)
		}
		if err := c.change(); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		eventually(t, "what waited is gone after a change of "+c.name,
			func() bool { return !slices.ContainsFunc(pids, func(p int) bool { return !gone(p) }) })
	}
	// What was narrowed is narrow also in a jail that waited.
	warmed()
	in, stdin := io.Pipe()
	started, ended := make(chan struct{}), make(chan message.Result)
	req := request("default", "cat")
	req.ID = "narrow"
	go func() {
		r, _ := h.start(in, func() { close(started) }, req)
		ended <- r
	}()
	<-started
	if p := h.planOf("narrow"); h.startOf("narrow") != startWarm || p.Cgroup.Memory != 100<<20 {
		t.Errorf("%s, memory %d", h.startOf("narrow"), p.Cgroup.Memory)
	}
	if v, err := h.s.Live().Verify(h.caller(0), "narrow"); err != nil || !v.OK {
		t.Errorf("%+v, %v", v, err)
	}
	stdin.Close()
	if r := <-ended; r.ExitCode != 0 {
		t.Errorf("%+v", r)
	}
	h.close()
	h.wantNoneWaiting()
}

// There are never more than the settings have, of whatever kinds.
func TestPoolIsBounded(t *testing.T) {
	h := newHost(t)
	h.pool(1)
	d := h.daemon()
	for n, flags := range [][]string{{"--discard"}, {"--no-workspace"},
		{"--no-workspace", "--limit", "memory=64MiB"}} {
		h.wants(h.jail(append(append([]string{"run", "--id", fmt.Sprint("b", n)}, flags...), "--",
			"true")...), 0, "")
		h.stands(1)
		// One may be on its way out.
		if n := len(namesIn(filepath.Join(h.state, "state", "pool"))); n > 2 {
			t.Errorf("%d stand", n)
		}
	}
	d.stop()
	h.pool(0)
	d = h.daemon()
	h.warmed("off", "true")
	h.warmed("off2", "true")
	if h.metric("jail_pool_jails") != 0 || h.startOf("off2") != startCold ||
		h.metric("jail_pool_jails_max") != 0 {
		t.Error("there is a pool")
	}
	d.stop()
	h.wantNoneWaiting()
}

// The module of a jail that waits is loaded before there is a run, and is the one that the run asks
// for: what runs in turn are never each other's. One that asks for fetches, which nobody grants
// before there is a run, is refused or runs as in a cold jail.
func TestWarmModules(t *testing.T) {
	h := newHost(t)
	h.pool(4)
	h.daemon()
	for round := range 3 {
		for n, c := range []struct {
			args []string
			out  string
		}{{[]string{"echo", "one"}, "one\n"}, {[]string{"awk", "BEGIN { print \"two\" }"},
			"two\n"}} {
			id := fmt.Sprintf("m%d-%d", round, n)
			if o := h.jail(append([]string{"run", "--id", id, "--no-workspace", "--"},
				c.args...)...); o.code != 0 || o.out != c.out {
				t.Errorf("%q: %+v", c.args, o)
			}
			if got := h.startOf(id); (got == startWarm) != (round > 0) {
				t.Errorf("%s: %s", id, got)
			}
			h.stands(min(round*2+n+1, 2)) // one for each module
		}
	}
	// Several tools are in one module: what it was loaded for by one serves the other.
	if o := h.jail("run", "--id", "other", "--no-workspace", "--", "basename",
		"/a/three"); o.code != 0 || o.out != "three\n" {
		t.Errorf("%+v", o)
	}
	if got := h.startOf("other"); got != startWarm {
		t.Errorf("another tool of the same module: %s", got)
	}
	var first outcome
	for n := range 2 {
		o := h.jail("run", "--id", fmt.Sprint("f", n), "--no-workspace", "--", "fetch",
			"https://example.org/")
		if n == 0 {
			first = o
		}
		if o.code == 0 || o.code != first.code {
			t.Errorf("%+v, and first %+v", o, first)
		}
	}
}
