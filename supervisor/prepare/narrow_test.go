package prepare

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/policytest"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/profiles"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// inFiles are policies that a policy file can say, which read back as themselves.
var inFiles = rapid.Map(policytest.Valid(), func(p policy.Policy) policy.Policy {
	p.Mounts = slices.DeleteFunc(slices.Clone(p.Mounts), func(m policy.Mount) bool {
		return m.Target == "" || m.Access == policy.Cache &&
			(m.Name == "" || m.Size == policy.Unlimited)
	})
	p.Env.Set.Any = false
	p.Syscalls = policy.Top().Syscalls
	return p.Normal()
}).Filter(func(p policy.Policy) bool {
	f, err := syntax.Parse(syntax.Profile, "x.toml", render(p), nil)
	return err == nil && policytest.Same(f.Policy, p)
})

func render(p policy.Policy) []byte {
	return syntax.Render(syntax.File{Kind: syntax.Profile, Policy: p})
}

// What policies that narrow ask for is granted as far as the policy above them has it, in every
// part, in whatever order, and also when that has been narrowed: the run has the meet.
func TestNarrow(t *testing.T) {
	set, err := profiles.Load(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := &Preparer{o: Options{Policies: func() *profiles.State { return &profiles.State{Set: set} }}}
	resolve := func(t *rapid.T, above policy.Policy, asks ...policy.Policy) (policy.Policy, bool) {
		req := message.Request{Policy: string(render(above)), PolicyName: "above"}
		for i, ask := range asks {
			req.Narrow = append(req.Narrow, message.Narrow{Name: fmt.Sprint("ask ", i),
				Policy: string(render(ask))})
		}
		eff, err := s.resolve(caller.Caller{}, req)
		// Two mounts of different sources at one place are no policy at all.
		return eff.Policy(), err == nil
	}
	granted := 0
	rapid.Check(t, func(t *rapid.T) {
		parent, child, grandchild := inFiles.Draw(t, "parent"), inFiles.Draw(t, "child"),
			inFiles.Draw(t, "grandchild")
		later := parent.Meet(inFiles.Draw(t, "narrowed")).Normal()
		above, ok := resolve(t, parent)
		if !ok {
			return
		}
		got, ok := resolve(t, parent, child, grandchild)
		if !ok {
			return
		}
		granted++
		want := above.Meet(child).Meet(grandchild).Normal()
		if !policytest.Same(got, want) {
			t.Fatalf("granted\n%s\nnot\n%s", got, want)
		}
		if !got.LessEq(above) {
			t.Fatalf("%s\nis more than\n%s", got, above)
		}
		if other, ok := resolve(t, parent, grandchild, child); !ok || !policytest.Same(got, other) {
			t.Fatalf("in the other order (%t)\n%s\nnot\n%s", ok, other, got)
		}
		if f, err := syntax.Parse(syntax.Profile, "x.toml", render(later), nil); err != nil ||
			!policytest.Same(f.Policy, later) {
			return
		}
		if got, ok := resolve(t, later, child, grandchild); ok &&
			!policytest.Same(got, want.Meet(later).Normal()) {
			t.Fatalf("after the parent was narrowed\n%s\nnot\n%s", got, want.Meet(later))
		}
	})
	if granted == 0 {
		t.Fatal("nothing was granted")
	}
}

func TestTooManyNarrow(t *testing.T) {
	set, err := profiles.Load(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := &Preparer{o: Options{Policies: func() *profiles.State { return &profiles.State{Set: set} }}}
	for want, narrow := range map[string][]message.Narrow{
		problem.Usage: make([]message.Narrow, maxNarrow+1),
	} {
		var p *problem.Error
		_, err := s.resolve(caller.Caller{}, message.Request{Profile: "agent", Narrow: narrow})
		if !errors.As(err, &p) || p.Code != want {
			t.Errorf("%d policies that narrow: %v", len(narrow), err)
		}
	}
	_, err = s.resolve(caller.Caller{}, message.Request{Profile: "agent",
		Narrow: []message.Narrow{{Name: "facet 1", Policy: "memory = 1"}}})
	if err == nil {
		t.Error("a text that is no policy narrows")
	}
}
