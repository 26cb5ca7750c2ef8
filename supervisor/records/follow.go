package records

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

const (
	// maxFollowing bounds the concurrent streams of one user other than root: each stream looks for
	// new records ten times a second.
	maxFollowing = 4
	// rightsEvery is how often a stream checks that its user may still read all records.
	rightsEvery = time.Second
)

// Follow calls each for the records that match req and that the caller may read, and then for new
// ones, until ctx ends or each returns an error. It first calls begin with the number after which
// the stream starts, so that an interrupted caller can continue there. After the last existing
// record it calls each once with an empty record. It reads the log's files, so a slow reader delays
// no writer.
func (s *Reader) Follow(ctx context.Context, c caller.Caller, req message.EventsRequest,
	begin func(after uint64) error, each func(audit.Record) error) error {
	filter, err := req.Filter()
	if err != nil {
		return err
	}
	end, ok := s.following.begin(c)
	if !ok {
		return problem.New(problem.Busy,
			"records are being streamed to you as often as may be at one time").
			WithHint("end one of those streams")
	}
	defer end()
	caughtUp, ok := s.reading.begin(c)
	if !ok {
		return errReading
	}
	defer caughtUp()
	e := events{s: s, own: owner{c, map[string]bool{}}, readsAll: s.permissions(c).Read,
		match: audit.NewMatcher(filter), each: each,
		checked: time.Now(), caughtUp: caughtUp}
	if err := e.place(req.After); err != nil {
		return err
	}
	if err := begin(e.behind); err != nil {
		return err
	}
	from := e.behind
	if !e.readsAll || filter.Tool != "" {
		// The record of a run's start has the user and the tool.
		from = 0
	}
	if from == e.last {
		if err := e.atEnd(); err != nil {
			return err
		}
	}
	for r, err := range audit.Follow(ctx, s.dir, audit.Filter{}, from) {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && r.Line == nil && !errors.Is(err, audit.ErrLine):
			return problem.New(problem.Failed, "audit log: %w", err)
		case err != nil:
			// jail audit verify reports such a line.
			e.unsure = true
			continue
		}
		if err := e.take(r); err != nil {
			return err
		}
		if r.Seq >= e.last && !e.told {
			if err := e.atEnd(); err != nil {
				return err
			}
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return problem.New(problem.Failed,
		"audit log: behind record %d is a line that cannot be read on from", e.behind).
		WithHint("jail audit verify tells where")
}

// events is the state of one stream of records.
type events struct {
	s        *Reader
	own      owner
	readsAll bool
	// checked is when readsAll was last checked.
	checked time.Time
	match   *audit.Matcher
	each    func(audit.Record) error
	// caughtUp frees the user's slot for reading the existing records.
	caughtUp func()

	// behind is the number of the last handled record.
	behind uint64
	// last is the number of the last record when the stream began.
	last uint64
	// told: the empty record that marks the end of the existing records was sent.
	told bool
	// unsure: unreadable lines came after record behind, so a gap in the numbers is no error.
	unsure bool
}

// place sets the record after which the stream begins: after, or the end of the log if after is
// nil. It returns an error if some records after it were pruned, or if the log does not reach it.
func (e *events) place(after *uint64) error {
	first, last, err := e.s.extent()
	if err != nil {
		return problem.New(problem.Failed, "audit log: %w", err)
	}
	e.behind, e.last = last, last
	if after == nil {
		return nil
	}
	e.behind = *after
	switch {
	case *after > last:
		return problem.New(problem.Usage, "after=%d: the log ends with record %d", *after, last)
	case *after > 0 && *after+1 < first:
		return gone(*after+1, first-1)
	}
	return nil
}

// gone returns the error for pruned records first to last, which a follower cannot get.
func gone(first, last uint64) *problem.Error {
	return problem.New(problem.NotFound,
		"records %d to %d were taken away, as [keep] says or by jail audit prune", first, last).
		WithHint(fmt.Sprintf("a gap record tells of it; after=%d gives what is kept", last))
}

func (e *events) take(r audit.Record) error {
	owned := e.own.owns(r)
	wanted := e.match.Wants(r)
	if r.Seq <= e.behind {
		return nil
	}
	if e.behind > 0 && r.Seq > e.behind+1 && !e.unsure {
		return gone(e.behind+1, r.Seq-1)
	}
	if e.readsAll && time.Since(e.checked) > rightsEvery {
		if e.checked = time.Now(); !e.s.permissions(e.own.caller).Read {
			return problem.New(problem.Refused,
				"the ceiling no longer lets uid %d read the records of all users",
				e.own.caller.UID).
				WithHint("ask again, for those of your own")
		}
	}
	e.behind, e.unsure = r.Seq, false
	if !wanted || !owned && !e.readsAll {
		return nil
	}
	return e.each(r)
}

// atEnd sends the empty record that marks the end of the existing records.
func (e *events) atEnd() error {
	e.told = true
	e.caughtUp()
	return e.each(audit.Record{})
}
