// Package detached has the runs that go on without the client that started them: their output lies
// on disk, where any client reads it from the start, during the run and after it.
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
	// that run, of one user
	maxDetached = 64
	// that have ended, of one user
	maxKept = 256
	// of output, of one user's that have ended
	maxKeptBytes = 1 << 30
	maxKeptAge   = 7 * 24 * time.Hour
)

// OutputLimit is the limit that detached runs get beside their callers'.
const OutputLimit = "output=64MiB"

// Runs are the detached runs of a daemon. Its methods may be called from several goroutines.
type Runs struct {
	outputs *store
	o       Options
}

// Options say what Runs need of the daemon.
type Options struct {
	// Dir is where the outputs are kept.
	Dir string
	// Private says that the daemon ends with its one client, and so has no detached runs.
	Private bool
	// Life decides what may begin, and waits for what runs.
	Life *lifetime.Lifetime
	// Permissions returns what the ceiling in force lets a caller do.
	Permissions func(caller.Caller) caller.Permissions
	// Run runs a tool to its end, in the session that the request names, if it names one.
	Run func(context.Context, caller.Caller, message.DetachRequest, stdio.Streams) message.Result
	Log *daemonlog.Log
}

// Open opens the store of outputs.
func Open(o Options) (*Runs, error) {
	outputs, err := openStore(o.Dir)
	outputs.log = o.Log
	return &Runs{outputs, o}, err
}

// Owner returns whose a detached run is, nil if that cannot be read, and whether there is one of that
// id.
func (s *Runs) Owner(id string) (owner *uint32, there bool) {
	_, about, err := s.outputs.find(id)
	if err != nil {
		return nil, unread(err)
	}
	return &about.UID, true
}

// A run is a detached one that this daemon has. It is a run like any other.
type run struct {
	about about
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

// about is the file about.json of a detached run: whose run it is and what was requested.
type about struct {
	ID  string `json:"id"`
	UID uint32 `json:"uid"`
	// of what was asked for
	Digest  string    `json:"digest"`
	Started time.Time `json:"started"`
}

// Start starts a run that goes on when its client leaves, and returns when the tool has started. If
// the same caller made the same request with the same id before, Start returns that run.
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
	// until the run can be ended
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
			// nothing ran: it can be asked for again
			d.refused = res.Error
			s.outputs.forget(d)
		}
	})
	return s.await(ctx, req.ID, d)
}

// await waits until a detached run's tool runs, has run or will not. d is nil where it has
// ended before, or is another daemon's.
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
		// it goes on, and can be asked for by its id
		return message.DetachedInfo{}, problem.New(problem.Failed,
			"the caller went away").WithCause(ctx.Err())
	}
	return s.outputs.info(id, d), nil
}

// find finds a detached run that the caller may see; the run itself is nil when it has
// ended, or is another daemon's.
func (s *Runs) find(c caller.Caller, id string) (*run, about, error) {
	d, about, err := s.outputs.find(id)
	if err != nil || !s.o.Permissions(c).Sees(about.UID) {
		return nil, about, problem.New(problem.NotFound, "no run %q was started with --detach", id).
			WithHint("jail ps lists what runs; jail audit show --run ID what ran")
	}
	return d, about, nil
}

// Follow gives what a detached run has written, in the order in which it came, to out; and with
// follow what it goes on to write, until its end. The result is nil while it runs.
func (s *Runs) Follow(ctx context.Context, c caller.Caller, id string, follow bool, out,
	errOut io.Writer) (*message.Result, error) {
	d, about, err := s.find(c, id)
	if err != nil {
		return nil, err
	}
	return s.outputs.follow(ctx, about, d, follow, out, errOut)
}

// Wait waits for the end of a detached run and returns how it ended, without its output.
func (s *Runs) Wait(ctx context.Context, c caller.Caller, id string) (message.Result, error) {
	res, err := s.Follow(ctx, c, id, true, io.Discard, io.Discard)
	if err != nil {
		return message.Result{}, err
	}
	return *res, nil
}

// Attach carries a detached run's streams to one more client: all that it has written, then what it
// writes, and where it was started with input what the client types. It returns the result, or when
// the client goes; the run goes on then.
func (s *Runs) Attach(ctx context.Context, c caller.Caller, id string,
	streams stdio.Streams) message.Result {
	// No tool starts here that the client would have to wait for.
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
