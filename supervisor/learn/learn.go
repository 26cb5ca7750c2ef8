// Package learn makes a policy from jailed runs of a tool under a wide policy, whose changes are
// discarded. What the runs used becomes a draft (policy/learn). Further runs try the draft with
// items left out, so that the policy grants no more than the tool was seen to need.
package learn

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/policy/learn"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// A Daemon runs tools and returns their records.
type Daemon interface {
	RunSized(ctx context.Context, req message.Request, in io.Reader, out, errOut io.Writer,
		sizes <-chan runners.Terminal) (message.Result, error)
	Inspect(ctx context.Context, id string) (api.Records, error)
}

// A Job says which tool to learn from, and how.
type Job struct {
	// Request is the tool and its surroundings; Learn sets its policy.
	Request message.Request
	// Stdin is the standard input of each run.
	Stdin []byte
	Asked learn.Asked
	// Loaders are the dynamic loaders of the host's C libraries.
	Loaders []string
	// Names returns other names of a program of the host; nil for none.
	Names func(string) []string
	// Base is the policy that the result is merged into; nil for none.
	Base *learn.Base
	// Runs is how many runs are learned from, at least two, since only what they have in common is
	// expected of later runs.
	Runs int
	// Trials is set to try the draft with items left out. Without it, one run confirms the draft.
	Trials bool
	// OnFailure is set to learn also from a tool that exits with another code than 0.
	OnFailure bool
	// Out and Err receive the output of the first run.
	Out, Err io.Writer
	Progress func(string)
}

// A Report is the learned policy and how it was found.
type Report struct {
	Text     string         `json:"policy"`
	Draft    learn.Draft    `json:"draft"`
	Observed learn.Observed `json:"observed"`
	Fetches  []learn.Fetch  `json:"fetches,omitempty"`
	Dropped  []learn.Item   `json:"not_needed"`
	Runs     int            `json:"runs"`
	Trials   int            `json:"trials"`
	// Least is set if the tool was tried without each item of the policy.
	Least    bool `json:"least"`
	ExitCode int  `json:"exit_code"`
	// IDs are the runs that were learned from.
	IDs    []string        `json:"ids"`
	Stable map[string]bool `json:"compared"`
}

// ErrFailed is wrapped by errors about a run that met a limit, or that exited with another code
// than 0 although OnFailure is not set.
var ErrFailed = errors.New("nothing is learnt from a run that fails")

// An Unlike error tells how a run under the learned policy differed from the first ones.
type Unlike struct{ What string }

func (e *Unlike) Error() string {
	return "under what was observed the tool does not do the same: " + e.What
}

// seen is the result of one run, with digests of its output and its size in bytes.
type seen struct {
	res      message.Result
	out, err [sha256.Size]byte
	size     int64
	denied   []string
}

// A learner learns from one job.
type learner struct {
	job    Job
	d      Daemon
	report Report
	// base is the first run, which later ones are compared with.
	base seen
}

// A difference tells how a trial differed from the first runs.
type difference struct {
	// what is empty if the trial was the same.
	what string
	// limit is set if the trial reached a limit.
	limit bool
}

// Learn runs the tool and makes a policy from what the runs used.
func Learn(ctx context.Context, d Daemon, job Job) (Report, error) {
	l := &learner{job: job, d: d}
	err := l.learn(ctx)
	return l.report, err
}

func (l *learner) learn(ctx context.Context) error {
	lesson, wide, err := l.observe(ctx)
	if err != nil {
		return err
	}
	if l.job.Base != nil {
		done, err := l.granted(ctx)
		if done || err != nil {
			return err
		}
	}
	d := learn.Candidate(lesson, wide)
	if d, err = l.enough(ctx, d, lesson); err != nil {
		return err
	}
	if l.job.Base != nil {
		d = l.job.Base.Missing(d)
	}
	found := learn.Tried{Draft: d}
	if l.job.Trials {
		names := map[string][]string{}
		for _, f := range lesson.Observed.Files {
			if f.Executed > 0 && l.job.Names != nil {
				names[f.Path] = l.job.Names(f.Path)
			}
		}
		found, err = learn.Least(ctx, d, lesson.Observed.Files, names, func(ctx context.Context,
			d learn.Draft) (bool, error) {
			diff, err := l.try(ctx, d)
			return err == nil && diff.what == "", err
		})
		if err != nil {
			return err
		}
	}
	l.report.Draft, l.report.Dropped, l.report.Least = found.Draft, found.Dropped, l.job.Trials &&
		found.Whole
	l.report.Draft.Lessons = l.lessons()
	l.report.Text, err = l.text(l.report.Draft)
	return err
}

// granted reports whether the base policy suffices as it is. Then the report is the base.
func (l *learner) granted(ctx context.Context) (bool, error) {
	d := learn.Draft{Access: l.job.Base.Policy.Workspace.Access}
	diff, err := l.try(ctx, d)
	if err != nil || diff.what != "" {
		return false, err
	}
	l.report.Draft, l.report.Text = d, l.job.Base.Text
	return true, nil
}

func (l *learner) lessons() string {
	text := fmt.Sprintf("Learnt from %d runs on %s; ", l.report.Runs,
		time.Now().UTC().Format(time.DateOnly))
	switch {
	case l.report.Least:
		text += fmt.Sprintf(
			"%d more tried it with less. Without any line of a grant the tool does not do the same.", l.report.Trials)
	case l.job.Trials:
		text += fmt.Sprintf("%d more tried it with less. Not all was tried.", l.report.Trials)
	default:
		text += "what it could do without was not tried."
	}
	if l.report.ExitCode != 0 {
		text += fmt.Sprintf("\nThe tool exited with %d: this is what it needs for that.",
			l.report.ExitCode)
	}
	return text
}

func (l *learner) text(d learn.Draft) (string, error) {
	if l.job.Base != nil {
		return l.job.Base.Merged(d)
	}
	return d.Text()
}

// observe runs the tool under the wide policy. It returns what was observed and that policy.
func (l *learner) observe(ctx context.Context) (lesson learn.Lesson, wide learn.Draft, err error) {
	lesson = learn.Lesson{Asked: l.job.Asked, Loaders: l.job.Loaders}
	wide = learn.Wide(l.job.Asked)
	text, err := wide.Text()
	if err != nil {
		return lesson, wide, fmt.Errorf("bug: the learning policy: %w", err)
	}
	l.report.Stable = map[string]bool{"stdout": true, "stderr": true, "changes": true}
	for n := range max(2, l.job.Runs) {
		l.progress("run %d to learn from", n+1)
		req := l.request(text, "learning policy")
		req.Learn = true
		out, errOut := l.job.Out, l.job.Err
		if n > 0 {
			out, errOut = io.Discard, io.Discard
		}
		s, err := l.run(ctx, req, out, errOut)
		if err != nil {
			return lesson, wide, err
		}
		if err := l.usable(s); err != nil {
			return lesson, wide, err
		}
		if err := l.take(ctx, n, s, &lesson); err != nil {
			return lesson, wide, err
		}
	}
	lesson.Refused = refusals(l.base.res)
	l.report.Observed, l.report.Fetches, l.report.ExitCode = lesson.Observed, lesson.Fetches,
		l.base.res.ExitCode
	return lesson, wide, nil
}

// usable returns an error if a run failed and must not be learned from.
func (l *learner) usable(s seen) error {
	switch {
	case s.res.Error != nil:
		return s.res.Error
	case s.res.Limit != nil:
		return fmt.Errorf("%w: it met the limit %s", ErrFailed, s.res.Limit.Name)
	case s.res.ExitCode != 0 && !l.job.OnFailure:
		l.report.ExitCode = s.res.ExitCode
		return fmt.Errorf("%w: the tool exited with %d", ErrFailed, s.res.ExitCode)
	}
	return nil
}

// take adds run n to the lesson, and notes which of its outputs equal those of the first run.
func (l *learner) take(ctx context.Context, n int, s seen, lesson *learn.Lesson) error {
	l.report.Runs++
	l.report.IDs = append(l.report.IDs, s.res.ID)
	u := s.res.Usage
	peaks := learn.Peaks{Wall: time.Duration(u.WallMS) * time.Millisecond,
		CPU: time.Duration(u.CPUMS) * time.Millisecond, Memory: u.MemoryPeak, PIDs: u.PIDsPeak,
		Output:    s.size,
		Workspace: u.WorkspaceBytes, WorkspaceFiles: s.res.Changes.Added + s.res.Changes.Modified,
		FetchIn: u.FetchBytesIn, FetchOut: u.FetchBytesOut, FetchRequests: u.FetchRequests}
	lesson.Peaks = lesson.Peaks.Max(peaks)
	lesson.Changed = lesson.Changed || s.res.Changes.Any()
	if s.res.Observed != nil {
		lesson.Observed = lesson.Observed.Merge(*s.res.Observed)
	}
	if n == 0 {
		l.base = s
	} else {
		if s.res.ExitCode != l.base.res.ExitCode {
			return &Unlike{fmt.Sprintf("of two runs alike one exited with %d and one with %d",
				l.base.res.ExitCode, s.res.ExitCode)}
		}
		stable := l.report.Stable
		stable["stdout"] = stable["stdout"] && s.out == l.base.out
		stable["stderr"] = stable["stderr"] && s.err == l.base.err
		stable["changes"] = stable["changes"] && s.res.Changes == l.base.res.Changes
		l.base.denied = append(l.base.denied, s.denied...)
	}
	return l.records(ctx, s.res.ID, lesson)
}

// records adds the fetches and the kind of the tool from the run's audit records to the lesson.
func (l *learner) records(ctx context.Context, id string, lesson *learn.Lesson) error {
	all, err := l.d.Inspect(ctx, id)
	if err != nil {
		return err
	}
	if all.Truncated {
		return problem.New(problem.Refused,
			"run %s has more than %d records, and is learnt from only if all are read", id,
			len(all.Records)).
			WithHint("let the tool do less: one file or request of each kind is enough")
	}
	for _, raw := range all.Records {
		var r struct {
			Type, Tool string
			Begun      bool
			learn.Fetch
		}
		if err := json.Unmarshal(raw, &r); err != nil {
			return fmt.Errorf("record of run %s: %w", id, err)
		}
		switch {
		case r.Type == "run.started":
			lesson.Tool = r.Tool
		case r.Type == "fetch" && (r.Begun || r.Decision == "denied"):
			lesson.Fetches = append(lesson.Fetches, r.Fetch)
		}
	}
	switch {
	case strings.HasSuffix(lesson.Tool, ".wasm"):
		lesson.Kind = learn.KindModule
	case strings.HasPrefix(lesson.Tool, "/"):
		lesson.Kind = learn.KindNative
	default:
		lesson.Kind = learn.KindTool
	}
	return nil
}

func refusals(res message.Result) []string {
	var out []string
	for _, d := range res.Denied {
		// The requests themselves report refusals of the fetch proxy.
		if d.Layer != "fetch" {
			out = append(out,
				fmt.Sprintf("%s: %s, %d times (%s)", d.Layer, d.What, d.Count, d.Rule))
		}
	}
	return out
}

// enough returns the draft widened until the tool behaves the same under it: with higher limits if
// it reached one, else once with whole mounts, for uses that cannot be observed.
func (l *learner) enough(ctx context.Context, d learn.Draft, lesson learn.Lesson) (learn.Draft,
	error) {
	widened := false
	for factor := int64(1); ; {
		try := d
		if l.job.Base != nil {
			try = l.job.Base.Missing(d)
		}
		diff, err := l.try(ctx, try)
		switch {
		case err != nil:
			return d, err
		case diff.what == "":
			return d, nil
		case diff.limit && factor < 16:
			factor *= 2
			d.Limits = learn.Bounds(lesson.Peaks, len(d.Of(learn.KindFetch)) > 0, factor)
		case !widened && len(lesson.Asked.Mounts) > 0 && d.Native:
			widened = true
			d = learn.Widen(d, lesson.Asked.Mounts)
		default:
			return d, &Unlike{diff.what}
		}
	}
}

// try runs the tool under a draft and compares the run with the first ones.
func (l *learner) try(ctx context.Context, d learn.Draft) (difference, error) {
	text, err := l.text(d)
	if err != nil {
		return difference{}, err
	}
	l.report.Trials++
	l.progress("trial %d, with %d items", l.report.Trials, len(d.Items))
	s, err := l.run(ctx, l.request(text, fmt.Sprintf("learning trial %d", l.report.Trials)), io.Discard,
		io.Discard)
	if err != nil {
		return difference{}, err
	}
	return difference{what: l.unlike(s), limit: s.res.Limit != nil}, nil
}

// unlike returns how a run differs from the first ones, or "".
func (l *learner) unlike(s seen) string {
	stable := l.report.Stable
	switch {
	case s.res.Error != nil:
		return s.res.Error.Message
	case s.res.Limit != nil:
		return "it met the limit " + s.res.Limit.Name
	case s.res.ExitCode != l.base.res.ExitCode:
		return fmt.Sprintf("it exited with %d and not with %d", s.res.ExitCode, l.base.res.ExitCode)
	case stable["stdout"] && s.out != l.base.out:
		return "it wrote something else to standard output"
	case stable["stderr"] && s.err != l.base.err:
		return "it wrote something else to standard error"
	case stable["changes"] && s.res.Changes != l.base.res.Changes:
		return "it changed something else"
	}
	for _, what := range s.denied {
		if !slices.Contains(l.base.denied, what) {
			return "refused: " + what
		}
	}
	return ""
}

func (l *learner) request(text, name string) message.Request {
	req := l.job.Request
	req.ID, req.Profile, req.Policy, req.PolicyName, req.Fate = string(jail.NewID()), "", text,
		name, message.FateDiscard
	return req
}

func (l *learner) run(ctx context.Context, req message.Request, out, errOut io.Writer) (seen,
	error) {
	sumOut, sumErr := sha256.New(), sha256.New()
	var size counter
	res, err := l.d.RunSized(ctx, req, bytes.NewReader(l.job.Stdin), io.MultiWriter(out, sumOut, &size),
		io.MultiWriter(errOut, sumErr, &size), nil)
	if err != nil {
		return seen{}, err
	}
	s := seen{res: res, out: [32]byte(sumOut.Sum(nil)), err: [32]byte(sumErr.Sum(nil)),
		size: int64(size)}
	for _, d := range res.Denied {
		// Whether Landlock refusals are reported depends on the host, and the lesson must not.
		if d.Layer != "landlock" {
			s.denied = append(s.denied, d.Layer+": "+d.What)
		}
	}
	return s, ctx.Err()
}

type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

func (l *learner) progress(format string, args ...any) {
	if l.job.Progress != nil {
		l.job.Progress(fmt.Sprintf(format, args...))
	}
}
