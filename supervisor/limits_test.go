package supervisor

import (
	"slices"
	"testing"

	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/runners"
)

// TestLimitsMet: what the inside says of limits is taken for limits that the policy has, with its
// figures and never beyond them.
func TestLimitsMet(t *testing.T) {
	top := policy.Top()
	top.Limits.OpenFiles, top.Limits.PIDs, top.Limits.FileSize, top.Limits.Workspace = 32, 12, 100,
		1000
	eff, err := policy.Resolve(policy.Layer{Name: "test", Policy: top})
	if err != nil {
		t.Fatal(err)
	}
	r := &run{job: &job{eff: eff}}
	said := func(names ...string) end {
		rep := &runners.Report{}
		for _, n := range names {
			rep.LimitsMet = append(rep.LimitsMet, runners.LimitMet{Name: n, Peak: 1 << 40,
				Count: 1})
		}
		return end{answer: runners.Answer{Report: rep}}
	}
	denied := said("open_files")
	denied.usage = cgroup.Usage{PIDsDenied: 3, PIDsPeak: 12}
	for what, c := range map[string]struct {
		e    end
		want []LimitHit
	}{
		"nothing":    {end{}, nil},
		"open files": {said("open_files"), []LimitHit{{"open_files", 32, 32}}},
		"two": {said("file_size", "open_files"),
			[]LimitHit{{"open_files", 32, 32}, {"file_size", 100, 100}}},
		"a limit that there is not":  {said("moon", "wall", ""), nil},
		"a shadow that there is not": {said("workspace", "workspace_files"), nil},
		"tasks, which the kernel tells": {denied, []LimitHit{{"pids", 12, 12}, {"open_files", 32,
			32}}},
	} {
		if got := r.limitsMet(c.e); !slices.Equal(got, c.want) {
			t.Errorf("%s: %+v, want %+v", what, got, c.want)
		}
	}
}

// TestCheckIO: a policy that bounds no disk needs no controller for it.
func TestCheckIO(t *testing.T) {
	if err := checkIO("", policy.TopLimits()); err != nil {
		t.Error(err)
	}
	l := policy.TopLimits()
	l.IORead = 1 << 20
	if err := checkIO("", l); (err == nil) != (cgroup.MissingIO("") == nil) {
		t.Errorf("%v, and the host says %v", err, cgroup.MissingIO(""))
	}
}
