// Package records reads the audit log for callers. A caller may read the records of the caller's
// own runs, or all records.
package records

import (
	"context"
	"errors"
	"iter"
	"os/user"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// A Reader reads a daemon's log for callers. Its methods are safe for concurrent use.
type Reader struct {
	// dir is the directory of the log. extent returns the numbers of its first and last record.
	dir    string
	extent func() (first, last uint64, err error)
	// permissions returns the caller's permissions under the ceiling in force.
	permissions func(caller.Caller) caller.Permissions
	// reading bounds concurrent reads of existing records, following bounds streams of new ones.
	reading, following *slots
}

// New returns a reader of the log in dir. See Reader for extent and permissions.
func New(dir string, extent func() (first, last uint64, err error),
	permissions func(caller.Caller) caller.Permissions) *Reader {
	return &Reader{dir, extent, permissions, newSlots(1), newSlots(maxFollowing)}
}

// maxOwned bounds the remembered runs of one caller. When it is reached all are forgotten. Of a
// forgotten run the caller sees only records of the caller's own actions.
const maxOwned = 1 << 16

// An owner tells which records belong to a caller's own runs. It must see all records, in order.
type owner struct {
	caller caller.Caller
	// runs has the ids of the runs that the caller started
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

// slots bound the concurrent reads of the log for each user other than root, since reading takes
// the daemon's processor time.
type slots struct {
	most int

	mu   sync.Mutex
	busy map[uint32]int
}

func newSlots(most int) *slots { return &slots{most: most, busy: map[uint32]int{}} }

func (l *slots) begin(c caller.Caller) (end func(), ok bool) {
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

// Read returns the records that match req and that the caller may read: the records of own runs, or
// all records for root and users whom the ceiling permits. It does not show that other records
// exist. The iteration ends when ctx ends.
func (s *Reader) Read(ctx context.Context, c caller.Caller,
	req message.RecordsRequest) (iter.Seq2[audit.Record, error], error) {
	f, err := req.Filter()
	if err != nil {
		return nil, err
	}
	return func(yield func(audit.Record, error) bool) {
		end, ok := s.reading.begin(c)
		if !ok {
			yield(audit.Record{}, errReading)
			return
		}
		defer end()
		own, readsAll := owner{c, map[string]bool{}}, s.permissions(c).Read
		all := audit.Filter{}
		if readsAll {
			all = f
		}
		m := audit.NewMatcher(f)
		for r, err := range audit.Among(ctx, s.dir, all) {
			switch {
			case ctx.Err() != nil:
				return
			case err != nil && r.Line == nil && !errors.Is(err, audit.ErrLine):
				yield(r, problem.New(problem.Failed, "audit log: %w", err))
				return
			case err != nil:
				// jail audit verify reports such a line.
				continue
			}
			if (readsAll || own.owns(r) && m.Wants(r)) && !yield(r, nil) {
				return
			}
		}
	}, nil
}

// maxOfRun bounds the records that OfRun keeps in memory and returns. Read has no such bound.
const maxOfRun = 10_000

// OfRun returns the first 10,000 records of the run id.
func (s *Reader) OfRun(ctx context.Context, c caller.Caller, id string) (in message.Inspection,
	err error) {
	all, err := s.Read(ctx, c, message.RecordsRequest{Run: id})
	if err != nil {
		return in, err
	}
	for r, err := range all {
		if err != nil {
			return in, err
		}
		if in.Truncated = len(in.Records) == maxOfRun; in.Truncated {
			break
		}
		in.Records = append(in.Records, r)
	}
	switch {
	case ctx.Err() != nil:
		return in, problem.New(problem.Failed, "the caller went away").WithCause(ctx.Err())
	case len(in.Records) == 0:
		return in, problem.New(problem.NotFound, "no run is called %q", id).
			WithHint("jail ps lists what runs; jail audit show what ran")
	}
	return in, nil
}

// A WrongCondition is the error for an invalid condition of a search.
type WrongCondition struct{ Name, Value, Why string }

func (w *WrongCondition) Error() string { return w.Name + " " + w.Value + ": " + w.Why }

// Conditions parses the conditions of a search as users write them. get returns the text of the
// condition with the given name, or "". The names are those of the request's fields; user is a user
// name or a number. The error is a *WrongCondition.
func Conditions(get func(name string) string, types []string,
	now time.Time) (req message.RecordsRequest, f audit.Filter, err error) {
	wrong := func(name, why string) error { return &WrongCondition{name, get(name), why} }
	req = message.RecordsRequest{Run: get("run"), Session: get("session"), Types: types,
		Policy: get("policy"), Tool: get("tool"), Decision: get("decision"), Layer: get("layer"),
		Host: get("host"), Path: get("path")}
	if req.Policy != "" && !strings.HasPrefix(req.Policy, "sha256:") {
		req.Policy = "sha256:" + req.Policy
	}
	if d := req.Decision; d != "" && d != audit.DecisionAllowed && d != audit.DecisionDenied {
		return req, f, wrong("decision", "want allowed or denied")
	}
	if name := get("user"); name != "" {
		number := name
		if known, err := user.Lookup(name); err == nil {
			number = known.Uid
		}
		n, err := strconv.ParseUint(number, 10, 32)
		if err != nil {
			return req, f, wrong("user", "this host knows no user of the name "+name)
		}
		uid := uint32(n)
		req.UID = &uid
	}
	for _, t := range []struct {
		name string
		to   *time.Time
	}{{"since", &req.Since}, {"until", &req.Until}} {
		var ok bool
		if *t.to, ok = audit.ParseTime(get(t.name), now); !ok {
			return req, f, wrong(t.name,
				"want how long ago, as 90m, or a time, as 2006-01-02T15:04:05Z")
		}
	}
	if f, err = req.Filter(); err != nil {
		err = wrong("path", strings.TrimPrefix(err.Error(), "path: "))
	}
	return req, f, err
}
