package supervisor

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/rundir"
	"github.com/jail-sandbox/jail/supervisor/runlog"
	"github.com/jail-sandbox/jail/supervisor/stdio"
)

// openedSession is one of root's that stands, without a jail.
func openedSession(s *Supervisor, id string) *session {
	h := &session{digest: requestNamed(id).digest(), idle: time.Minute, places: make(chan struct{},
		2), stands: make(chan struct{}), over: make(chan struct{}),
		live: map[*run]bool{}, used: time.Now()}
	j := &job{id: jail.ID(id), req: requestNamed(id).Request, hold: h}
	h.run = &run{s: s, job: j, records: runlog.New(nil, audit.Entry{}),
		dir: &rundir.Dir{State: rundir.State{ID: id}}, done: make(chan struct{})}
	close(h.stands)
	s.sessions[id] = h
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
		h := openedSession(&Supervisor{policies: shipped(t), sessions: map[string]*session{}}, "s")
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
		if c := h.run.ended(); !h.ended() || c == nil || c.limit != limitIdle ||
			c.peak != time.Minute.Milliseconds() {
			t.Errorf("it did not end when nothing had been there for a minute: %+v", c)
		}
	})
}

// What is being ended is open to nobody, whatever it was before; and its id is not taken for that
// of the next one.
func TestSessionIsEnded(t *testing.T) {
	s := &Supervisor{policies: shipped(t), sessions: map[string]*session{}}
	h := openedSession(s, "s")
	if open, err := s.openSession(callerNumber(0), "s"); open != h || err != nil {
		t.Fatal(open, err)
	}
	h.locked(h.close)
	close(h.run.done)
	var e *problem.Error
	// it was a matter of chance
	for range 64 {
		if _, err := s.openSession(callerNumber(0), "s"); !errors.As(err, &e) ||
			e.Code != problem.NotFound {
			t.Fatalf("open: %v", err)
		}
		if all := s.Sessions(callerNumber(0)); len(all) != 0 {
			t.Fatalf("listed: %+v", all)
		}
		if _, err := s.await(t.Context(), h, nil); !errors.As(err, &e) || e.Code != problem.Failed {
			t.Fatalf("started: %v", err)
		}
	}
	again := &session{digest: h.digest}
	if open, err := s.admitSession(callerNumber(0), requestNamed("s"), again); open != nil ||
		problem.From(err).Code != problem.Busy {
		t.Errorf("started again: %v, %v", open, err)
	}
	if _, err := s.admitSession(callerNumber(7), requestNamed("s"), again); !errors.As(err, &e) ||
		e.Code != problem.Usage {
		t.Errorf("by another user: %v", err)
	}
}

// Who waited for the end of a session finds its id free.
func TestSessionIsDroppedAtItsEnd(t *testing.T) {
	s := &Supervisor{policies: shipped(t), sessions: map[string]*session{},
		active: map[string]*run{"s": {}}}
	s.meters = newMeters(s)
	h := openedSession(s, "s")
	// the id of a run
	if res := h.run.carry(t.Context(), stdio.Streams{}); res.Error == nil ||
		res.Error.Code != problem.Usage {
		t.Fatalf("%+v", res.Error)
	}
	<-h.run.done
	if !h.ended() || s.sessions["s"] != nil {
		t.Error("it is open")
	}
}

// What becomes of the shadow is the session's: invocations read the request that it was started
// with.
func TestSessionFate(t *testing.T) {
	s := &Supervisor{policies: shipped(t), sessions: map[string]*session{}}
	h := openedSession(s, "s")
	h.run.job.req.Fate = FateDiscard
	close(h.run.done)
	if _, err := s.StopSession(t.Context(), callerNumber(0), "s",
		StopRequest{Fate: FateKeep}); err != nil {
		t.Fatal(err)
	}
	if was, is := h.run.job.req.Fate, h.run.fate(); was != FateDiscard || is != FateKeep {
		t.Errorf("the request says %s, the session %s", was, is)
	}
}
