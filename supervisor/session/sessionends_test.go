package session

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/supervisor/ending"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/prepare"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/run"
	"github.com/jail-sandbox/jail/supervisor/rundir"
)

// openedSession is one of root's that stands, without a jail.
func openedSession(s *Sessions, id string) *session {
	h := s.newSession(id, asked{digest: requestNamed(id).Digest(), idle: time.Minute})
	h.invocations.open(id, 2)
	j := &prepare.Job{ID: jail.ID(id), Req: requestNamed(id).Request, Holds: prepare.Holding{For: time.Hour}}
	h.run = s.runner.NewHolding(j, h)
	h.state = rundir.State{ID: id}
	close(h.stands)
	s.open[id] = h
	return h
}

// An invocation is there from the moment that it asks for a place: what is being prepared, compiled
// for one, is not ended by the session's idle time, and one that was refused begins it anew.
func TestSessionIdles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openedSession(noSessions(), "s")
		h.invocations.rest()
		prepared := func() (leave func()) {
			t.Helper()
			time.Sleep(50 * time.Second)
			leave, err := h.invocations.enter(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour)
			if h.ended() {
				t.Fatal("it ended while an invocation was prepared")
			}
			return leave
		}
		prepared()() // was refused
		leave := prepared()
		r := &run.Run{}
		if !h.invocations.join(r) {
			t.Fatal("it lets none begin")
		}
		h.invocations.leave(r)
		other, err := h.invocations.enter(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		leave()
		other()
		time.Sleep(59 * time.Second)
		if h.ended() {
			t.Error("it ended too early")
		}
		time.Sleep(2 * time.Second)
		if c := h.run.Ended(); !h.ended() || c == nil || c.Limit != ending.LimitIdle ||
			c.Peak != time.Minute.Milliseconds() {
			t.Errorf("it did not end when nothing had been there for a minute: %+v", c)
		}
	})
}

// What is being ended is open to nobody, whatever it was before; and its id is not taken for that
// of the next one.
func TestSessionIsEnded(t *testing.T) {
	s := noSessions()
	h := openedSession(s, "s")
	if open, err := s.standing(callerNumber(0), "s"); open != h || err != nil {
		t.Fatal(open, err)
	}
	h.invocations.close(nil)
	close(h.gone)
	var e *problem.Error
	// it was a matter of chance
	for range 64 {
		if _, err := s.standing(callerNumber(0), "s"); !errors.As(err, &e) ||
			e.Code != problem.NotFound {
			t.Fatalf("open: %v", err)
		}
		if all := s.List(callerNumber(0)); len(all) != 0 {
			t.Fatalf("listed: %+v", all)
		}
		if _, err := s.await(t.Context(), h, nil); !errors.As(err, &e) || e.Code != problem.Failed {
			t.Fatalf("started: %v", err)
		}
	}
	again := &session{asked: h.asked}
	if open, err := s.admit(callerNumber(0), requestNamed("s"), again); open != nil ||
		problem.From(err).Code != problem.Busy {
		t.Errorf("started again: %v, %v", open, err)
	}
	if _, err := s.admit(callerNumber(7), requestNamed("s"), again); !errors.As(err, &e) ||
		e.Code != problem.Usage {
		t.Errorf("by another user: %v", err)
	}
}

// Who waited for the end of a session finds its id free: its run closes it before the run is done.
// See TestHolderIsClosed.
func TestSessionIsClosed(t *testing.T) {
	s := noSessions()
	h := openedSession(s, "s")
	h.Close()
	if !h.ended() || s.open["s"] != nil {
		t.Error("it is open")
	}
}

// What becomes of the shadow is the session's: invocations read the request that it was started
// with.
func TestSessionFate(t *testing.T) {
	s := noSessions()
	h := openedSession(s, "s")
	h.run.Job().Req.Fate = message.FateDiscard
	close(h.gone)
	if _, err := s.Stop(t.Context(), callerNumber(0), "s",
		message.StopRequest{Fate: message.FateKeep}); err != nil {
		t.Fatal(err)
	}
	if was, is := h.run.Job().Req.Fate, h.Fate(); was != message.FateDiscard ||
		is != message.FateKeep {
		t.Errorf("the request says %s, the session %s", was, is)
	}
}
