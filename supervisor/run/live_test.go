package run

import (
	"testing"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor/ending"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/meters"
	"github.com/jail-sandbox/jail/supervisor/prepare"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/rundir"
	"github.com/jail-sandbox/jail/supervisor/stdio"
)

// A holder is a session that is only asked for its fate, and closed.
type holder struct {
	fate   message.Fate
	run    *Run
	closed bool
	// late says that it was closed when its run was done already.
	late bool
}

func (h *holder) Stands(rundir.State, *workspace.Workspace) {}
func (h *holder) Ended(*ending.Cause)                       {}
func (h *holder) Fate() message.Fate                        { return h.fate }
func (h *holder) Sleeps() bool                              { return false }

func (h *holder) Close() {
	select {
	case <-h.run.done:
		h.late = true
	default:
	}
	h.closed = true
}

func held(s *Runner, h *holder) *Run {
	h.run = s.NewHolding(&prepare.Job{ID: jail.ID("s"), Holds: prepare.Holding{For: time.Hour}}, h)
	return h.run
}

// TestHolderIsClosed: who waited for the end of a session finds its id free, also where its jail
// never stood because the id is a run's.
func TestHolderIsClosed(t *testing.T) {
	s := &Runner{Meters: meters.New(meters.Sources{})}
	s.active.runs = map[string]*Run{"s": {}}
	h := &holder{}
	if res, _ := s.Do(t.Context(), held(s, h), stdio.Streams{}); res.Error == nil ||
		res.Error.Code != problem.Usage {
		t.Fatalf("%+v", res.Error)
	}
	<-h.run.done
	if !h.closed || h.late {
		t.Errorf("%+v", h)
	}
}

// TestHolderSaysFate: what becomes of the shadow of a session is what its holder says, and without
// that what its request says.
func TestHolderSaysFate(t *testing.T) {
	h := &holder{fate: message.FateKeep}
	r := held(&Runner{}, h)
	r.job.Req.Fate = message.FateDiscard
	if got := r.fate(); got != message.FateKeep {
		t.Errorf("settled: %s", got)
	}
	h.fate = message.FateDefault
	if got := r.fate(); got != message.FateDiscard {
		t.Errorf("control: %s", got)
	}
}

// TestWorks: the pool leaves the processors to a run, and to an agent until it is awake, but not to
// a session.
func TestWorks(t *testing.T) {
	agent := &Run{job: &prepare.Job{ID: "a", Req: message.Request{Agent: &message.Agent{}}}}
	once := &Run{job: &prepare.Job{ID: "b", Req: message.Request{Agent: &message.Agent{Once: true}}}}
	for _, c := range []struct {
		name  string
		run   *Run
		since time.Duration
		works bool
	}{
		{"a run", &Run{job: &prepare.Job{ID: "r"}}, time.Hour, true},
		{"a session", held(&Runner{}, &holder{}), 0, false},
		{"an agent before its jail", agent, -1, true},
		{"an agent that wakes", agent, 0, true},
		{"an agent that is awake", agent, time.Hour, false},
		{"an agent for one event", once, time.Hour, true},
	} {
		s := &Runner{}
		if err := s.active.add(c.run); err != nil {
			t.Fatal(err)
		}
		if c.since >= 0 {
			s.active.start(c.run)
			s.active.started[c.run] = time.Now().Add(-c.since)
		}
		if s.Works() != c.works {
			t.Errorf("%s: %t", c.name, !c.works)
		}
		if s.active.remove(c.run); s.Works() || len(s.active.started) > 0 {
			t.Errorf("%s: counts after its end", c.name)
		}
	}
}
