// Package learn makes a policy from runs of a tool. The runs are jailed ones under a wide policy,
// with their walls, limits and records; nothing that they do becomes real. What they were seen to
// do becomes a draft (policy/learn), and further runs try what the draft can do without, so that
// what is written is no more than what is needed, and was seen to be enough.
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

// A Daemon runs tools.
type Daemon interface {
	RunSized(ctx context.Context, req message.Request, in io.Reader, out, errOut io.Writer,
		sizes <-chan runners.Terminal) (message.Result, error)
	Inspect(ctx context.Context, id string) (api.Records, error)
}

// A Job is what to learn.
type Job struct {
	// The tool and its surroundings; its policy is learn's.
	Request message.Request
	// That each run gets anew.
	Stdin []byte
	Asked learn.Asked
	// Of C libraries, that the host has.
	Loaders []string
	// By which a program of the host is known besides.
	Names func(string) []string
	// A policy that what is learnt is merged into.
	Base *learn.Base
	// Runs is how many runs are learnt from; two are the least, since only what two have in common
	// is expected of a third.
	Runs int
	// Trials says that what can be left out is tried. Without them one run confirms what was
	// observed.
	Trials bool
	// OnFailure says to learn also from a tool that does not exit with 0.
	OnFailure bool
	// What the tool says in its first run.
	Out, Err io.Writer
	Progress func(string)
}

// A Report is what was learnt.
type Report struct {
	Text     string         `json:"policy"`
	Draft    learn.Draft    `json:"draft"`
	Observed learn.Observed `json:"observed"`
	Fetches  []learn.Fetch  `json:"fetches,omitempty"`
	Dropped  []learn.Item   `json:"not_needed"`
	Runs     int            `json:"runs"`
	Trials   int            `json:"trials"`
	// Each item was tried without.
	Least    bool `json:"least"`
	ExitCode int  `json:"exit_code"`
	// Of the runs that were learnt from.
	IDs    []string        `json:"ids"`
	Stable map[string]bool `json:"compared"`
}

// ErrFailed is wrapped where the tool failed and nothing was asked to be learnt from that.
var ErrFailed = errors.New("nothing is learnt from a run that fails")

// An Unlike error says that the tool does not do the same under what was learnt.
type Unlike struct{ What string }

func (e *Unlike) Error() string {
	return "under what was observed the tool does not do the same: " + e.What
}

// seen is one run.
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
	// What is expected of each run.
	base seen
}

// A difference says in what a run is another than those that were learnt from.
type difference struct {
	// what is empty where the run is the same.
	what string
	// limit says that the run met one.
	limit bool
}

// Learn runs the tool and makes a policy.
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

// granted reports whether the policy that is added to is enough as it is. Then nothing is added.
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

// observe runs the tool under the wide policy and says what was seen.
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

// usable refuses to learn from a run that failed.
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

// take adds a run to the lesson, and what of it is as before to what is expected.
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

// records reads from the log what the run asked of the network, and how its tool was found.
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

// enough makes the draft one under which the tool does the same: with larger limits where it met
// one, and with the whole of what it was shown where something was used that cannot be observed.
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

// try runs the tool under a draft and compares.
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

// unlike says in what a run is another than those that were learnt from, empty where in nothing.
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
