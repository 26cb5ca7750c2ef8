package supervisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jail-sandbox/jail/supervisor/audit"
)

// An EventsRequest asks for records as they are written.
type EventsRequest struct {
	After *uint64 // only records with a larger number; nil: only those that come from now on
	RecordsRequest
}

const (
	// maxFollowing is how many streams of records a user but root may have at one time: each looks ten times a second whether the log has grown.
	maxFollowing = 4
	// rightsEvery is how long a stream goes on by a ceiling that is no longer in force.
	rightsEvery = time.Second
)

// Events gives the records that the request wants, of those that the caller may read, as they are written, until ctx ends. begin is told the number behind which it
// begins: whoever sees no record before they are cut off goes on there. A record without a line says that all those are given that were there at the beginning.
// Where each returns an error, that is the end, and the error. It reads the log's files, so that a slow reader holds up nobody who writes.
func (s *Supervisor) Events(ctx context.Context, c Caller, req EventsRequest, begin func(after uint64) error, each func(audit.Record) error) error {
	leave, err := s.Enter()
	if err != nil {
		return err
	}
	leave() // not for as long as it takes
	filter, err := req.filter()
	if err != nil {
		return err
	}
	end, ok := s.following.begin(c)
	if !ok {
		return &Error{Code: CodeBusy, Message: "records are being streamed to you as often as may be at one time", Hint: "end one of those streams"}
	}
	defer end()
	caughtUp, ok := s.readers.begin(c)
	if !ok {
		return errReading
	}
	defer caughtUp()
	e := events{s: s, own: owner{c, map[string]bool{}}, readsAll: s.readsAll(c), match: audit.NewMatcher(filter), each: each,
		checked: time.Now(), caughtUp: caughtUp}
	if err := e.place(req.After); err != nil {
		return err
	}
	if err := begin(e.behind); err != nil {
		return err
	}
	from := e.behind
	if !e.readsAll || filter.Tool != "" {
		from = 0 // whose a run is, and of which tool, is told by its beginning
	}
	if from == e.last {
		if err := e.atEnd(); err != nil {
			return err
		}
	}
	for r, err := range audit.Follow(ctx, s.config.LogDir, audit.Filter{}, from) {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && r.Line == nil && !errors.Is(err, audit.ErrLine):
			return failed(err, "", "audit log: %v", err)
		case err != nil:
			e.unsure = true // jail audit verify tells of it
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
	return failed(nil, "jail audit verify tells where", "audit log: behind record %d is a line that cannot be read on from", e.behind)
}

// events are one stream of records.
type events struct {
	s        *Supervisor
	own      owner
	readsAll bool
	checked  time.Time // when readsAll was last found to be so
	match    *audit.Matcher
	each     func(audit.Record) error
	caughtUp func() // lets the user read the log otherwise

	behind uint64 // all records up to that one are dealt with
	last   uint64 // that was there at the beginning
	told   bool   // that all those are given
	unsure bool   // lines that are no records came since: what their numbers were nobody knows
}

// place finds where the stream begins, and refuses to leave records out in silence.
func (e *events) place(after *uint64) error {
	first, last, err := e.s.log.Extent()
	if err != nil {
		return failed(err, "", "audit log: %v", err)
	}
	e.behind, e.last = last, last
	if after == nil {
		return nil
	}
	e.behind = *after
	switch {
	case *after > last:
		return usage("after=%d: the log ends with record %d", *after, last)
	case *after > 0 && *after+1 < first:
		return gone(*after+1, first-1)
	}
	return nil
}

// gone says that who follows the log cannot be given all of it.
func gone(first, last uint64) *Error {
	return notFound(fmt.Sprintf("a gap record tells of it; after=%d gives what is kept", last), "records %d to %d were taken away, as [keep] says or by jail audit prune", first, last)
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
		if e.checked = time.Now(); !e.s.readsAll(e.own.caller) {
			return refused(nil, "ask again, for those of your own", "the ceiling no longer lets uid %d read the records of all users", e.own.caller.UID)
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
