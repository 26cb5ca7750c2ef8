package run

import (
	"slices"
	"testing"

	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/message"
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
	hit := func(name string, limit, peak int64) message.LimitHit {
		return message.LimitHit{Name: name, Limit: limit, Peak: peak}
	}
	for what, c := range map[string]struct {
		e    end
		want []message.LimitHit
	}{
		"nothing":    {end{}, nil},
		"open files": {said("open_files"), []message.LimitHit{hit("open_files", 32, 32)}},
		"two": {said("file_size", "open_files"),
			[]message.LimitHit{hit("open_files", 32, 32), hit("file_size", 100, 100)}},
		"a limit that there is not":  {said("moon", "wall", ""), nil},
		"a shadow that there is not": {said("workspace", "workspace_files"), nil},
		"tasks, which the kernel tells": {denied, []message.LimitHit{hit("pids", 12, 12),
			hit("open_files", 32, 32)}},
	} {
		if got := limitsMet(eff.Policy().Limits, c.e, nil); !slices.Equal(got, c.want) {
			t.Errorf("%s: %+v, want %+v", what, got, c.want)
		}
	}
}
