package main_test

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/supervisor/message"
)

// A run in a jail that waited is a run as any: its result, its plan and what the kernel says of its
// jail are those of a cold one, with a shadow and without a workspace. Nothing of a run is there
// for the next one.
func TestWarm(t *testing.T) {
	h := cmdtest.New(t)
	h.Pool(2)
	h.Files(map[string]string{"a.txt": "one\n"})
	for _, flags := range [][]string{{"--discard"}, {"--no-workspace"}} {
		// With a pool of its own: how many wait of an earlier kind, and when, is a matter of time.
		d := h.Daemon()
		cold := h.Live("cold", flags...)
		if v := cmdtest.Verification(h, "cold", 0); !v.OK {
			t.Errorf("cold: %+v", v)
		}
		h.Stands(1)
		warm := h.Live("warm", flags...)
		a, b := cmdtest.PlanOf(h, "cold"), cmdtest.PlanOf(h, "warm")
		v := cmdtest.Verification(h, "warm", 0)
		for _, f := range v.Findings {
			if f.Answer == "differs" {
				t.Errorf("%q: %+v", flags, f)
			}
		}
		if !v.OK || v.PID != warm.InitPID() || len(v.Findings) < 40 {
			t.Errorf("%+v", v)
		}
		if a.Cgroup.Path == b.Cgroup.Path || a.IDs.Base == b.IDs.Base {
			t.Errorf("two jails have the same place: %+v, %+v", a.Cgroup, a.IDs)
		}
		for _, p := range []*jail.Plan{&a, &b} {
			p.ID, p.Cgroup.Path, p.IDs.Base, p.IDs.Owner = "", "", 0, 0
		}
		if a, b := cmdtest.Must(json.Marshal(a))(t), cmdtest.Must(json.Marshal(b))(t); string(a) != string(b) {
			t.Errorf("the warm run's plan is\n%s\nand the cold one's\n%s", b, a)
		}
		if c, w := h.StartOf("cold"), h.StartOf("warm"); c != "cold" || w != "warm" {
			t.Errorf("on record: %s, %s", c, w)
		}
		for _, r := range []*cmdtest.LiveRun{cold, warm} {
			r.In.Close()
			if o := r.Wait(); o.Code != 0 || o.Err != "" {
				t.Errorf("%s: %+v", r.ID, o)
			}
		}
		d.Stop()
	}
	d := h.Daemon()
	// What one leaves in /tmp, in the shadow, and open, the next one does not find, whether it was
	// made for it or has waited.
	const script = "ls /tmp; cat a.txt; cat new.txt; echo mine > new.txt; echo left > /tmp/left; cat new.txt; exit 3"
	var first cmdtest.Outcome
	for n, want := range []string{cmdtest.StartCold, cmdtest.StartWarm, cmdtest.StartWarm} {
		id := fmt.Sprint("n", n)
		before := cmdtest.NamesIn(filepath.Join(h.State, "state", "pool"))
		o := h.Jail("sh", "--id", id, "--discard", "-c", script)
		if o.Err = strings.ReplaceAll(o.Err, id, "ID"); n == 0 {
			first = o
		}
		if o != first || o.Out != "one\nmine\n" || o.Code != 3 || h.StartOf(id) != want {
			t.Errorf("%s: %+v, and the first %+v", h.StartOf(id), o, first)
		}
		cmdtest.Eventually(t, "a new jail waits for the next one", func() bool {
			now := cmdtest.NamesIn(filepath.Join(h.State, "state", "pool"))
			fresh := slices.ContainsFunc(now,
				func(name string) bool { return !slices.Contains(before, name) })
			// None is being made or on its way out.
			return fresh && cmdtest.Metric(h, "jail_pool_jails") == len(now)
		})
	}
	if ps := h.Jail("ps"); strings.Count(ps.Out, "\n") > 1 {
		t.Errorf("what waits is shown as a run: %s", ps.Out)
	}
	d.Stop()
	cmdtest.WantNoneWaiting(h)
}

// runWarmed is a run after which a jail is made for the next one.
func runWarmed(h *cmdtest.Host, id string, args ...string) {
	h.T.Helper()
	h.Wants(h.Jail(append([]string{"run", "--id", id, "--discard", "--"}, args...)...), 0, "")
}

// What waits ends with its daemon, however that ends, and the next one clears away what is left of
// it.
func TestKilledWhileJailsWait(t *testing.T) {
	h := cmdtest.New(t)
	h.Pool(2)
	d := h.Daemon()
	runWarmed(h, "first", "true")
	h.Stands(1)
	pids := cmdtest.Waiting(h)
	ids := cmdtest.NamesIn(filepath.Join(h.State, "state", "pool"))
	if len(pids) < 2 || len(ids) != 1 {
		t.Fatalf("waiting: %v, %q", pids, ids)
	}
	d.Kill()
	cmdtest.Eventually(t, "the jail and its shim are gone", func() bool {
		return !slices.ContainsFunc(pids, func(p int) bool { return !cmdtest.Gone(p) })
	})
	h.Pool(0)
	d = h.Daemon()
	// By then it has cleared up.
	h.Wants(h.Jail("ps"), 0, "")
	cmdtest.WantNoneWaiting(h)
	for _, id := range ids {
		if dirs := cmdtest.GroupsOf(h.GlobalID(id)); len(dirs) != 0 {
			t.Errorf("control groups %q", dirs)
		}
	}
	d.Stop()
	// Daemon and shim at once: nobody is left to end the jail but the kernel, and its control group
	// stays for the next daemon.
	h.Pool(2)
	d = h.Daemon()
	runWarmed(h, "second", "true")
	h.Stands(1)
	pids, ids = cmdtest.Waiting(h), cmdtest.NamesIn(filepath.Join(h.State, "state", "pool"))
	d.KillWith(pids)
	h.Pool(0)
	h.Daemon().Stop()
	cmdtest.WantNoneWaiting(h)
	for _, id := range ids {
		if dirs := cmdtest.GroupsOf(h.GlobalID(id)); len(dirs) != 0 {
			t.Errorf("control groups %q", dirs)
		}
	}
}

// One that was killed while it waited is nobody's: the run has another.
func TestWaitingJailIsKilled(t *testing.T) {
	h := cmdtest.New(t)
	h.Pool(1)
	h.Daemon()
	runWarmed(h, "first", "true")
	h.Stands(1)
	cmdtest.KillAll(t, cmdtest.Waiting(h))
	// It comes to a jail of its own, or has one that the pool has made in the meantime.
	runWarmed(h, "second", "true")
	h.Stands(1)
	runWarmed(h, "third", "true")
	if got := h.StartOf("third"); got != cmdtest.StartWarm {
		t.Error(got)
	}
}

// Jails that wait were made from what counted then. When that changes they end, and what runs from
// then on has what counts now.
func TestPoolIsDrained(t *testing.T) {
	h := cmdtest.NewPolicyHost(t,
		map[string]string{"ceiling": "policy = 1\n[limits]\nmemory = \"200MiB\"\n"})
	h.Close()
	h.Warm = 2
	h.Open()
	warmed := func() []int {
		t.Helper()
		h.WantRun(cmdtest.Request("default", "true"))
		cmdtest.Eventually(t, "a jail waits", func() bool { return h.Waits() == "1" })
		return cmdtest.Waiting(h.Host)
	}
	for _, c := range []struct {
		name   string
		change func() error
	}{
		{"the bundles", func() error {
			return os.MkdirAll(filepath.Join(h.State, "tools", "keys"), 0o755)
		}},
		{"a profile", func() error {
			h.Write("more",
				"policy = 1\nname = \"more\"\nabout = \"More.\"\ninclude = [\"default\"]\n")
			return h.S.Policies().Reload()
		}},
		{"the ceiling", func() error {
			h.Write("ceiling", "policy = 1\n[limits]\nmemory = \"100MiB\"\n")
			return h.S.Policies().Reload()
		}},
	} {
		pids := warmed()
		if len(pids) == 0 {
			t.Fatalf("%s: no jail waits", c.name)
		}
		if err := c.change(); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		cmdtest.Eventually(t, "what waited is gone after a change of "+c.name,
			func() bool { return !slices.ContainsFunc(pids, func(p int) bool { return !cmdtest.Gone(p) }) })
	}
	// What was narrowed is narrow also in a jail that waited.
	warmed()
	in, stdin := io.Pipe()
	started, ended := make(chan struct{}), make(chan message.Result)
	req := cmdtest.Request("default", "cat")
	req.ID = "narrow"
	go func() {
		r, _ := h.Start(in, func() { close(started) }, req)
		ended <- r
	}()
	<-started
	if p := cmdtest.PlanOf(h.Host, "narrow"); h.StartOf("narrow") != cmdtest.StartWarm || p.Cgroup.Memory != 100<<20 {
		t.Errorf("%s, memory %d", h.StartOf("narrow"), p.Cgroup.Memory)
	}
	if v, err := h.S.Live().Verify(h.Caller(0), "narrow"); err != nil || !v.OK {
		t.Errorf("%+v, %v", v, err)
	}
	stdin.Close()
	if r := <-ended; r.ExitCode != 0 {
		t.Errorf("%+v", r)
	}
	h.Close()
	cmdtest.WantNoneWaiting(h.Host)
}

// There are never more than the settings have, of whatever kinds.
func TestPoolIsBounded(t *testing.T) {
	h := cmdtest.New(t)
	h.Pool(1)
	d := h.Daemon()
	pool, before := filepath.Join(h.State, "state", "pool"), []string(nil)
	for n, flags := range [][]string{{"--discard"}, {"--no-workspace"},
		{"--no-workspace", "--limit", "memory=64MiB"}} {
		h.Wants(h.Jail(append(append([]string{"run", "--id", fmt.Sprint("b", n)}, flags...), "--",
			"true")...), 0, "")
		cmdtest.Eventually(t, "one of the last kind stands, and no other", func() bool {
			names := cmdtest.NamesIn(pool)
			// One may be on its way out.
			if len(names) > 2 {
				t.Errorf("%q stand", names)
			}
			return len(names) == 1 && !slices.Contains(before, names[0]) &&
				cmdtest.Metric(h, "jail_pool_jails") == 1
		})
		before = cmdtest.NamesIn(pool)
	}
	d.Stop()
	h.Pool(0)
	d = h.Daemon()
	runWarmed(h, "off", "true")
	runWarmed(h, "off2", "true")
	if cmdtest.Metric(h, "jail_pool_jails") != 0 || h.StartOf("off2") != cmdtest.StartCold ||
		cmdtest.Metric(h, "jail_pool_jails_max") != 0 {
		t.Error("there is a pool")
	}
	d.Stop()
	cmdtest.WantNoneWaiting(h)
}

// The module of a jail that waits is loaded before there is a run, and is the one that the run asks
// for: what runs in turn are never each other's. One that asks for fetches, which nobody grants
// before there is a run, is refused or runs as in a cold jail.
func TestWarmModules(t *testing.T) {
	h := cmdtest.New(t)
	h.Pool(4)
	h.Daemon()
	for round := range 3 {
		for n, c := range []struct {
			args []string
			out  string
		}{{[]string{"echo", "one"}, "one\n"}, {[]string{"awk", "BEGIN { print \"two\" }"},
			"two\n"}} {
			id := fmt.Sprintf("m%d-%d", round, n)
			if o := h.Jail(append([]string{"run", "--id", id, "--no-workspace", "--"},
				c.args...)...); o.Code != 0 || o.Out != c.out {
				t.Errorf("%q: %+v", c.args, o)
			}
			if got := h.StartOf(id); (got == cmdtest.StartWarm) != (round > 0) {
				t.Errorf("%s: %s", id, got)
			}
			h.Stands(min(round*2+n+1, 2)) // one for each module
		}
	}
	// Several tools are in one module: what it was loaded for by one serves the other.
	if o := h.Jail("run", "--id", "other", "--no-workspace", "--", "basename",
		"/a/three"); o.Code != 0 || o.Out != "three\n" {
		t.Errorf("%+v", o)
	}
	if got := h.StartOf("other"); got != cmdtest.StartWarm {
		t.Errorf("another tool of the same module: %s", got)
	}
	var first cmdtest.Outcome
	for n := range 2 {
		o := h.Jail("run", "--id", fmt.Sprint("f", n), "--no-workspace", "--", "fetch",
			"https://example.org/")
		if n == 0 {
			first = o
		}
		if o.Code == 0 || o.Code != first.Code {
			t.Errorf("%+v, and first %+v", o, first)
		}
	}
}
