package jail_test

import (
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/syntax"
)

var update = flag.Bool("update", false, "write the golden plans as they are")

func request() jail.Request {
	return jail.Request{ID: "golden", Base: jail.FirstBase, Slice: "/jail",
		Caches:    []string{"/var/cache/jail/0"},
		Workspace: &jail.Source{Path: "/home/user/project", UID: 1234, GID: 100},
		Command: jail.Command{Runner: "wasi", Tool: "core-utils/grep", Digest: "sha256:00",
			Args: []string{"grep", "x"}, Env: []string{"LANG=C.UTF-8"}, Cwd: "/workspace"}}
}

// shipped resolves one of the shipped profiles.
func shipped(t *testing.T, name string) policy.Effective {
	t.Helper()
	find := func(name string) (string, []byte, error) {
		text, err := os.ReadFile(filepath.Join("..", "profiles", name+".toml"))
		return name + ".toml", text, err
	}
	source, text, err := find(name)
	if err != nil {
		t.Fatal(err)
	}
	file, err := syntax.Parse(syntax.Profile, source, text, find)
	if err != nil {
		t.Fatal(err)
	}
	return resolve(t, file.Policy)
}

func resolve(t testing.TB, policies ...policy.Policy) policy.Effective {
	t.Helper()
	var layers []policy.Layer
	for _, p := range policies {
		layers = append(layers, policy.Layer{Name: "test", Policy: p})
	}
	eff, err := policy.Resolve(layers...)
	if err != nil {
		t.Fatal(err)
	}
	return eff
}

// TestGoldenPlans shows every change of what the kernel is told, for the review of it.
func TestGoldenPlans(t *testing.T) {
	for _, name := range []string{"default", "readonly", "strict", "python", "fetch", "build",
		"image", "worker", "python-native", "claude-code", "codex", "agent", "agent-native", "container"} {
		t.Run(name, func(t *testing.T) {
			r := request()
			r.Later = true
			switch name {
			case "strict":
				r.Workspace, r.Command.Cwd = nil, "/"
			case "image":
				r.Later, r.Caches = false, nil
				r.Image = &jail.Image{Name: "debian", Digest: "sha256:00",
					Dir: "/var/lib/jail/images/host/00/root", Top: []string{"etc", "usr"}}
				r.Command = jail.Command{Runner: jail.RunnerNative, Tool: "/usr/games/cowsay",
					Digest: "sha256:00", Args: []string{"cowsay"}, Env: []string{"HOME=/home/tool"},
					Cwd: "/workspace"}
			case "build", "worker", "python-native", "claude-code", "codex", "agent-native", "container":
				r.Later = false
				r.Caches, r.Programs = nil, []string{"/lib64/ld-linux-x86-64.so.2",
					"/usr/bin/python3"}
				r.Command = jail.Command{Runner: jail.RunnerNative, Tool: "/usr/bin/python3",
					Digest: "sha256:00", Args: []string{"python3"},
					Env: []string{"HOME=/home/tool"}, Cwd: "/workspace"}
			}
			if name == "container" {
				r.Workspace, r.Command.Cwd = nil, "/"
			}
			if strings.HasPrefix(name, "agent") {
				r.Workspace, r.Later, r.Command.Cwd = nil, false, "/"
				r.Agent = &jail.State{Source: jail.Source{Path: "/var/lib/agents/a", UID: 1000,
					GID: 1000}, Size: 64 << 20}
			}
			plan, err := jail.NewPlan(shipped(t, name), r)
			if err != nil {
				t.Fatal(err)
			}
			got := text(t, plan)
			path := filepath.Join("testdata", "plan-"+name+".json")
			if *update {
				if err := errors.Join(os.MkdirAll("testdata", 0o755),
					os.WriteFile(path, got, 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("%v; go test -update writes it", err)
			}
			if string(got) != string(want) {
				t.Errorf("the plan is not that of %s; go test -update writes it:\n%s", path, got)
			}
			var read jail.Plan
			if err := json.Unmarshal(want, &read); err != nil ||
				string(text(t, read)) != string(want) {
				t.Errorf("the JSON of a plan does not come back as the plan: %v", err)
			}
		})
	}
}

func text(t testing.TB, p jail.Plan) []byte {
	t.Helper()
	out, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append(out, '\n')
}

// TestNewPlanIsPure makes a plan twice and spoils the first in between: they share nothing, with
// each other or with what they were made of.
func TestNewPlanIsPure(t *testing.T) {
	eff, r := shipped(t, "default"), request()
	first, err := jail.NewPlan(eff, r)
	if err != nil {
		t.Fatal(err)
	}
	want := text(t, first)
	first.OuterFilter.Allow[0], first.OuterFilter.ENOSYS[0], first.InnerFilter.ENOSYS[0], first.InnerFilter.Only[0].Mask = "x",
		"x", "x", 0
	first.Namespaces[0], first.Devices[0], first.Mounts[0].Target, first.Landlock.Rules[0].Path, first.Rlimits[0].Value = "x",
		"x", "x", "x", 9
	first.Workspace.Source = "x"
	second, err := jail.NewPlan(eff, r)
	if err != nil {
		t.Fatal(err)
	}
	if got := text(t, second); string(got) != string(want) {
		t.Errorf("the second plan is another:\n%s", got)
	}
}

// drawn draws a policy from which a plan can be made.
func drawn(t *rapid.T, label string) policy.Policy {
	p := policy.Top()
	for _, l := range []struct {
		name        string
		least, most int64
	}{
		{"wall", int64(time.Second), int64(time.Hour)}, {"cpu_time", int64(time.Second),
			int64(time.Hour)}, {"cpus", 10, 8000}, {"memory", 32 << 20, 8 << 30},
		{"pids", 12, 4096}, {"open_files", 16, 4096}, {"workspace", 1 << 20, 1 << 40},
		{"workspace_files", 1, 1 << 20}, {"file_size", 0, 1 << 40},
	} {
		n := rapid.Int64Range(l.least, l.most).Draw(t, label+" "+l.name)
		if !strings.HasPrefix(l.name, "workspace") && rapid.Bool().Draw(t, label+" no "+l.name) {
			n = policy.Unlimited
		}
		p.Limits.Put(l.name, n)
	}
	p.Mounts = nil
	for _, target := range []string{"/tmp", "/data", "/opt/x"} {
		switch rapid.IntRange(0, 3).Draw(t, label+" "+target) {
		case 1:
			p.Mounts = append(p.Mounts, policy.Mount{Target: target, Access: policy.Tmpfs})
		case 2:
			p.Mounts = append(p.Mounts,
				policy.Mount{Source: "/srv", Target: target, Access: policy.Read})
		case 3:
			p.Mounts = append(p.Mounts, policy.Mount{Source: "/srv", Target: target,
				Access: policy.Read | policy.Write | policy.Exec})
		}
	}
	p.Workspace.Access = rapid.SampledFrom([]policy.WorkspaceAccess{policy.WorkspaceRead,
		policy.WorkspaceShadow}).Draw(t, label+" workspace")
	return p
}

// TestPlanNeverWidens makes a plan of a policy and one of the same policy narrowed by another: the
// second grants no more anywhere.
func TestPlanNeverWidens(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		wide, other := drawn(rt, "a"), drawn(rt, "b")
		p, err := jail.NewPlan(resolve(t, wide), request())
		if err != nil {
			rt.Fatal(err)
		}
		narrow, err := jail.NewPlan(resolve(t, wide, other), request())
		if err != nil {
			rt.Fatal(err)
		}
		for _, fault := range wider(narrow, p) {
			rt.Errorf("%s", fault)
		}
	})
}

// wider says where p grants more than q.
func wider(p, q jail.Plan) (faults []string) {
	check := func(ok bool, what string) {
		if !ok {
			faults = append(faults, what)
		}
	}
	// 0 and below are no bound.
	atMost := func(a, b int64) bool { return b <= 0 || a > 0 && a <= b }
	check(atMost(p.Cgroup.Memory, q.Cgroup.Memory), "memory")
	check(atMost(p.Cgroup.PIDs, q.Cgroup.PIDs), "pids")
	check(atMost(p.Cgroup.CPUQuota, q.Cgroup.CPUQuota), "cpus")
	check(p.Limits.Wall <= q.Limits.Wall && p.Limits.CPUTime <= q.Limits.CPUTime &&
		p.Limits.Output <= q.Limits.Output, "limits")
	check(p.Workspace.Bytes <= q.Workspace.Bytes && p.Workspace.Files <= q.Workspace.Files,
		"workspace limits")
	check(!p.Workspace.Shadow || q.Workspace.Shadow, "workspace")
	check(slices.Equal(p.Namespaces, q.Namespaces) && p.NoNewPrivileges && len(p.Capabilities) == 0,
		"namespaces, privileges")
	check(slices.Equal(p.OuterFilter.Allow, q.OuterFilter.Allow) &&
		slices.Equal(p.InnerFilter.Allow, q.InnerFilter.Allow), "filters")
	for _, r := range q.Rlimits {
		check(slices.ContainsFunc(p.Rlimits, func(o jail.Rlimit) bool {
			return o.Name == r.Name && o.Value <= r.Value
		}), "rlimit "+r.Name)
	}
	for _, m := range p.Mounts {
		check(slices.ContainsFunc(q.Mounts, func(o jail.Mount) bool {
			return o.Kind == m.Kind && o.Source == m.Source && o.Target == m.Target &&
				(o.Write || !m.Write) && (o.Exec || !m.Exec) && (m.Kind != jail.MountTmpfs ||
				m.Size <= o.Size)
		}), "mount "+m.Target)
	}
	for _, r := range p.Landlock.Rules {
		check(slices.ContainsFunc(q.Landlock.Rules, func(o jail.LandlockRule) bool {
			return o.Path == r.Path && (o.Write || !r.Write) && (o.Exec || !r.Exec)
		}), "landlock "+r.Path)
	}
	return faults
}

// TestWiderFinds sees that the property above can fail.
func TestWiderFinds(t *testing.T) {
	plan, err := jail.NewPlan(shipped(t, "default"), request())
	if err != nil {
		t.Fatal(err)
	}
	if f := wider(plan, plan); f != nil {
		t.Fatalf("a plan is wider than itself: %v", f)
	}
	for what, change := range map[string]func(*jail.Plan){
		"memory":                 func(p *jail.Plan) { p.Cgroup.Memory = -1 },
		"pids":                   func(p *jail.Plan) { p.Cgroup.PIDs++ },
		"cpus":                   func(p *jail.Plan) { p.Cgroup.CPUQuota = 0 },
		"rlimit fsize":           func(p *jail.Plan) { p.Rlimits = p.Rlimits[:2] },
		"mount /tmp":             func(p *jail.Plan) { p.Mounts[1].Exec = true },
		"landlock /proc":         func(p *jail.Plan) { p.Landlock.Rules[2].Write = true },
		"namespaces, privileges": func(p *jail.Plan) { p.Capabilities = []string{"CAP_KILL"} },
	} {
		changed, err := jail.NewPlan(shipped(t, "default"), request())
		if err != nil {
			t.Fatal(err)
		}
		change(&changed)
		if f := wider(changed, plan); !slices.Contains(f, what) {
			t.Errorf("%s: found %v", what, f)
		}
	}
}
