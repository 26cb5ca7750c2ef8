package supervisor

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// A RecordsRequest asks for records of the log: those that all of its parts want.
type RecordsRequest struct {
	Run     string `json:"run,omitempty"`
	Session string `json:"session,omitempty"`
	// Any of them, such as denied or run.finished.
	Types []string  `json:"types,omitempty"`
	Since time.Time `json:"since,omitzero"`
	// Only before it.
	Until time.Time `json:"until,omitzero"`
	// of who asked for what was done
	UID *uint32 `json:"uid,omitempty"`
	// digest of the effective policy, or its beginning
	Policy string `json:"policy,omitempty"`
	Tool   string `json:"tool,omitempty"`
	// Decision is "denied" or "allowed".
	Decision string `json:"decision,omitempty"`
	Layer    string `json:"layer,omitempty"`
	// Of fetches: a name, or *. and a name for those below it.
	Host string `json:"host,omitempty"`
	// a pattern, such as /etc/**
	Path string `json:"path,omitempty"`
}

func (r RecordsRequest) filter() (audit.Filter, error) {
	f := audit.Filter{Run: r.Run, Session: r.Session, Since: r.Since, Until: r.Until, UID: r.UID,
		Policy: r.Policy, Tool: r.Tool, Decision: r.Decision,
		Layer: r.Layer, Host: r.Host}
	for _, t := range r.Types {
		f.Types = append(f.Types, audit.Type(t))
	}
	if r.Path != "" {
		g, err := policy.ParseGlob(r.Path)
		if err != nil {
			return f, problem.New(problem.Usage, "path: %v", err)
		}
		f.Path = g.Match
	}
	return f, nil
}

// readsAll reports whether a caller may look at the runs of all users and read all records, those
// that are of no run too: root, and who the ceiling in force says.
func (s *Supervisor) readsAll(c caller.Caller) bool { return s.permissionsOf(c).Read }

// maxOwned bounds what is remembered of the runs of one reader. Of older ones they see what they
// did themselves, and not what others did with it.
const maxOwned = 1 << 16

// An owner tells which records are of a caller's own runs. It has to see all records, in order.
type owner struct {
	caller caller.Caller
	// that were started by the caller, of those ids that can be used again
	runs map[string]bool
}

func (o *owner) owns(r audit.Record) bool {
	if r.Type == audit.TypeRunStarted {
		delete(o.runs, r.ID())
		if r.Actor.UID == o.caller.UID && r.Run != "" {
			if len(o.runs) >= maxOwned {
				clear(o.runs)
			}
			o.runs[r.ID()] = true
		}
	}
	return r.Run != "" && (r.Actor.UID == o.caller.UID || o.runs[r.ID()])
}

// readers let each user but root read the log so many times at one time: it is read with the
// daemon's time.
type readers struct {
	most int

	mu   sync.Mutex
	busy map[uint32]int
}

func newReaders(most int) *readers { return &readers{most: most, busy: map[uint32]int{}} }

func (l *readers) begin(c caller.Caller) (end func(), ok bool) {
	if c.UID == 0 {
		return func() {}, true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.busy[c.UID] >= l.most {
		return nil, false
	}
	l.busy[c.UID]++
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.busy[c.UID]--; l.busy[c.UID] == 0 {
			delete(l.busy, c.UID)
		}
	}), true
}

var errReading = problem.New(problem.Busy, "the log is being read for you already").
	WithHint("wait until that has ended")

// Records gives the records that the request wants, of those that the caller may read: of their own
// runs, or all, for root and whom the ceiling lets. That there are others is not told. The log is
// read until the context ends.
func (s *Supervisor) Records(ctx context.Context, c caller.Caller,
	req RecordsRequest) (iter.Seq2[audit.Record, error], error) {
	f, err := req.filter()
	if err != nil {
		return nil, err
	}
	return func(yield func(audit.Record, error) bool) {
		end, ok := s.readers.begin(c)
		if !ok {
			yield(audit.Record{}, errReading)
			return
		}
		defer end()
		own, readsAll := owner{c, map[string]bool{}}, s.readsAll(c)
		all := audit.Filter{}
		if readsAll {
			all = f
		}
		m := audit.NewMatcher(f)
		for r, err := range audit.Among(ctx, s.config.LogDir, all, nil, audit.Place{}) {
			switch {
			case ctx.Err() != nil:
				return
			case err != nil && r.Line == nil && !errors.Is(err, audit.ErrLine):
				yield(r, problem.New(problem.Failed, "audit log: %w", err))
				return
			case err != nil:
				// jail audit verify tells of it
				continue
			}
			if (readsAll || own.owns(r) && m.Wants(r)) && !yield(r, nil) {
				return
			}
		}
	}, nil
}
