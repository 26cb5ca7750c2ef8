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
	// maxFollowing is how many streams of records a user but root may have at one time: each looks
	// ten times a second whether the log has grown.
	maxFollowing = 4
	// rightsEvery is how long a stream goes on by a ceiling that is no longer in force.
	rightsEvery = time.Second
)

// Follow gives the records that the request wants, of those that the caller may read, as they are
// written, until ctx ends. begin gets the number after which they begin: a caller that is cut off
// before it sees a record goes on there. A record without a line says that all those are given that
// were there at the beginning. Where each returns an error, that is the end, and the error. It
// reads the log's files, so that a slow reader holds up nobody who writes.
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
		// The record of a run's start says whose it is, and of which tool.
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
			// jail audit verify reports it
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

// events are one stream of records.
type events struct {
	s        *Reader
	own      owner
	readsAll bool
	// when readsAll was last found to be so
	checked time.Time
	match   *audit.Matcher
	each    func(audit.Record) error
	// lets the user read the log otherwise
	caughtUp func()

	// all records up to that one are dealt with
	behind uint64
	// that was there at the beginning
	last uint64
	// that all those are given
	told bool
	// lines that are no records came since: what their numbers were nobody knows
	unsure bool
}

// place finds where the stream begins, and refuses to leave records out in silence.
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

// gone says that who follows the log cannot be given all of it.
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

// atEnd says that nothing more was there at the beginning.
func (e *events) atEnd() error {
	e.told = true
	e.caughtUp()
	return e.each(audit.Record{})
}
