// Package detached manages runs that continue after the client that started them leaves. Their
// output is stored on disk, so that any client can read it from the start, during and after the
// run.
package detached

import (
	"context"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/daemonlog"
	"github.com/jail-sandbox/jail/supervisor/lifetime"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/stdio"
)

// Bounds of detached runs.
const (
	// running, per user
	maxDetached = 64
	// ended, per user
	maxKept = 256
	// bytes of output of ended runs, per user
	maxKeptBytes = 1 << 30
	maxKeptAge   = 7 * 24 * time.Hour
)

// OutputLimit is a limit that detached runs get in addition to the limits of their callers.
const OutputLimit = "output=64MiB"

// Runs are the detached runs of a daemon. Its methods may be called from several goroutines.
type Runs struct {
	outputs *store
	o       Options
}

// Options say what Runs need of the daemon.
type Options struct {
	// Dir stores the outputs.
	Dir string
	// Private says that the daemon serves one client and ends with it, and so has no detached runs.
	Private bool
	// Life says whether a run may begin, and waits for running ones.
	Life *lifetime.Lifetime
	// Permissions returns what the ceiling in force permits a caller.
	Permissions func(caller.Caller) caller.Permissions
	// Run runs a tool to its end, in the session that the request names, if any.
	Run func(context.Context, caller.Caller, message.DetachRequest, stdio.Streams) message.Result
	Log *daemonlog.Log
}

// Open opens the store of outputs.
func Open(o Options) (*Runs, error) {
	outputs, err := openStore(o.Dir)
	outputs.log = o.Log
	return &Runs{outputs, o}, err
}

// Owner returns the user of a detached run, nil if the user cannot be read. there is false if no
// run has this id.
func (s *Runs) Owner(id string) (owner *uint32, there bool) {
	_, about, err := s.outputs.find(id)
	if err != nil {
		return nil, unread(err)
	}
	return &about.UID, true
}

// A run is a detached run of this daemon.
type run struct {
	about about
	out   *os.File
	in    *typing // nil without input

	// closed when the tool has started
	started chan struct{}
	// closed when the run has ended, or will not start
	over chan struct{}
	// why the run did not start; set before over is closed
	refused *problem.Error

	mu   sync.Mutex
	size int64
	// why the rest of the output is not stored
	lost     error
	ended    bool
	attached bool // somebody types
	// closed when there is more output, or the run has ended
	changed chan struct{}
}

// about is the file about.json of a detached run: whose run it is and what was requested.
type about struct {
	ID  string `json:"id"`
	UID uint32 `json:"uid"`
	// digest of the request
	Digest  string    `json:"digest"`
	Started time.Time `json:"started"`
}

// Start starts a run that continues when its client leaves, and returns when the tool has started.
// If the same caller made the same request with the same id before, Start returns that run.
func (s *Runs) Start(ctx context.Context, c caller.Caller,
	req message.DetachRequest) (message.DetachedInfo, error) {
	switch {
	case s.o.Private:
		return message.DetachedInfo{}, problem.New(problem.Refused,
			"a detached run outlives the command that starts it, so it needs a daemon for all, "+
				"and none answers").
			WithHint("start jaild, as a service or with sudo")
	case req.Terminal != nil:
		return message.DetachedInfo{}, problem.New(problem.Usage, "a detached run has no terminal")
	case req.ID == "":
		req.ID = string(jail.NewID())
	}
	if _, err := jail.ParseID(req.ID); err != nil {
		return message.DetachedInfo{}, problem.New(problem.Usage, "%v", err)
	}
	// Hold the daemon until the run can be ended.
	leave, err := s.o.Life.Enter()
	if err != nil {
		return message.DetachedInfo{}, err
	}
	if err := s.outputs.prune(c.UID); err != nil {
		leave()
		return message.DetachedInfo{}, problem.New(problem.Failed, "outputs of detached runs: %w", err)
	}
	d, known, err := s.outputs.add(about{ID: req.ID, UID: c.UID, Digest: req.Digest(),
		Started: time.Now().UTC()}, req.Input)
	if err != nil {
		leave()
		return message.DetachedInfo{}, err
	}
	if known {
		leave()
		return s.await(ctx, req.ID, d)
	}
	req.Limits = slices.Concat(req.Limits, []string{OutputLimit})
	streams := stdio.Streams{Out: writer{d, streamOut}, Err: writer{d, streamErr},
		Tracked: leave, Started: func() { close(d.started) }}
	if d.in != nil {
		streams.In = d.in
	}
	s.o.Life.Go(func() {
		res := s.o.Run(context.Background(), c, req, streams)
		leave()
		select {
		case <-d.started:
			s.outputs.finish(d, res)
		default:
			// Nothing ran, so the same id can be requested again.
			d.refused = res.Error
			s.outputs.forget(d)
		}
	})
	return s.await(ctx, req.ID, d)
}

// await waits until the tool of a detached run has started or will not start. d is nil if the run
// has ended already or belongs to another daemon.
func (s *Runs) await(ctx context.Context, id string, d *run) (message.DetachedInfo, error) {
	if d == nil {
		return s.outputs.info(id, d), nil
	}
	select {
	case <-d.started:
	case <-d.over:
		if d.refused != nil {
			return message.DetachedInfo{}, d.refused
		}
	case <-ctx.Done():
		// The run continues, and can be found by its id.
		return message.DetachedInfo{}, problem.New(problem.Failed,
			"the caller went away").WithCause(ctx.Err())
	}
	return s.outputs.info(id, d), nil
}

// find returns a detached run that the caller may see. The run is nil if it has ended or belongs to
// another daemon.
func (s *Runs) find(c caller.Caller, id string) (*run, about, error) {
	d, about, err := s.outputs.find(id)
	if err != nil || !s.o.Permissions(c).Sees(about.UID) {
		return nil, about, problem.New(problem.NotFound, "no run %q was started with --detach", id).
			WithHint("jail ps lists what runs; jail audit show --run ID what ran")
	}
	return d, about, nil
}

// Follow writes the stored output of a detached run to out and errOut, in order. If follow is true,
// it continues until the run ends. The result is nil if the run has not ended.
func (s *Runs) Follow(ctx context.Context, c caller.Caller, id string, follow bool, out,
	errOut io.Writer) (*message.Result, error) {
	d, about, err := s.find(c, id)
	if err != nil {
		return nil, err
	}
	return s.outputs.follow(ctx, about, d, follow, out, errOut)
}

// Wait waits for the end of a detached run and returns its result, without its output.
func (s *Runs) Wait(ctx context.Context, c caller.Caller, id string) (message.Result, error) {
	res, err := s.Follow(ctx, c, id, true, io.Discard, io.Discard)
	if err != nil {
		return message.Result{}, err
	}
	return *res, nil
}

// Attach connects a client to a detached run: it copies all its output from the start and, if the
// run has input, the client's input. It returns when the run ends or the client leaves, which does
// not end the run.
func (s *Runs) Attach(ctx context.Context, c caller.Caller, id string,
	streams stdio.Streams) message.Result {
	// The client need not wait for a tool to start.
	streams.Begun()
	fail := func(err error) message.Result {
		e := problem.From(err)
		return message.Result{ID: id, ExitCode: e.Exit(), Error: e}
	}
	d, about, err := s.find(c, id)
	hint := "jail logs -f " + id + " shows what it writes"
	switch may := s.o.Permissions(c); {
	case err != nil:
	case !c.MayControl(about.UID):
		// Input acts with the rights of the run's user.
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
		in := streams.In
		if in == nil {
			in = strings.NewReader("")
		}
		defer d.in.from(ctx, in)()
	}
	res, err := s.outputs.follow(ctx, about, d, true, streams.Out, streams.Err)
	if err != nil {
		return fail(err)
	}
	return *res
}

func (d *run) take() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	ok := !d.attached
	d.attached = true
	return ok
}

func (d *run) give() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.attached = false
}
