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
