package prepare

import (
	"slices"
	"testing"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/bundle"
)

// Of the policy's mounts a pulled bundle has those that it asks for, and memory of its own; and in
// a script each command has what its own bundle asks for.
func TestMountsThatBundlesAskFor(t *testing.T) {
	granted := policy.Top()
	granted.Mounts = policy.Mounts{{Source: "/usr/share/dict", Target: "/data/dict",
		Access: policy.Read}, {Source: "/srv", Target: "/srv", Access: policy.Read | policy.Write},
		{Target: "/tmp", Access: policy.Tmpfs}}
	eff, err := policy.Resolve(policy.Layer{Name: "profile", Policy: granted})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		needs *bundle.Needs
		want  []string // by their targets
	}{
		{nil, []string{"/data/dict", "/srv", "/tmp"}},
		{&bundle.Needs{}, []string{"/tmp"}},
		{&bundle.Needs{Mounts: []string{"/data/dict"}}, []string{"/data/dict", "/tmp"}},
		{&bundle.Needs{Mounts: []string{"/data"}}, []string{"/data/dict", "/tmp"}},
		{&bundle.Needs{Mounts: []string{"/srv/www", "/etc"}}, []string{"/srv", "/tmp"}},
		{&bundle.Needs{Mounts: []string{"/data/dictionary", "/sr"}}, []string{"/tmp"}},
		{&bundle.Needs{Mounts: []string{"/"}}, []string{"/data/dict", "/srv", "/tmp"}},
	} {
		own, err := narrowed(eff, "words", c.needs)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range own.Policy().Mounts {
			got = append(got, m.Target)
			if i := slices.IndexFunc(granted.Mounts,
				func(g policy.Mount) bool { return g.Target == m.Target }); i < 0 ||
				granted.Mounts[i] != m {
				t.Errorf("needs %+v: %v is none of those that are granted", c.needs, m)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, c.want) {
			t.Errorf("needs %+v: %q, want %q", c.needs, got, c.want)
		}

		sc := &Script{commands: map[string]runners.Command{"count": {}},
			programs: map[string]string{"count": "words/count"},
			needs:    map[string]*bundle.Needs{"count": c.needs}}
		if err := sc.narrow(eff); err != nil {
			t.Fatal(err)
		}
		command := sc.commands["count"]
		for _, m := range granted.Mounts {
			if slices.Contains(command.Unseen, m.Target) == slices.Contains(c.want, m.Target) {
				t.Errorf("needs %+v: in a script %s is hidden: %v", c.needs, m.Target,
					slices.Contains(command.Unseen, m.Target))
			}
		}
		if fetches := command.Scope != runners.NoFetch; fetches != (c.needs == nil) {
			t.Errorf("needs %+v: scope %d", c.needs, command.Scope)
		}
	}
}
