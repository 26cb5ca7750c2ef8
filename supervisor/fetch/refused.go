package fetch

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jail-sandbox/jail/jail/tick"
	"github.com/jail-sandbox/jail/policy"
)

// settleTime is the interval at which repeated refusals are recorded as a count. A tool that is
// refused a thousand times a second costs the daemon no more than one that is refused once.
const settleTime = time.Second

// tally is a kind of refusal with the count that is not recorded yet.
type tally struct {
	what   What
	untold int64
}

// refusals are the kinds of what was refused in one run.
type refusals struct {
	record recorder
	// paced is their rate.
	paced *budget
	mu    sync.Mutex
	kinds map[string]*tally
}

func newRefusals(r recorder) *refusals {
	return &refusals{record: r, paced: newBudget("", policy.FetchBounds{Rate: refusalRate}),
		kinds: map[string]*tally{}}
}

// add records a refusal: the first of its kind at once, equal ones as a count.
func (r *refusals) add(w What) {
	key := fmt.Sprint(w.Kind, " ", w.Method, " ", w.Host, " ", w.Port, " ", w.Rule)
	r.mu.Lock()
	if r.kinds[key] == nil && len(r.kinds) >= maxRefused {
		w = What{ID: w.ID, Kind: w.Kind, Decision: Denied, Layer: w.Layer,
			Rule: "many different requests"}
		key = "many"
	}
	if t := r.kinds[key]; t != nil {
		t.untold++
		r.mu.Unlock()
		return
	}
	r.kinds[key] = &tally{what: w}
	r.mu.Unlock()
	r.record.Refused(Refused{What: w, Count: 1})
}

// refusalRate bounds the refusals of a run in one second; others wait for their turn. Without it a
// tool that is refused in a loop would keep a processor busy that the requests of others need.
const refusalRate = 200

// pace waits for the turn of a refusal, or until ended is closed.
func (r *refusals) pace(ended <-chan struct{}) {
	r.paced.mu.Lock()
	wait := r.paced.turn(time.Now())
	r.paced.mu.Unlock()
	if wait > 0 {
		tick.Wait(ended, wait)
	}
}

// settle records the counts that are not recorded yet.
func (r *refusals) settle() {
	r.mu.Lock()
	var out []Refused
	for _, t := range r.kinds {
		if t.untold > 0 {
			out = append(out, Refused{What: t.what, Count: t.untold})
			t.untold = 0
		}
	}
	r.mu.Unlock()
	for _, known := range out {
		r.record.Refused(known)
	}
}

func (r *refusals) settleOften(ctx context.Context) {
	for range tick.Each(ctx.Done(), settleTime) {
		r.settle()
	}
}
