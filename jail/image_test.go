package jail_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/policy"
)

// imagePlan makes the plan of a program of an image.
func imagePlan(t *testing.T, layer string,
	change func(*policy.Policy, *jail.Request)) (jail.Plan, error) {
	t.Helper()
	return outerPlan(t, "build", layer, func(p *policy.Policy, r *jail.Request) {
		p.Tools.Images, r.Caches = policy.MustGlobs("debian"), nil
		r.Image = &jail.Image{Name: "debian", Digest: "sha256:00", Dir: "/var/lib/jail/images/0/00/root",
			Top: []string{"bin", "etc", "proc", "tmp", "workspace", "odd\nname", "odd\xff"}}
		if change != nil {
			change(p, r)
		}
	})
}

// An image replaces what shows programs and settings of the host, and grants its own directories
// and nothing of the jail's.
func TestImagePlan(t *testing.T) {
	p, err := imagePlan(t, policy.OuterNone, nil)
	if err != nil {
		t.Fatal(err)
	}
	root := p.ImageRoot()
	if root == nil || root.Name != "sha256:00" || root.Target != "/" || !root.Write || !root.Exec ||
		root.Size <= 0 || root.Files <= 0 {
		t.Fatalf("%+v", root)
	}
	for _, m := range p.Mounts[1:] {
		if m.Source != "" {
			t.Errorf("%s of the host is mounted", m.Source)
		}
	}
	rules := map[string]jail.LandlockRule{}
	for _, r := range p.Landlock.Rules {
		rules[r.Path] = r
	}
	for path, want := range map[string]jail.LandlockRule{
		"/":     {Path: "/"},
		"/bin":  {Path: "/bin", Write: true, Exec: true, Pipes: true},
		"/etc":  {Path: "/etc", Write: true, Exec: true, Pipes: true},
		"/proc": {Path: "/proc"},
	} {
		if rules[path] != want {
			t.Errorf("%s: %+v, want %+v", path, rules[path], want)
		}
	}
	for path := range rules {
		if strings.HasPrefix(path, "/odd") {
			t.Errorf("a rule for %q, which no plan can name", path)
		}
	}
	without, err := outerPlan(t, "build", policy.OuterNone, nil)
	if err != nil || without.ImageRoot() != nil {
		t.Errorf("without an image: %+v, %v", without.ImageRoot(), err)
	}
}

func TestImagePlanRefused(t *testing.T) {
	for _, c := range []struct {
		layer, says string
		change      func(*policy.Policy, *jail.Request)
	}{
		{policy.OuterNone, "", nil},
		{policy.OuterRunc, "", nil},
		{policy.OuterRunsc, "the host's kernel only", nil},
		{policy.OuterNone, "tools.images does not hold", func(p *policy.Policy, _ *jail.Request) {
			p.Tools.Images = policy.MustGlobs("other")
		}},
		{policy.OuterNone, "tools.images does not hold", func(p *policy.Policy, _ *jail.Request) {
			p.Tools.Images = nil
		}},
		{policy.OuterNone, "no modules", func(p *policy.Policy, r *jail.Request) {
			p.Syscalls.Groups = append(p.Syscalls.Groups, policy.GroupWASI)
			r.Command.Runner = jail.RunnerWASI
		}},
		{policy.OuterNone, "no clean absolute path", func(_ *policy.Policy, r *jail.Request) {
			r.Image.Dir = "/"
		}},
	} {
		_, err := imagePlan(t, c.layer, c.change)
		if c.says == "" && err != nil || c.says != "" && (!errors.Is(err, jail.ErrPlan) ||
			!strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v, want %q", c.layer, err, c.says)
		}
	}
}

// The ceiling's own domain grants an image that the ceiling names, and nothing of another.
func TestImageCeiling(t *testing.T) {
	p, err := imagePlan(t, policy.OuterNone, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, r := shipped(t, "build").Policy(), request()
	r.Command.Runner = jail.RunnerNative
	r.Image = &jail.Image{Name: "debian", Digest: "sha256:00", Dir: "/x", Top: []string{"bin"}}
	for images, want := range map[string]bool{"debian": true, "other": false} {
		c := policy.Top()
		c.Tools.Images = policy.MustGlobs(images)
		if got := jail.NewCeiling(c, r, p).Landlock.Grants("/bin/sh", []string{"execute"}); got != want {
			t.Errorf("a ceiling of %s: %v, want %v", images, got, want)
		}
	}
}
