package jail_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/policy"
)

// outerPlan makes the plan of a shipped profile inside a layer.
func outerPlan(t *testing.T, profile, layer string,
	change func(*policy.Policy, *jail.Request)) (jail.Plan, error) {
	t.Helper()
	p, r := shipped(t, profile).Policy(), request()
	p.Outer = policy.OuterOf(layer)
	r.Runtime = &jail.Runtime{Path: "/usr/bin/" + layer, Version: "1", Digest: "sha256:00"}
	if profile == "build" {
		r.Command.Runner = jail.RunnerNative
	}
	if change != nil {
		change(&p, &r)
	}
	eff, err := policy.Resolve(policy.Layer{Name: "test", Policy: p})
	if err != nil {
		t.Fatal(err)
	}
	return jail.NewPlan(eff, r)
}

// TestProcFixed: where the kernel narrows no mounted proc, a plan has no files of the machine in
// it, and everything else. Another kernel inside has a proc of its own.
func TestProcFixed(t *testing.T) {
	fixed := func(_ *policy.Policy, r *jail.Request) { r.ProcFixed = true }
	for _, layer := range []string{"none", "bwrap", "crun", "runsc"} {
		whole, err := outerPlan(t, "build", layer, nil)
		less, err2 := outerPlan(t, "build", layer, fixed)
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		if !whole.MachineInProc() || less.MachineInProc() != (layer == "runsc") {
			t.Errorf("%s: %v, %v", layer, whole.MachineInProc(), less.MachineInProc())
		}
		if layer != "runsc" {
			whole.Mounts = slices.DeleteFunc(whole.Mounts, func(m jail.Mount) bool {
				return strings.HasPrefix(m.Target, "/proc/")
			})
		}
		if !reflect.DeepEqual(less, whole) {
			t.Errorf("%s: the plan is another:\n%+v\n%+v", layer, less, whole)
		}
	}
}

// Inside a runtime with the host's kernel the plan is the same, and names the runtime.
func TestOuterKeepsPlan(t *testing.T) {
	plain, err := outerPlan(t, "build", "none", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, layer := range []string{"bwrap", "crun", "runc"} {
		p, err := outerPlan(t, "build", layer, nil)
		if err != nil {
			t.Fatal(err)
		}
		if p.Outer == nil || p.Outer.Layer != layer || len(p.Outer.Instead) != 0 || p.KernelInside() {
			t.Errorf("%s: %+v", layer, p.Outer)
		}
		// The file with the policy names the layer, too.
		p.Outer, p.Policy, p.Files = nil, plain.Policy, plain.Files
		a, errA := json.Marshal(plain)
		b, errB := json.Marshal(p)
		if errA != nil || errB != nil || string(a) != string(b) {
			t.Errorf("%s changes more of the plan than its policy and the layer", layer)
		}
	}
}

// Inside gVisor there is no Landlock: the plan says what is in its place, and has room for gVisor.
func TestOuterKernelInside(t *testing.T) {
	plain, err := outerPlan(t, "build", "none", nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := outerPlan(t, "build", "runsc", nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Landlock.Rules) != 0 || len(p.UserCounts) != 0 || !p.KernelInside() {
		t.Errorf("landlock %+v, counts %+v", p.Landlock, p.UserCounts)
	}
	if len(p.Outer.Instead) == 0 || p.Outer.Instead[0].Layer != "Landlock" {
		t.Errorf("in place of Landlock: %+v", p.Outer.Instead)
	}
	if more := len(p.InnerFilter.Allow) - len(plain.InnerFilter.Allow); more != 1 ||
		!slices.Contains(p.InnerFilter.Allow, "getcpu") {
		t.Errorf("the inner filter allows %d calls more, want getcpu alone", more)
	}
	if p.ToolMemory() != plain.Cgroup.Memory || p.Cgroup.Memory <= plain.Cgroup.Memory {
		t.Errorf("memory %d, of which the tool's is %d", p.Cgroup.Memory, p.ToolMemory())
	}
}

// What only Landlock or the host's kernel can hold is refused inside gVisor, and planned outside.
func TestOuterRefuses(t *testing.T) {
	for _, c := range []struct {
		name, profile string
		change        func(*policy.Policy, *jail.Request)
		says          string
	}{
		{"one program of a mount", "build", func(p *policy.Policy, r *jail.Request) {
			p.Tools.Native = policy.MustGlobs("/usr/bin/make")
			r.Programs = []string{"/usr/bin/make"}
		}, "only some programs of mount"},
		{"records of files", "default", func(p *policy.Policy, _ *jail.Request) {
			p.Audit.Files = policy.FilesChanges
		}, "audit.files"},
	} {
		if _, err := outerPlan(t, c.profile, "runsc", c.change); err == nil ||
			!strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
		}
		if _, err := outerPlan(t, c.profile, "runc", c.change); err != nil {
			t.Errorf("%s, inside runc: %v", c.name, err)
		}
	}
	for _, layer := range []string{"bwrap", "runc", "runsc"} {
		_, err := outerPlan(t, "build", layer, func(_ *policy.Policy, r *jail.Request) {
			r.Runtime = nil
		})
		if err == nil || !strings.Contains(err.Error(), "runtime") {
			t.Errorf("%s without a runtime: %v", layer, err)
		}
		_, err = outerPlan(t, "default", layer, func(_ *policy.Policy, r *jail.Request) {
			r.User = &jail.User{UID: 1000, GID: 1000}
		})
		if err == nil || !strings.Contains(err.Error(), "daemon of the host") {
			t.Errorf("%s of a user: %v", layer, err)
		}
	}
	_, err := outerPlan(t, "default", "runc", func(p *policy.Policy, _ *jail.Request) {
		p.Outer = policy.OuterOf()
	})
	if err == nil || !strings.Contains(err.Error(), "outer layer") {
		t.Errorf("no layer is left: %v", err)
	}
}
