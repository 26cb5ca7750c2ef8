package supervisor

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/supervisor/audit"
)

// A RecordsRequest asks for records of the log: those that all of its parts want.
type RecordsRequest struct {
	Run      string    `json:"run,omitempty"`
	Session  string    `json:"session,omitempty"`
	Types    []string  `json:"types,omitempty"`
	Since    time.Time `json:"since,omitzero"`
	Until    time.Time `json:"until,omitzero"`
	UID      *uint32   `json:"uid,omitempty"`    // of who asked for what was done
	Policy   string    `json:"policy,omitempty"` // digest of the effective policy, or its beginning
	Tool     string    `json:"tool,omitempty"`
	Decision string    `json:"decision,omitempty"`
	Layer    string    `json:"layer,omitempty"`
	Host     string    `json:"host,omitempty"`
	Path     string    `json:"path,omitempty"` // a pattern, such as /etc/**
}

func (r RecordsRequest) filter() (audit.Filter, error) {
	f := audit.Filter{Run: r.Run, Session: r.Session, Since: r.Since, Until: r.Until, UID: r.UID, Policy: r.Policy, Tool: r.Tool, Decision: r.Decision,
		Layer: r.Layer, Host: r.Host}
	for _, t := range r.Types {
		f.Types = append(f.Types, audit.Type(t))
	}
	if r.Path != "" {
		g, err := policy.ParseGlob(r.Path)
		if err != nil {
			return f, usage("path: %v", err)
		}
		f.Path = g.Match
	}
	return f, nil
}

// readsAll reports whether a caller may look at the runs of all users and read all records, those that are of no run too: root, and who the ceiling in force says.
func (s *Supervisor) readsAll(c Caller) bool { return s.permissionsOf(c).read }

// maxOwned bounds what is remembered of the runs of one reader. Of older ones they see what they did themselves, and not what others did with it.
const maxOwned = 1 << 16

// An owner tells which records are of a caller's own runs. It has to see all records, in order.
type owner struct {
	caller Caller
	runs   map[string]bool // that were started by the caller, of those ids that can be used again
}

func (o *owner) owns(r audit.Record) bool {
	if r.Type == audit.TypeRunStarted {
		delete(o.runs, r.Run)
		if r.Actor.UID == o.caller.UID && r.Run != "" {
			if len(o.runs) >= maxOwned {
				clear(o.runs)
			}
			o.runs[r.Run] = true
		}
	}
	return r.Run != "" && (r.Actor.UID == o.caller.UID || o.runs[r.Run])
}

// readers let each user but root read the log so many times at one time: it is read with the daemon's time.
type readers struct {
	most int

	mu   sync.Mutex
	busy map[uint32]int
}

func newReaders(most int) *readers { return &readers{most: most, busy: map[uint32]int{}} }

func (l *readers) begin(c Caller) (end func(), ok bool) {
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

var errReading = &Error{Code: CodeBusy, Message: "the log is being read for you already", Hint: "wait until that has ended"}

// Records gives the records that the request wants, of those that the caller may read: of their own runs, or all, for root and whom the ceiling lets. That there are others is not told.
// The log is read until the context ends.
func (s *Supervisor) Records(ctx context.Context, c Caller, req RecordsRequest) (iter.Seq2[audit.Record, error], error) {
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
				yield(r, failed(err, "", "audit log: %v", err))
				return
			case err != nil:
				continue // jail audit verify tells of it
			}
			if (readsAll || own.owns(r) && m.Wants(r)) && !yield(r, nil) {
				return
			}
		}
	}, nil
}
