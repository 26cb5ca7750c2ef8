package outer_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/outer"
	"github.com/jail-sandbox/jail/policy"
)

var update = flag.Bool("update", false, "write the golden bundles as they are")

// plan returns the golden plan of a shipped profile, inside a layer.
func plan(t *testing.T, profile, layer string) (p jail.Plan) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "testdata", "plan-"+profile+".json"))
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err != nil {
		t.Fatal(err)
	}
	p.Outer = &jail.Outer{Layer: layer}
	return p
}

// config returns the bundle of a plan.
func config(t *testing.T, p jail.Plan) (*specs.Spec, error) {
	t.Helper()
	adapter, err := outer.For(p.Outer.Layer)
	if err != nil {
		t.Fatal(err)
	}
	return adapter.Config(p, outer.Place{Root: "/mnt", UserNS: "/proc/1/fd/9",
		Args: []string{"/run/jail/init"}, Env: []string{"GOMAXPROCS=2"}})
}

func TestGoldenBundles(t *testing.T) {
	for _, profile := range []string{"build", "default"} {
		for _, l := range bundled() {
			spec, err := config(t, plan(t, profile, l.Name))
			if err != nil {
				t.Fatal(err)
			}
			text, err := json.MarshalIndent(spec, "", "\t")
			if err != nil {
				t.Fatal(err)
			}
			golden(t, l.Name+"-"+profile+".json", string(text))
		}
		args, err := bwrap(plan(t, profile, policy.OuterBwrap))
		if err != nil {
			t.Fatal(err)
		}
		golden(t, "bwrap-"+profile+".txt", strings.Join(args, "\n"))
	}
}

// golden compares a text with the file of that name.
func golden(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil || strings.TrimSpace(string(want)) != text {
		t.Errorf("%s is not what is written (%v); go test -update writes it", path, err)
	}
}

// bundled are the layers whose runtimes take an OCI bundle.
func bundled() []policy.OuterLayer {
	return slices.DeleteFunc(policy.OuterLayers(), func(l policy.OuterLayer) bool {
		return l.Name == policy.OuterBwrap
	})
}

// bwrap returns the arguments of bubblewrap for a plan.
func bwrap(p jail.Plan) ([]string, error) {
	return outer.Bwrap(p, outer.Place{Root: "/mnt", Args: []string{"/run/jail/init"},
		Env: []string{"GOMAXPROCS=2"}},
		outer.BwrapFiles{UserNS: 5, Filter: 6, Info: 7, Ready: 8})
}

// What a plan must not lose on its way into a bundle.
func TestBundleHoldsPlan(t *testing.T) {
	for _, l := range bundled() {
		p := plan(t, "build", l.Name)
		spec, err := config(t, p)
		if err != nil {
			t.Fatal(err)
		}
		if !spec.Root.Readonly || !spec.Process.NoNewPrivileges ||
			len(spec.Process.Capabilities.Bounding) != 0 || spec.Linux.Seccomp == nil {
			t.Errorf("%s: %+v, %+v", l.Name, spec.Root, spec.Process)
		}
		if len(spec.Linux.Namespaces) != len(p.Namespaces) {
			t.Errorf("%s: namespaces %v", l.Name, spec.Linux.Namespaces)
		}
		if !l.Replaces {
			continue
		}
		// The kernel inside alone holds the rights of mounts.
		for _, m := range p.Mounts {
			if m.Kind == jail.MountProc || m.Kind == jail.MountPTS {
				continue
			}
			i := slices.IndexFunc(spec.Mounts, func(o specs.Mount) bool {
				return o.Destination == m.Target
			})
			if i < 0 {
				t.Errorf("%s: no mount at %s", l.Name, m.Target)
				continue
			}
			options := spec.Mounts[i].Options
			if !m.Write != slices.Contains(options, "ro") ||
				!m.Exec != slices.Contains(options, "noexec") ||
				!slices.Contains(options, "nosuid") || !slices.Contains(options, "nodev") {
				t.Errorf("%s: %s has %v, and the plan %+v", l.Name, m.Target, options, m)
			}
		}
	}
}

// What a plan must not lose on its way to bubblewrap: every namespace, the ids, the capabilities,
// and a root that cannot be written to.
func TestBwrapHoldsPlan(t *testing.T) {
	p := plan(t, "build", policy.OuterBwrap)
	args, err := bwrap(p)
	if err != nil {
		t.Fatal(err)
	}
	said := " " + strings.Join(args, " ") + " "
	for _, want := range []string{"--userns 5", "--unshare-pid", "--unshare-net", "--unshare-ipc",
		"--unshare-uts", "--unshare-cgroup", "--as-pid-1", "--new-session", "--uid 1234", "--gid 100",
		"--hostname jail", "--cap-drop ALL", "--dev-bind /mnt / --remount-ro /", "--clearenv",
		"--seccomp 6", "-- /run/jail/init"} {
		if !strings.Contains(said, " "+want+" ") {
			t.Errorf("%q lacks %q", args, want)
		}
	}
	for _, not := range []string{"--cap-add", "--proc", "--die-with-parent"} {
		if slices.Contains(args, not) {
			t.Errorf("%q has %s", args, not)
		}
	}
}

// A plan that a bundle cannot say is refused.
func TestBundleRefuses(t *testing.T) {
	for name, change := range map[string]func(*jail.Plan){
		"a filter that answers otherwise": func(p *jail.Plan) { p.OuterFilter.Errno = "EPERM" },
		"the network of another jail":     func(p *jail.Plan) { p.NetworkOf = "other" },
		"a kind of namespace":             func(p *jail.Plan) { p.Namespaces = []jail.Namespace{"x"} },
	} {
		p := plan(t, "build", policy.OuterBwrap)
		change(&p)
		// Its filter is compiled where bubblewrap is started.
		if args, err := bwrap(p); err == nil && p.OuterFilter.Errno == "ENOSYS" {
			t.Errorf("%s, bwrap: %q", name, args)
		}
		for _, l := range bundled() {
			p := plan(t, "build", l.Name)
			change(&p)
			if spec, err := config(t, p); err == nil {
				t.Errorf("%s, %s: %+v", name, l.Name, spec)
			}
		}
	}
	p := plan(t, "build", policy.OuterRunsc)
	p.Mounts = append(p.Mounts, jail.Mount{Kind: jail.MountState, Target: jail.AgentDir})
	if _, err := config(t, p); err == nil {
		t.Error("the database of an agent in gVisor")
	}
	if _, err := outer.For("none"); err == nil {
		t.Error("there is an adapter for no layer")
	}
}
