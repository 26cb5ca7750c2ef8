package supervisor

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/prepare"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/rundir"
	"github.com/jail-sandbox/jail/supervisor/runlog"
	"github.com/jail-sandbox/jail/supervisor/stdio"
)

// openedSession is one of root's that stands, without a jail.
func openedSession(s *Sessions, id string) *session {
	h := &session{asked: asked{digest: requestNamed(id).Digest(), idle: time.Minute},
		places: make(chan struct{}, 2), stands: make(chan struct{}), over: make(chan struct{}),
		invocations: invocations{live: map[*run]bool{}, used: time.Now()}}
	h.drop = func() { s.end(id, h) }
	j := &prepare.Job{ID: jail.ID(id), Req: requestNamed(id).Request, Holds: time.Hour}
	h.run = &run{s: s.runner, job: j, session: h, records: runlog.New(nil, audit.Entry{}),
		dir: &rundir.Dir{State: rundir.State{ID: id}}, done: make(chan struct{})}
	close(h.stands)
	s.open[id] = h
	return h
}

func (h *session) locked(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

// An invocation is there from the moment that it asks for a place: what is being prepared, compiled
// for one, is not ended by the session's idle time, and one that was refused begins it anew.
func TestSessionIdles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openedSession(noSessions(), "s")
		h.locked(h.rest)
		prepared := func() (leave func()) {
			t.Helper()
			time.Sleep(50 * time.Second)
			leave, err := h.enter(t.Context())
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
		r := &run{}
		if !h.join(r) {
			t.Fatal("it lets none begin")
		}
		h.leave(r)
		other, err := h.enter(t.Context())
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
		if c := h.run.Ended(); !h.ended() || c == nil || c.Limit != limitIdle ||
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
	h.locked(h.close)
	close(h.run.done)
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

// Who waited for the end of a session finds its id free.
func TestSessionIsDroppedAtItsEnd(t *testing.T) {
	s := noSessions()
	s.runner.active.runs = map[string]*run{"s": {}}
	s.runner.meters = newMeters(&Supervisor{runner: s.runner})
	h := openedSession(s, "s")
	// the id of a run
	if res := h.run.carry(t.Context(), stdio.Streams{}); res.Error == nil ||
		res.Error.Code != problem.Usage {
		t.Fatalf("%+v", res.Error)
	}
	<-h.run.done
	if !h.ended() || s.open["s"] != nil {
		t.Error("it is open")
	}
}

// What becomes of the shadow is the session's: invocations read the request that it was started
// with.
func TestSessionFate(t *testing.T) {
	s := noSessions()
	h := openedSession(s, "s")
	h.run.job.Req.Fate = message.FateDiscard
	close(h.run.done)
	if _, err := s.Stop(t.Context(), callerNumber(0), "s",
		message.StopRequest{Fate: message.FateKeep}); err != nil {
		t.Fatal(err)
	}
	if was, is := h.run.job.Req.Fate, h.run.fate(); was != message.FateDiscard ||
		is != message.FateKeep {
		t.Errorf("the request says %s, the session %s", was, is)
	}
}
