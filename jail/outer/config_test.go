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
		for _, l := range policy.OuterLayers() {
			spec, err := config(t, plan(t, profile, l.Name))
			if err != nil {
				t.Fatal(err)
			}
			text, err := json.MarshalIndent(spec, "", "\t")
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", l.Name+"-"+profile+".json")
			if *update {
				if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
					t.Fatal(err)
				}
				continue
			}
			want, err := os.ReadFile(path)
			if err != nil || strings.TrimSpace(string(want)) != string(text) {
				t.Errorf("%s is not the bundle (%v); go test -update writes it", path, err)
			}
		}
	}
}

// What a plan must not lose on its way into a bundle.
func TestBundleHoldsPlan(t *testing.T) {
	for _, l := range policy.OuterLayers() {
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

// A plan that a bundle cannot say is refused.
func TestBundleRefuses(t *testing.T) {
	for name, change := range map[string]func(*jail.Plan){
		"a filter that answers otherwise": func(p *jail.Plan) { p.OuterFilter.Errno = "EPERM" },
		"the network of another jail":     func(p *jail.Plan) { p.NetworkOf = "other" },
		"a kind of namespace":             func(p *jail.Plan) { p.Namespaces = []jail.Namespace{"x"} },
	} {
		for _, l := range policy.OuterLayers() {
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
