package agents

import (
	"fmt"
	"time"

	"github.com/jail-sandbox/jail/supervisor/agents/manifest"
	"github.com/jail-sandbox/jail/supervisor/agents/store"
	"github.com/jail-sandbox/jail/supervisor/audit"
)

// Bounds of failures.
const (
	// mostPause is the longest pause after a failure.
	mostPause = 5 * time.Minute
	// mostFailures is after how many consecutive failures an instance is Failed: failed starts, or
	// events that became dead letters.
	mostFailures = 5
)

// failed handles the failure of an instance, and returns the time until its next turn.
//
// If the agent was working on an event, the event is blamed: after the manifest's retries it
// becomes a dead letter, and the next event follows. Other failures count for the agent itself.
// After five consecutive dead letters or failures of its own the instance is Failed, and only
// `resume` wakes it again. A committed event resets the count. A failure that the agent did not
// cause, such as a missing jaild, does not count.
func (a *Agents) failed(i store.Instance, m manifest.Manifest, c cause) time.Duration {
	a.o.Log.Warn("an agent failed", "instance", i.Name, "cause", c.why)
	again, err := a.judge(i, m, c)
	if err != nil {
		a.o.Log.Error("the failure of an agent is not noted", "instance", i.Name, "error", err)
		return time.Minute
	}
	return again
}

func (a *Agents) judge(i store.Instance, m manifest.Manifest, c cause) (time.Duration, error) {
	for _, o := range a.turns.take(i.ID) {
		o.fail(fmt.Errorf("agent %q failed: %s", i.Agent, c.why))
	}
	failures, tries := i.Failures, 0
	switch {
	case c.elsewhere:
		tries = 1
	case c.blame:
		seq, n, err := a.Store.Blame(i.ID)
		if err != nil {
			return 0, err
		}
		tries = n
		// If the agent's jail reported the failure, the event is certainly not committed.
		if n > m.Wake.Retries && c.code != "" {
			if err := a.bury(i, seq, c.why); err != nil {
				return 0, err
			}
			tries, failures = 0, failures+1
		}
	default:
		failures++
		tries = failures
	}
	a.record(i, audit.AgentStep{Step: audit.AgentFailed, Error: clipped(c.why)})
	state, pause := store.Dormant, pauseAfter(tries, a.o.FirstPause)
	until := a.o.Now().Add(pause)
	if failures >= mostFailures {
		state, pause, until = store.Failed, never, time.Time{}
		// Somebody may wait for an answer.
		defer a.pulse.beat(i.ID, Anyone)
	}
	if err := a.Store.SetFailures(i.ID, failures, until, c.why); err != nil {
		return 0, err
	}
	return pause, a.Store.SetState(i.ID, state, c.why)
}

// pauseAfter returns the pause after tries consecutive failures: first, doubled with each further
// failure, at most mostPause. It is 0 if tries is 0.
func pauseAfter(tries int, first time.Duration) time.Duration {
	if tries == 0 {
		return 0
	}
	// Stop at mostPause, since many retries would overflow.
	for ; tries > 1 && first < mostPause; tries-- {
		first *= 2
	}
	return min(first, mostPause)
}

// bury makes an event a dead letter, records this and wakes waiters.
func (a *Agents) bury(i store.Instance, seq uint64, why string) error {
	err := a.Store.Bury(i.ID, seq, why)
	if err == nil {
		a.record(i, audit.AgentStep{Step: audit.AgentDeadLetter, Event: int64(seq),
			Error: clipped(why)})
		nudge(a.alarms)
		a.pulse.beat(i.ID, Anyone)
	}
	return err
}

// exhausted makes the first event a dead letter if the agent failed on it too often. It is called
// after Ready: only then it is known that the event was not committed before a crash.
func (r *run) exhausted() *cause {
	seq, failed, err := r.a.Store.Head(r.a.ctx, r.from.ID)
	if err == nil && failed > r.m.Wake.Retries {
		if err = r.a.bury(r.from, seq, r.from.Error); err == nil {
			r.from.Failures++
			err = r.a.Store.SetFailures(r.from.ID, r.from.Failures, r.from.NotBefore, r.from.Error)
		}
	}
	switch {
	case err != nil:
		return &cause{why: err.Error()}
	case r.from.Failures >= mostFailures:
		return &cause{why: fmt.Sprintf("it failed on %d events in a row: %s", r.from.Failures,
			r.from.Error)}
	}
	return nil
}
