package jail_test

import (
	"errors"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/seccomp"
	"github.com/jail-sandbox/jail/policy"
)

// TestChecks has a row for each thing that no plan is made of, and for the nearest thing of which
// one is.
func TestChecks(t *testing.T) {
	limit := func(name string, n int64) func(*policy.Policy, *jail.Request) {
		return func(p *policy.Policy, _ *jail.Request) { p.Limits.Put(name, n) }
	}
	mounts := func(m ...policy.Mount) func(*policy.Policy, *jail.Request) {
		return func(p *policy.Policy, _ *jail.Request) { p.Mounts = m }
	}
	read := func(target string) policy.Mount {
		return policy.Mount{Source: "/srv", Target: target, Access: policy.Read}
	}
	owner := func(uid, gid uint32) func(*policy.Policy, *jail.Request) {
		return func(_ *policy.Policy, r *jail.Request) {
			r.Workspace.UID, r.Workspace.GID = uid,
				gid
		}
	}
	base := func(b uint32) func(*policy.Policy, *jail.Request) {
		return func(_ *policy.Policy, r *jail.Request) { r.Base = b }
	}
	slice := func(s string) func(*policy.Policy, *jail.Request) {
		return func(_ *policy.Policy, r *jail.Request) { r.Slice = s }
	}
	for _, c := range []struct {
		name   string
		change func(*policy.Policy, *jail.Request)
		// "" where there is a plan
		says string
	}{
		{"nothing changed", func(*policy.Policy, *jail.Request) {}, ""},
		{"no wall time", limit("wall", 0), "limit wall"},
		{"under a millisecond", limit("wall", 999_999), "limit wall"},
		{"a millisecond", limit("wall", 1_000_000), ""},
		{"no cpu time", limit("cpu_time", 0), "limit cpu_time"},
		{"too little cpu", limit("cpus", 9), "limit cpus"},
		{"a hundredth of a cpu", limit("cpus", 10), ""},
		{"memory below the engine's", limit("memory", 32<<20-1), "limit memory"},
		{"the engine's memory", limit("memory", 32<<20), ""},
		{"no limit of memory", limit("memory", policy.Unlimited), ""},
		{"fewer tasks than the engine has", limit("pids", 11), "limit pids"},
		{"the engine's tasks", limit("pids", 12), ""},
		{"too few files", limit("open_files", 15), "limit open_files"},
		{"the engine's files", limit("open_files", 16), ""},
		{"no system calls", func(p *policy.Policy, _ *jail.Request) { p.Syscalls.Groups = nil },
			`"wasi"`},
		{"system calls of native tools only", func(p *policy.Policy,
			_ *jail.Request) {
			p.Syscalls.Groups = []string{policy.GroupNative}
		}, `"wasi"`},
		{"a mount without a target", mounts(read("")), "no target"},
		{"a mount on the root", mounts(read("/")), "jail's own root"},
		{"a mount on proc", mounts(read("/proc")), "makes itself"},
		{"a mount below dev", mounts(read("/dev/shm")), "makes itself"},
		{"a mount below run", mounts(read("/run/x")), "the jail's own"},
		{"a mount below the workspace", mounts(read("/workspace/x")), "makes itself"},
		{"a mount beside the workspace", mounts(read("/workspaces")), ""},
		{"a mount in a mount", mounts(read("/a"), policy.Mount{Source: "/opt", Target: "/a/b",
			Access: policy.Read}), "shows something else there"},
		{"a mount beside a mount", mounts(read("/a"),
			policy.Mount{Source: "/opt", Target: "/ab", Access: policy.Read}), ""},
		{"no workspace granted", func(p *policy.Policy,
			_ *jail.Request) {
			p.Workspace.Access = policy.WorkspaceNone
		}, "workspace.access"},
		{"no workspace granted and none asked for", func(p *policy.Policy,
			r *jail.Request) {
			p.Workspace.Access, r.Workspace = policy.WorkspaceNone, nil
		}, ""},
		{"a shadow without a size", limit("workspace", policy.Unlimited), "limit workspace"},
		{"a shadow without a number of files", limit("workspace_files", policy.Unlimited),
			"limit workspace_files"},
		{"a base below the jails'", base(jail.FirstBase - jail.BaseSize), "range"},
		{"base zero", base(0), "range"},
		{"a base between two", base(jail.FirstBase + 1), "range"},
		{"the last base", base(jail.FirstBase + (jail.Bases-1)*jail.BaseSize), ""},
		{"a base past the last", base(jail.FirstBase + jail.Bases*jail.BaseSize), "range"},
		{"a workspace of nobody", owner(65534, 100), "nobody"},
		{"a workspace of no group", owner(100, 65534), "nobody"},
		{"a workspace of id -1", owner(math.MaxUint32, 100), "nobody"},
		{"a workspace of root", owner(0, 0), ""},
		{"the last id of the range", owner(65533, 65533), ""},
		{"an owner above the range", owner(1_000_000, 100), ""},
		{"an owner and a group above the range, the same", owner(1_000_000, 1_000_000), ""},
		{"an owner and another group above the range", owner(1_000_000, 1_000_001), "only one"},
		{"a slice that is relative", slice("jail"), "control group"},
		{"a slice with dots", slice("/jail/../x"), "control group"},
		{"no slice", slice(""), "control group"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, r := shipped(t, "default").Policy(), request()
			c.change(&p, &r)
			eff, err := policy.Resolve(policy.Layer{Name: "test", Policy: p})
			// Some of it no policy can even say.
			ours := err == nil
			if ours {
				_, err = jail.NewPlan(eff, r)
			}
			switch {
			case c.says == "" && err != nil:
				t.Errorf("no plan: %v", err)
			case c.says != "" && (err == nil || ours && !errors.Is(err, jail.ErrPlan) ||
				!strings.Contains(err.Error(), c.says)):
				t.Errorf("error %v, want a jail.ErrPlan that says %q", err, c.says)
			}
		})
	}
}

// TestNoPlanOfNothing: the zero policy grants nothing, so there is nothing to plan.
func TestNoPlanOfNothing(t *testing.T) {
	if _, err := jail.NewPlan(policy.Effective{}, request()); !errors.Is(err, jail.ErrPlan) {
		t.Errorf("error %v", err)
	}
}

// TestIDs: the tool is the owner of its workspace, mapped into the jail's own range and nowhere
// else (T-034). Ids are numbers that the kernel gave; nobody writes one down as text (T-037).
func TestIDs(t *testing.T) {
	for _, id := range []uint32{0, 1, 1000, 65533, 65535, 65536, 1 << 30} {
		r := request()
		r.Workspace.UID, r.Workspace.GID = id, id
		p, err := jail.NewPlan(shipped(t, "default"), r)
		if err != nil {
			t.Fatal(err)
		}
		host, ok := uint32(0), id < p.IDs.Size
		if ok {
			host = p.IDs.Base + id
		}
		for _, e := range p.IDs.Extra {
			if e.Inside == id {
				host, ok = e.Host, true
			}
		}
		uid, gid := p.IDs.Host()
		if !ok || p.IDs.UID != id || host < p.IDs.Base || host-p.IDs.Base >= jail.BaseSize ||
			uid != host || gid != host {
			t.Errorf("owner %d is %d inside and %d (%d:%d) on the host, with the range from %d", id,
				p.IDs.UID, host, uid, gid, p.IDs.Base)
		}
	}
}

func TestParseID(t *testing.T) {
	for s, ok := range map[string]bool{"a": true, "A-1._x": true, strings.Repeat("a", 64): true,
		"": false, ".": false, "..": false, ".a": false, "-a": false,
		"a/b": false, "a b": false, "a\x00": false, "ä": false, strings.Repeat("a", 65): false} {
		if _, err := jail.ParseID(s); (err == nil) != ok {
			t.Errorf("%q: %v", s, err)
		}
	}
	if a, b := jail.NewID(), jail.NewID(); a == b || len(a) != 26 {
		t.Errorf("new ids %s and %s", a, b)
	}
}

// TestFilters: what starts programs or reaches beyond the jail is in no filter that a tool runs
// under, and each call is there for a reason.
func TestFilters(t *testing.T) {
	p, err := jail.NewPlan(shipped(t, "default"), request())
	if err != nil {
		t.Fatal(err)
	}
	never := []string{"execve", "execveat", "fork", "vfork", "clone3", "ptrace", "socket",
		"connect", "bind", "mount", "umount2", "unshare", "setns", "bpf", "io_uring_setup",
		"ioctl", "keyctl", "kill", "chmod", "fchmodat", "chown", "mknodat", "memfd_create",
		"seccomp", "setuid", "prctl"}
	for _, name := range never {
		if allows(p.InnerFilter, name) {
			t.Errorf("the inner filter allows %s", name)
		}
	}
	for _, name := range p.InnerFilter.Allow {
		if !allows(p.OuterFilter, name) && allows(p.InnerFilter, name) {
			t.Errorf("the inner filter allows %s, and the outer does not", name)
		}
	}
	if !allows(p.OuterFilter, "execve") {
		t.Error("the outer filter does not let jail-init execute itself; this test would see " +
			"nothing")
	}
}

// allows reports whether a filter allows a call with any arguments.
func allows(f seccomp.Filter, name string) bool {
	for _, c := range f.Only {
		if c.Call == name {
			return false
		}
	}
	for _, n := range f.Allow {
		if n == name {
			return true
		}
	}
	return false
}

// notInPlans are the limits that no plan holds, each with the file that enforces the limit.
var notInPlans = map[string]string{
	"revert":      "../supervisor/shadows/revert.go",
	"revert_time": "../supervisor/shadows/revert.go",
}

// TestLimitsAreEnforced holds that each limit changes the plan, or is in notInPlans. A limit that
// does neither bounds nothing.
func TestLimitsAreEnforced(t *testing.T) {
	planOf := func(limits policy.Limits) string {
		p := shipped(t, "default").Policy()
		p.Limits = limits
		plan, err := jail.NewPlan(resolve(t, p), request())
		if err != nil {
			t.Fatal(err)
		}
		// They repeat the limits, and enforce none.
		plan.Policy, plan.Layers = "", nil
		return string(text(t, plan))
	}
	for _, name := range policy.LimitNames() {
		wide := shipped(t, "default").Policy().Limits
		wide.Put(name, 128<<20)
		narrow := wide
		narrow.Put(name, 64<<20)
		file, elsewhere := notInPlans[name]
		inPlan := planOf(wide) != planOf(narrow)
		switch {
		case !inPlan && !elsewhere:
			t.Errorf("limit %s changes no plan: enforce it in jail/newplan.go, or name in "+
				"notInPlans the file that enforces it", name)
		case inPlan && elsewhere:
			t.Errorf("limit %s changes the plan, and notInPlans says that it does not", name)
		case elsewhere:
			if _, err := os.Stat(file); err != nil {
				t.Errorf("limit %s: %v", name, err)
			}
		}
	}
}
