package agents

import (
	"context"
	"slices"
	"sync"
	"time"
)

// never is the time until the next turn of an instance that needs none.
const never = time.Duration(-1)

// turns schedules which instances run: at most `most` at a time. The others wait in a list, in the
// order in which they came.
type turns struct {
	mu   sync.Mutex
	all  map[int64]*turn
	line []*turn
	busy int
	most int
	// begin does one turn and returns the time until the next, as Agents.begin does.
	begin  func(*turn) time.Duration
	closed bool
	work   sync.WaitGroup
}

// A turn is the state of an instance that runs or waits to run.
type turn struct {
	id int64
	// again is set when the instance is in the line, or has something new to do while it runs.
	again   bool
	running bool
	timer   *time.Timer
	state   string
	// admins are operations that its owner asked for.
	admins []*operation
	// signals are read by the run.
	signals chan signal
	// kill ends the run at once. It is nil while there is none.
	kill context.CancelCauseFunc
	// hand is the hand of the run, nil while there is none.
	hand *hand
	// crowded is since when the instance waits for resources that other facets of its agent use.
	// told is set once this is logged. Both are zero when the instance runs.
	crowded time.Time
	told    bool
	// quiet are the numbers of the last events that were committed without effects, each at the
	// index of its number modulo quietEvents. It is nil before the first one.
	quiet []uint64
}

// quietEvents is the length of turn.quiet.
const quietEvents = 256

// A signal tells a run that something has changed.
type signal struct {
	// sleep is the reason why the run should sleep, empty if it should not.
	sleep string
	// crowded: others wait for their turn, so the run should sleep if it has nothing to do.
	crowded bool
}

// want asks for a turn of the instance in after, 0 for now.
func (t *turns) want(id int64, after time.Duration) {
	t.change(func() { t.wanted(t.at(id), after) })
}

// ask asks for a turn at once, for an operation of the owner.
func (t *turns) ask(id int64, o *operation) {
	t.change(func() {
		at := t.at(id)
		at.admins = append(at.admins, o)
		t.wanted(at, 0)
	})
}

// change calls f with t.mu held.
func (t *turns) change(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f()
}

// look calls f with the turn of an instance and t.mu held, if the instance has a turn.
func (t *turns) look(id int64, f func(*turn)) {
	t.change(func() {
		if at := t.all[id]; at != nil {
			f(at)
		}
	})
}

func (t *turns) at(id int64) *turn {
	at := t.all[id]
	if at == nil {
		at = &turn{id: id, signals: make(chan signal, 4)}
		t.all[id] = at
	}
	return at
}

// wanted puts an instance into the line after a time, unless it is there. t.mu is held.
func (t *turns) wanted(at *turn, after time.Duration) {
	switch {
	case t.closed:
		return
	case at.running:
		at.again = true
		at.tell(signal{})
		return
	case at.timer != nil:
		if after > 0 && len(at.admins) == 0 {
			return
		}
		// The turn itself decides whether to wait on.
		at.timer.Stop()
		at.timer = nil
	case at.again:
		return
	}
	if after > 0 {
		at.timer = time.AfterFunc(after, func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			// The turn may have been removed meanwhile.
			if at.timer = nil; t.all[at.id] == at {
				t.wanted(at, 0)
			}
		})
		return
	}
	at.again = true
	t.line = append(t.line, at)
	if t.busy < t.most {
		t.busy++
		t.work.Go(t.worker)
		return
	}
	for _, other := range t.all {
		if other.running {
			other.tell(signal{crowded: true})
		}
	}
}

// worker does turns until the line is empty.
func (t *turns) worker() {
	for {
		t.mu.Lock()
		if len(t.line) == 0 || t.closed {
			t.busy--
			t.mu.Unlock()
			return
		}
		at := t.line[0]
		t.line = t.line[1:]
		at.again, at.running = false, true
		// Drop signals of an earlier turn.
		for len(at.signals) > 0 {
			<-at.signals
		}
		t.mu.Unlock()
		after := t.begin(at)
		t.mu.Lock()
		at.running, at.state, at.hand = false, "", nil
		again := at.again || len(at.admins) > 0
		at.again = false
		switch {
		case after > 0 && len(at.admins) == 0:
			t.wanted(at, after)
		case after >= 0 || again:
			t.wanted(at, 0)
		default:
			delete(t.all, at.id)
		}
		t.mu.Unlock()
	}
}

// tell sends the run a signal, without blocking. If many are unread, a signal is dropped, or takes
// the place of the oldest one if it has a reason to sleep. Each makes the run look at everything.
func (at *turn) tell(s signal) {
	select {
	case at.signals <- s:
	default:
		if s.sleep == "" {
			return
		}
		// Drop one signal to make room.
		select {
		case <-at.signals:
		default:
		}
		select {
		case at.signals <- s:
		default:
		}
	}
}

func (t *turns) tell(id int64, s signal) {
	t.look(id, func(at *turn) {
		if at.running {
			at.tell(s)
		}
	})
}

// replace makes the run of an instance sleep, so that the next event starts a run with the
// instance's new settings.
func (t *turns) replace(id int64, why string) {
	if h := t.hand(id); h != nil {
		h.close()
	}
	t.tell(id, signal{sleep: why})
}

// end kills the run of an instance that is deleted or aborted.
func (t *turns) end(id int64) {
	t.look(id, func(at *turn) {
		if at.kill != nil {
			at.kill(errTaken)
		}
	})
}

// setCrowded records whether an instance waits for resources that other facets of its agent use. It
// returns true once per wait, when the wait has lasted crowdedNote.
func (t *turns) setCrowded(at *turn, waits bool) (tell bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case !waits:
		at.crowded, at.told = time.Time{}, false
	case at.crowded.IsZero():
		at.crowded = time.Now()
	case !at.told && time.Since(at.crowded) >= crowdedNote:
		at.told = true
		return true
	}
	return false
}

// take removes and returns the operations that wait for an instance.
func (t *turns) take(id int64) (all []*operation) {
	t.look(id, func(at *turn) { all, at.admins = at.admins, nil })
	return all
}

// hand returns the hand of the run of an instance, or nil.
func (t *turns) hand(id int64) (h *hand) {
	t.look(id, func(at *turn) { h = at.hand })
	return h
}

func (t *turns) state(id int64) (state string) {
	t.look(id, func(at *turn) { state = at.state })
	return state
}

// setQuiet records that an event is committed and has no effects.
func (t *turns) setQuiet(at *turn, seq uint64) {
	t.change(func() {
		if at.quiet == nil {
			at.quiet = make([]uint64, quietEvents)
		}
		at.quiet[seq%quietEvents] = seq
	})
}

// isQuiet reports whether the run of an instance has lately committed this event without effects.
func (t *turns) isQuiet(id int64, seq uint64) (quiet bool) {
	t.look(id, func(at *turn) { quiet = at.quiet != nil && at.quiet[seq%quietEvents] == seq })
	return quiet
}

// count returns how many instances run or wait to run.
func (t *turns) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.all)
}

// asked reports whether operations of the owner wait for the turn.
func (t *turns) asked(at *turn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(at.admins) > 0
}

// crowded reports whether any instance waits in the line.
func (t *turns) crowded() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.line) > 0
}

// close starts no more turns and asks all runs to sleep.
func (t *turns) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for _, at := range t.all {
		if at.timer != nil {
			at.timer.Stop()
		}
		if at.running {
			at.tell(signal{sleep: "jail-agentd ends"})
		}
		for _, o := range at.admins {
			o.fail(errEnding)
		}
		at.admins = nil
	}
}

// gone waits until an instance that was told to end has ended. If it only waits for its turn, gone
// removes it from the line.
func (t *turns) gone(ctx context.Context, id int64) error {
	for {
		t.mu.Lock()
		at := t.all[id]
		if at != nil && !at.running {
			if at.timer != nil {
				at.timer.Stop()
			}
			t.line = slices.DeleteFunc(t.line, func(other *turn) bool { return other == at })
			delete(t.all, id)
			at = nil
		}
		t.mu.Unlock()
		if at == nil {
			return nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
