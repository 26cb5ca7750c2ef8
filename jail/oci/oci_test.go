package oci_test

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/oci"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/syntax"
)

// spec is what engines write by default, as far as it matters here.
func spec() specs.Spec {
	var s specs.Spec
	const text = `{"ociVersion":"1.2.0","process":{"args":["sh"],"cwd":"/",
"capabilities":{"bounding":["CAP_KILL","CAP_CHOWN"],"effective":["CAP_KILL"]},
"rlimits":[{"type":"RLIMIT_NOFILE","soft":1024,"hard":1048576}]},
"root":{"path":"/b/rootfs"},
"mounts":[{"destination":"/proc","type":"proc","source":"proc"},
 {"destination":"/dev","type":"tmpfs","source":"tmpfs","options":["nosuid","mode=755"]},
 {"destination":"/sys","type":"sysfs","source":"sysfs","options":["nosuid","noexec","nodev"]}],
"linux":{"namespaces":[{"type":"pid"},{"type":"ipc"},{"type":"uts"},{"type":"mount"},
 {"type":"network"}],"resources":{"memory":{"limit":1073741824},"devices":[{"allow":true}]}}}`
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		panic(err)
	}
	return s
}

// effective is the profile container under a ceiling.
func effective(t *testing.T, change func(ceiling *policy.Policy)) policy.Effective {
	t.Helper()
	text, err := os.ReadFile("../../profiles/container.toml")
	if err != nil {
		t.Fatal(err)
	}
	file, err := syntax.Parse(syntax.Profile, "container.toml", text, nil)
	if err != nil {
		t.Fatal(err)
	}
	ceiling := policy.Top()
	if change != nil {
		change(&ceiling)
	}
	eff, err := policy.Resolve(policy.Layer{Name: policy.CeilingLayer, Policy: ceiling},
		file.Layer("profile container", ""))
	if err != nil {
		t.Fatal(err)
	}
	return eff
}

var node = oci.Node{Join: []string{"network"}, Hooks: []string{"/usr/libexec/hook"},
	Volumes: []oci.Volume{{Source: "/srv/data", Access: "write"},
		{Source: "/srv/ro", Access: "read"}}}

func bind(source, target string, options ...string) specs.Mount {
	return specs.Mount{Type: "bind", Source: source, Destination: target,
		Options: append([]string{"rbind"}, options...)}
}

func plan(t *testing.T, s specs.Spec, ceiling func(*policy.Policy)) (oci.Plan, error) {
	t.Helper()
	return oci.NewPlan("id", effective(t, ceiling), node, oci.Request{Container: "c", Bundle: "/b",
		Spec: s, Root: []string{"bin", "tmp", "proc", "dev", "sys"}})
}

// What a container gets is never more than a jail's: config.json asks for less of a wall, or leaves
// it out.
func TestPlanIsNarrow(t *testing.T) {
	s := spec()
	s.Mounts = append(s.Mounts, bind("/srv/data", "/data", "rw"), bind("/srv/ro", "/ro", "ro", "suid"))
	p, err := plan(t, s, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := p.Spec.Process.Capabilities
	if n := len(c.Bounding) + len(c.Effective) + len(c.Permitted) + len(c.Inheritable) +
		len(c.Ambient); n > 0 || !p.Spec.Process.NoNewPrivileges {
		t.Errorf("capabilities %+v, no new privileges %v", c, p.Spec.Process.NoNewPrivileges)
	}
	if want := []string{"capability CAP_CHOWN", "capability CAP_KILL"}; !slices.Equal(p.Dropped, want) {
		t.Errorf("dropped %q, want %q", p.Dropped, want)
	}
	for _, path := range []string{"/proc/sys", "/proc/sysrq-trigger"} {
		if !slices.Contains(p.Spec.Linux.ReadonlyPaths, path) {
			t.Errorf("%s can be written", path)
		}
	}
	for target, want := range map[string][]string{
		"/proc": {"nosuid", "nodev", "noexec"},
		"/sys":  {"ro", "nosuid", "nodev", "noexec"},
		"/data": {"nosuid", "nodev", "noexec", "rprivate"},
		"/ro":   {"ro", "rro", "nosuid", "nodev", "rnosuid", "rnodev", "noexec", "rprivate"},
	} {
		i := slices.IndexFunc(p.Spec.Mounts, func(m specs.Mount) bool { return m.Destination == target })
		for _, o := range want {
			if !slices.Contains(p.Spec.Mounts[i].Options, o) {
				t.Errorf("mount %s has %q, not %s", target, p.Spec.Mounts[i].Options, o)
			}
		}
		if slices.Contains(p.Spec.Mounts[i].Options, "suid") {
			t.Errorf("mount %s has suid", target)
		}
	}
	if len(p.Spec.Linux.Resources.Devices) > 0 || *p.Spec.Linux.Resources.Memory.Limit != 1<<30 ||
		*p.Spec.Linux.Resources.Memory.Swap != 1<<30 || *p.Spec.Linux.Resources.Pids.Limit != 512 {
		t.Errorf("resources %+v", p.Spec.Linux.Resources)
	}
	write := map[string]bool{}
	for _, r := range p.Landlock.Rules {
		write[r.Path] = r.Write
	}
	for path, want := range map[string]bool{"/": false, "/bin": true, "/tmp": true, "/data": true,
		"/ro": false, "/dev": true} {
		if got, ok := write[path]; !ok || got != want {
			t.Errorf("Landlock lets %s be written: %v (%v), want %v", path, got, ok, want)
		}
	}
	for _, path := range []string{"/proc", "/sys"} {
		if _, ok := write[path]; ok {
			t.Errorf("Landlock has a rule of its own for %s", path)
		}
	}
	if l := p.ProcessRlimits(p.Spec.Process); l[0] != (oci.Rlimit{Name: "nofile", Soft: 1024,
		Hard: 65536}) {
		t.Errorf("rlimits %+v", l)
	}
}

// The ceiling narrows a plan, and is in it once more by itself.
func TestCeilingHolds(t *testing.T) {
	p, err := plan(t, spec(), func(c *policy.Policy) { c.Limits.Memory = 64 << 20 })
	if err != nil {
		t.Fatal(err)
	}
	if *p.Spec.Linux.Resources.Memory.Limit != 64<<20 || p.Ceiling == nil {
		t.Errorf("memory %d, ceiling %v", *p.Spec.Linux.Resources.Memory.Limit, p.Ceiling)
	}
}

// What a container may not have is an error that names it.
func TestRefusals(t *testing.T) {
	ns := func(kind specs.LinuxNamespaceType, path string) func(*specs.Spec) {
		return func(s *specs.Spec) {
			for i, n := range s.Linux.Namespaces {
				if n.Type == kind {
					s.Linux.Namespaces[i].Path = path
				}
			}
		}
	}
	mount := func(m specs.Mount) func(*specs.Spec) {
		return func(s *specs.Spec) { s.Mounts = append(s.Mounts, m) }
	}
	for name, c := range map[string]struct {
		spec    func(*specs.Spec)
		ceiling func(*policy.Policy)
		want    string
	}{
		"native": {ceiling: func(c *policy.Policy) { c.Tools.Native = nil }, want: "tools.native"},
		"host network": {spec: func(s *specs.Spec) {
			s.Linux.Namespaces = s.Linux.Namespaces[:4]
		}, want: "namespace network is missing"},
		"ipc of others": {spec: ns("ipc", "/proc/1/ns/ipc"), want: "namespace ipc"},
		"pid of others": {spec: ns("pid", "/proc/1/ns/pid"), want: "namespace pid"},
		"network of others": {spec: ns("network", "/run/netns/x"),
			ceiling: func(c *policy.Policy) { c.Fetch.Allow = nil }, want: "the ceiling bounds"},
		"source":      {spec: mount(bind("/etc", "/e", "ro")), want: "mount /e .* /etc is not granted by a mount"},
		"write":       {spec: mount(bind("/srv/ro", "/e")), want: "write of /srv/ro is not granted"},
		"ceiling":     {spec: mount(bind("/srv/data", "/e")), ceiling: func(c *policy.Policy) { c.Mounts = nil }, want: "is not granted by the ceiling"},
		"dots":        {spec: mount(bind("/srv/data", "/a/../proc")), want: "mount /a/../proc"},
		"relative":    {spec: mount(bind("/srv/data", "a")), want: "mount a of"},
		"root":        {spec: mount(bind("/srv/data", "/")), want: "mount / of"},
		"proc":        {spec: mount(bind("/srv/data", "/proc/sys")), want: "nothing is mounted in /proc"},
		"dev":         {spec: mount(bind("/srv/data", "/dev")), want: "the container's own"},
		"shared":      {spec: mount(bind("/srv/data", "/e", "rshared")), want: "propagation rshared"},
		"option":      {spec: mount(bind("/srv/data", "/e", "idmap")), want: `option "idmap"`},
		"file system": {spec: mount(specs.Mount{Type: "ext4", Destination: "/e"}), want: `type "ext4"`},
		"proc elsewhere": {spec: mount(specs.Mount{Type: "proc", Destination: "/p"}),
			want: "proc is for /proc only"},
		"device": {spec: func(s *specs.Spec) {
			s.Linux.Devices = []specs.LinuxDevice{{Path: "/dev/kvm", Type: "c", Major: 10, Minor: 232}}
		}, want: "device /dev/kvm"},
		"device by another name": {spec: func(s *specs.Spec) {
			s.Linux.Devices = []specs.LinuxDevice{{Path: "/dev/null", Type: "c", Major: 1, Minor: 1}}
		}, want: "device /dev/null"},
		"hook": {spec: func(s *specs.Spec) {
			s.Hooks = &specs.Hooks{Poststart: []specs.Hook{{Path: "/bin/sh"}}}
		}, want: "hook poststart"},
		"notify": {spec: func(s *specs.Spec) {
			s.Linux.Seccomp = &specs.LinuxSeccomp{ListenerPath: "/run/x"}
		}, want: "listenerPath"},
		"unified": {spec: func(s *specs.Spec) {
			s.Linux.Resources.Unified = map[string]string{"memory.max": "max"}
		}, want: "memory.max"},
		"handler": {spec: func(s *specs.Spec) {
			s.Annotations = map[string]string{"run.oci.handler": "krun"}
		}, want: `annotation run.oci.handler .* "krun" is not supported`},
		"cwd": {spec: func(s *specs.Spec) { s.Process.Cwd = "x" }, want: "process.cwd"},
	} {
		t.Run(name, func(t *testing.T) {
			s := spec()
			if c.spec != nil {
				c.spec(&s)
			}
			_, err := plan(t, s, c.ceiling)
			if err == nil || !matches(c.want, err.Error()) {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
}

// The plan of a module has the filter of WebAssembly tools, and lets nothing be executed. The policy
// has to let every module run, and so has the ceiling.
func TestModule(t *testing.T) {
	const variant = "module.wasm.image/variant"
	for name, c := range map[string]struct {
		found       bool
		annotations map[string]string
		want        bool
	}{
		"program":         {},
		"found":           {found: true, want: true},
		"handler":         {annotations: map[string]string{"run.oci.handler": "wasm"}, want: true},
		"variant":         {annotations: map[string]string{variant: "compat"}, want: true},
		"smart, program":  {annotations: map[string]string{variant: "compat-smart"}},
		"smart, a module": {true, map[string]string{"run.oci.handler": "wasm-smart"}, true},
	} {
		s := spec()
		s.Annotations = c.annotations
		request := oci.Request{Container: "c", Bundle: "/b", Spec: s, Root: []string{"bin"},
			Module: c.found}
		p, err := oci.NewPlan("id", effective(t, nil), node, request)
		if err != nil {
			t.Fatal(err)
		}
		executes := slices.Contains(p.InnerFilter.Allow, "execve") ||
			slices.ContainsFunc(p.Landlock.Rules, func(r jail.LandlockRule) bool { return r.Exec })
		if p.Module != c.want || executes == c.want {
			t.Errorf("%s: module %v, executes %v", name, p.Module, executes)
		}
		for ceiling, change := range map[string]func(*policy.Policy){
			"tools.modules": func(c *policy.Policy) { c.Tools.Modules = policy.MustGlobs("/opt/**") },
			"wasi":          func(c *policy.Policy) { c.Syscalls.Groups = []string{"native", "loopback"} },
		} {
			_, err := oci.NewPlan("id", effective(t, change), node, request)
			if refused := err != nil && strings.Contains(err.Error(), "tools.modules"); refused != c.want {
				t.Errorf("%s, a ceiling that bounds %s: %v", name, ceiling, err)
			}
		}
	}
}

// matches reports whether the parts of a pattern are in text, in this order.
func matches(pattern, text string) bool {
	for part := range strings.SplitSeq(pattern, ".*") {
		_, rest, ok := strings.Cut(text, strings.TrimSpace(part))
		if !ok {
			return false
		}
		text = rest
	}
	return true
}

// A hook that the operator names, and a network that the operator lets containers share, are
// granted: the control of the refusals.
func TestGrants(t *testing.T) {
	s := spec()
	s.Hooks = &specs.Hooks{Poststart: []specs.Hook{{Path: "/usr/libexec/hook"}}}
	for i, n := range s.Linux.Namespaces {
		if n.Type == specs.NetworkNamespace {
			s.Linux.Namespaces[i].Path = "/run/netns/x"
		}
	}
	p, err := plan(t, s, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Warnings) != 3 {
		t.Errorf("warnings %q", p.Warnings)
	}
}
