package supervisor

import (
	"context"
	"io"
	"os"
	"sync"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/stdio"
)

// A DetachRequest asks for a run that goes on without the client that started it. The id must be
// that of the path.
type DetachRequest struct {
	Request
	// Keep the tool's standard input open for a client that attaches.
	Input bool `json:"input,omitempty"`
}

// A DetachedInfo is a detached run.
type DetachedInfo struct {
	ID string `json:"id"`
	// The id that no other run has. `id` is the name that its user gave to it, where there is
	// one.
	GlobalID string    `json:"global_id,omitempty"`
	Started  time.Time `json:"started"`
	Running  bool      `json:"running"`
}

// Bounds of detached runs.
const (
	// that run, of one user
	maxDetached = 64
	// that have ended, of one user
	maxKept = 256
	// of output, of one user's that have ended
	maxKeptBytes = 1 << 30
	maxKeptAge   = 7 * 24 * time.Hour
	// of one run, where its policy allows more
	maxDetachedOutput = "64MiB"
)

// A detached run is one whose output lies on disk, where any client reads it from the start, during
// the run and after it. It is a run like any other.
type detached struct {
	about detachedAbout
	out   *os.File
	in    *typing // nil without input

	// closed when the tool runs
	started chan struct{}
	// closed when it has ended, or will not run
	over chan struct{}
	// why it does not, with over
	refused *problem.Error

	mu   sync.Mutex
	size int64
	// why the rest of what it wrote is not kept
	lost     error
	ended    bool
	attached bool // somebody types
	// closed when there is more, or the end
	changed chan struct{}
}

// detachedAbout is what is kept of a detached run beside its output and its result.
type detachedAbout struct {
	ID  string `json:"id"`
	UID uint32 `json:"uid"`
	// of what was asked for
	Digest  string    `json:"digest"`
	Started time.Time `json:"started"`
}

func (q DetachRequest) digest() string {
	// another terminal's variables ask for nothing else
	q.Inherit = nil
	return digestOf(q)
}

// Detach starts a run that goes on by itself, and returns once its tool runs, or has run. A run of
// that id that was asked for in the same words by the same caller is returned as it is.
func (s *Supervisor) Detach(ctx context.Context, c caller.Caller, req DetachRequest) (DetachedInfo,
	error) {
	switch {
	case s.config.Private:
		return DetachedInfo{}, problem.New(problem.Refused,
			"a detached run outlives the command that starts it, so it needs a daemon for all, and none answers").
			WithHint("start jaild, as a service or with sudo")
	case req.Terminal != nil:
		return DetachedInfo{}, problem.New(problem.Usage, "a detached run has no terminal")
	case req.ID == "":
		req.ID = string(jail.NewID())
	}
	if _, err := jail.ParseID(req.ID); err != nil {
		return DetachedInfo{}, problem.New(problem.Usage, "%v", err)
	}
	// until the run can be ended
	leave, err := s.Enter()
	if err != nil {
		return DetachedInfo{}, err
	}
	if err := s.outputs.prune(c.UID); err != nil {
		leave()
		return DetachedInfo{}, problem.New(problem.Failed, "outputs of detached runs: %w", err)
	}
	d, known, err := s.outputs.add(detachedAbout{ID: req.ID, UID: c.UID, Digest: req.digest(),
		Started: time.Now().UTC()}, req.Input)
	if err != nil {
		leave()
		return DetachedInfo{}, err
	}
	if known {
		leave()
		return s.awaitDetached(ctx, req.ID, d)
	}
	request := req.Request
	request.Limits = append(append([]string{}, req.Limits...), detachedOutput)
	streams := stdio.Streams{Out: detachedWriter{d, streamOut}, Err: detachedWriter{d, streamErr},
		Tracked: leave, Started: func() { close(d.started) }}
	if d.in != nil {
		streams.In = d.in
	}
	s.life.Go(func() {
		res := s.Run(context.Background(), c, request, streams)
		leave()
		select {
		case <-d.started:
			s.outputs.finish(d, res)
		default:
			// nothing ran: it can be asked for again
			d.refused = res.Error
			s.outputs.forget(d)
		}
	})
	return s.awaitDetached(ctx, req.ID, d)
}

// awaitDetached waits until a detached run's tool runs, has run or will not. d is nil where it has
// ended before, or is another daemon's.
func (s *Supervisor) awaitDetached(ctx context.Context, id string, d *detached) (DetachedInfo,
	error) {
	if d == nil {
		return s.outputs.info(id, d), nil
	}
	select {
	case <-d.started:
	case <-d.over:
		if d.refused != nil {
			return DetachedInfo{}, d.refused
		}
	case <-ctx.Done():
		// it goes on, and is there for whoever asks by its id
		return DetachedInfo{}, problem.New(problem.Failed,
			"the caller went away").WithCause(ctx.Err())
	}
	return s.outputs.info(id, d), nil
}

// findDetached finds a detached run that the caller may see; the run itself is nil when it has
// ended, or is another daemon's.
func (s *Supervisor) findDetached(c caller.Caller, id string) (*detached, detachedAbout, error) {
	d, about, err := s.outputs.find(id)
	if err != nil || !s.maySee(c, about.UID) {
		return nil, about, problem.New(problem.NotFound, "no run %q was started with --detach", id).
			WithHint("jail ps lists what runs; jail audit show --run ID what ran")
	}
	return d, about, nil
}

// Follow gives what a detached run has written, in the order in which it came, to out; and with
// follow what it goes on to write, until its end. The result is nil while it runs.
func (s *Supervisor) Follow(ctx context.Context, c caller.Caller, id string, follow bool, out,
	errOut io.Writer) (*Result, error) {
	d, about, err := s.findDetached(c, id)
	if err != nil {
		return nil, err
	}
	return s.outputs.follow(ctx, about, d, follow, out, errOut)
}

// Wait waits for the end of a run and returns how it ended, without its output: of one that is
// detached, during it and afterwards; of any other, as long as it runs.
func (s *Supervisor) Wait(ctx context.Context, c caller.Caller, id string) (Result, error) {
	s.mu.Lock()
	r := s.active[id]
	s.mu.Unlock()
	d, about, err := s.findDetached(c, id)
	if err == nil {
		res, err := s.outputs.follow(ctx, about, d, true, io.Discard, io.Discard)
		if err != nil {
			return Result{}, err
		}
		return *res, nil
	}
	if r == nil || !s.maySee(c, r.job.caller.UID) {
		return Result{}, err
	}
	select {
	case <-r.done:
		return r.result, nil
	case <-ctx.Done():
		return Result{}, problem.New(problem.Failed, "the caller went away").WithCause(ctx.Err())
	}
}

// Attach carries a detached run's streams to one more client: all that it has written, then what it
// writes, and where it was started with input what the client types. It returns the result, or when
// the client goes; the run goes on then.
func (s *Supervisor) Attach(ctx context.Context, c caller.Caller, id string,
	streams stdio.Streams) Result {
	streams.Begun() // nothing begins here
	fail := func(err error) Result {
		e := problem.From(err)
		return Result{ID: id, ExitCode: e.Exit(), Error: e}
	}
	d, about, err := s.findDetached(c, id)
	hint := "jail logs -f " + id + " shows what it writes"
	switch may := s.permissionsOf(c); {
	case err != nil:
	case !c.MayControl(about.UID):
		// what is typed is done with its user's rights
		err = problem.New(problem.Refused,
			"run %s is another user's: you may look at it, and not attach to it", id).
			WithHint(hint)
	case !may.Run:
		err = caller.MayOnlyLook(c)
	case d == nil && s.outputs.elsewhere(id):
		err = problem.New(problem.Busy,
			"the daemon before this one has run %s, and carries it to its end", id).
			WithHint(hint)
	}
	if err != nil {
		return fail(err)
	}
	if d != nil && d.in != nil {
		if !d.take() {
			return fail(problem.New(problem.Busy, "another client is attached to run %s",
				id).WithHint(hint))
		}
		defer d.give()
		defer d.in.from(ctx, streams.In)()
	}
	res, err := s.outputs.follow(ctx, about, d, true, streams.Out, streams.Err)
	if err != nil {
		return fail(err)
	}
	return *res
}

func (d *detached) take() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	ok := !d.attached
	d.attached = true
	return ok
}

func (d *detached) give() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.attached = false
}
