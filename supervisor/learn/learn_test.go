package learn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/learn"
	"github.com/jail-sandbox/jail/policy/paths"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// fakeDaemon runs a tool that needs what needs says of a policy, and does what it always does.
type fakeDaemon struct {
	needs func(p policy.Policy) bool
	// Of each run that has what it needs.
	result message.Result
	runs   []message.Request
	// Standard output is another each time.
	noise  bool
	memory int64
	inputs []string
}

func (d *fakeDaemon) RunSized(_ context.Context, req message.Request, in io.Reader, out,
	_ io.Writer, _ <-chan runners.Terminal) (message.Result, error) {
	d.runs = append(d.runs, req)
	text, err := io.ReadAll(in)
	if err != nil {
		return message.Result{}, err
	}
	d.inputs = append(d.inputs, string(text))
	file, err := syntax.Parse(syntax.Profile, "x.toml", []byte(req.Policy), nil)
	if err != nil {
		return message.Result{}, fmt.Errorf("%w\n%s", err, req.Policy)
	}
	res := d.result
	res.ID = req.ID
	if !req.Learn {
		res.Observed = nil
	}
	switch {
	case d.memory > file.Policy.Limits.Memory:
		res.Limit, res.ExitCode = &message.LimitHit{Name: "memory"}, 137
	case !d.needs(file.Policy):
		res.ExitCode = 9
	case d.noise:
		fmt.Fprintln(out, len(d.runs))
	default:
		fmt.Fprintln(out, "done")
	}
	return res, nil
}

func (d *fakeDaemon) Inspect(context.Context, string) (api.Records, error) {
	return api.Records{Records: []json.RawMessage{
		json.RawMessage(`{"type":"run.started","tool":"/usr/bin/tool"}`)}}, nil
}

func job() Job {
	usr := policy.Mount{Source: "/usr", Target: "/usr", Access: policy.Read | policy.Exec}
	return Job{Request: message.Request{Tool: "tool"}, Stdin: []byte("in"), Trials: true,
		Out: io.Discard, Err: io.Discard,
		Asked: learn.Asked{Name: "tool", About: "x", Run: "jail run -- tool", Native: true,
			Mounts: []policy.Mount{usr}}}
}

func observed(files ...learn.File) message.Result {
	return message.Result{Observed: &learn.Observed{Files: files}}
}

func canRead(p policy.Policy, path string) bool {
	return slices.ContainsFunc(p.Mounts, func(m policy.Mount) bool {
		return paths.Within(m.Target, path)
	})
}

// TestLearns: the runs that are learnt from are marked so, have the wide policy and leave nothing;
// each gets the same input; what comes out is the least.
func TestLearns(t *testing.T) {
	d := &fakeDaemon{needs: func(p policy.Policy) bool {
		return canRead(p, "/usr/share/tool/x") && p.Env.Set.Values["HOME"] != ""
	},
		result: observed(learn.File{Path: "/usr/share/tool/x", Opened: 1},
			learn.File{Path: "/usr/bin/tool", Opened: 1, Executed: 1, Program: true})}
	r, err := Learn(context.Background(), d, job())
	if err != nil {
		t.Fatal(err)
	}
	learnt := 0
	for i, req := range d.runs {
		if req.Learn {
			learnt++
		}
		if req.Fate != message.FateDiscard || d.inputs[i] != "in" || req.ID == "" ||
			!strings.HasPrefix(req.PolicyName, "learning ") {
			t.Errorf("run %d: %+v, input %q", i, req, d.inputs[i])
		}
	}
	if learnt != 2 || r.Runs != 2 || r.Trials != len(d.runs)-2 || !r.Least {
		t.Errorf("%d learnt from, %d runs, %d trials, least %t", learnt, r.Runs, r.Trials, r.Least)
	}
	if !r.Draft.Has(learn.KindMount, "/usr/share/tool") || !r.Draft.Has(learn.KindEnv,
		"HOME=/home/tool") || len(r.Draft.Items) != 3 {
		t.Errorf("%+v", r.Draft.Items)
	}
}

// TestLearnsWhatIsNotObserved: what a tool uses without opening it is found by showing all and
// taking away.
func TestLearnsWhatIsNotObserved(t *testing.T) {
	d := &fakeDaemon{needs: func(p policy.Policy) bool { return canRead(p, "/usr/lib/unseen") },
		result: observed()}
	r, err := Learn(context.Background(), d, job())
	if err != nil || !r.Draft.Has(learn.KindMount, "/usr") {
		t.Errorf("%v %+v", err, r.Draft.Items)
	}
}

// TestLearnsNothing: of a tool that fails, whose runs differ in how they end, or that needs what no
// run is shown.
func TestLearnsNothing(t *testing.T) {
	yes := func(policy.Policy) bool { return true }
	failing := observed()
	failing.ExitCode = 3
	for _, c := range []struct {
		name string
		d    *fakeDaemon
		job  func(*Job)
		want func(error, Report) bool
	}{
		{"a failure", &fakeDaemon{needs: yes, result: failing}, nil, func(err error,
			r Report) bool {
			return errors.Is(err, ErrFailed) && r.ExitCode == 3 && r.Text == ""
		}},
		{"a failure that was asked for", &fakeDaemon{needs: yes, result: failing},
			func(j *Job) { j.OnFailure = true },
			func(err error, r Report) bool {
				return err == nil && r.ExitCode == 3 && strings.Contains(r.Text, "exited with 3")
			}},
		{"a limit", &fakeDaemon{needs: yes, result: observed(), memory: 1 << 40}, nil,
			func(err error, r Report) bool { return errors.Is(err, ErrFailed) && r.Text == "" }},
		{"an error of jail's", &fakeDaemon{needs: yes,
			result: message.Result{Error: &problem.Error{Code: problem.Refused, Message: "no"}}},
			nil,
			func(err error, _ Report) bool {
				var e *problem.Error
				return errors.As(err, &e) && e.Code == problem.Refused
			}},
		{"what needs the learning policy itself",
			&fakeDaemon{needs: func(p policy.Policy) bool {
				return p.Limits.OpenFiles == 1024 && p.Limits.PIDs == 512
			}, result: observed()}, nil,
			func(err error, r Report) bool {
				var e *Unlike
				return errors.As(err, &e) && r.Text == ""
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := job()
			if c.job != nil {
				c.job(&j)
			}
			if r, err := Learn(context.Background(), c.d, j); !c.want(err, r) {
				t.Errorf("%v %+v", err, r)
			}
		})
	}
}

// TestLearnsLimits: a tool that needs more under what was learnt than its peak said gets more.
func TestLearnsLimits(t *testing.T) {
	d := &fakeDaemon{needs: func(policy.Policy) bool { return true }, result: observed(),
		memory: 200 << 20}
	j := job()
	r, err := Learn(context.Background(), d, j)
	if err != nil || !strings.Contains(r.Text, `memory = "256MiB"`) {
		t.Errorf("%v\n%s", err, r.Text)
	}
}

// TestNoise: what is another in each run is not compared.
func TestNoise(t *testing.T) {
	d := &fakeDaemon{needs: func(policy.Policy) bool { return true }, result: observed(),
		noise: true}
	r, err := Learn(context.Background(), d, job())
	if err != nil || r.Stable["stdout"] || !r.Stable["stderr"] {
		t.Errorf("%v %v", err, r.Stable)
	}
}

// TestNoTrials: what was observed is confirmed by one run, and nothing is tried without.
func TestNoTrials(t *testing.T) {
	d := &fakeDaemon{needs: func(policy.Policy) bool { return true }, result: observed()}
	j := job()
	j.Trials = false
	r, err := Learn(context.Background(), d, j)
	if err != nil || len(d.runs) != 3 || r.Least || !strings.Contains(r.Text, "was not tried") {
		t.Errorf("%v, %d runs\n%s", err, len(d.runs), r.Text)
	}
}

// TestAdds: a policy that is added to keeps what it has, and each trial is of the whole.
func TestAdds(t *testing.T) {
	first := &fakeDaemon{needs: func(p policy.Policy) bool { return canRead(p, "/usr/share/a/x") },
		result: observed(learn.File{Path: "/usr/share/a/x", Opened: 1})}
	r, err := Learn(context.Background(), first, job())
	if err != nil {
		t.Fatal(err)
	}
	file, err := syntax.Parse(syntax.Profile, "x.toml", []byte(r.Text), nil)
	if err != nil {
		t.Fatal(err)
	}
	both := func(p policy.Policy) bool {
		return canRead(p, "/usr/share/a/x") && canRead(p, "/usr/share/b/y")
	}
	second := &fakeDaemon{needs: both, result: observed(learn.File{Path: "/usr/share/b/y",
		Opened: 1}, learn.File{Path: "/usr/share/a/x", Opened: 1})}
	j := job()
	j.Base = &learn.Base{Text: r.Text, Policy: file.Policy}
	if same, err := Learn(context.Background(), first, j); err != nil || same.Text != r.Text {
		t.Errorf("a policy that is enough became another: %v\n%s", err, same.Text)
	}
	more, err := Learn(context.Background(), second, j)
	if err != nil {
		t.Fatal(err)
	}
	file, err = syntax.Parse(syntax.Profile, "x.toml", []byte(more.Text), nil)
	if err != nil || !both(file.Policy) || !strings.HasPrefix(more.Text,
		strings.TrimRight(r.Text, "\n")) {
		t.Errorf("%v\n%s", err, more.Text)
	}
}
