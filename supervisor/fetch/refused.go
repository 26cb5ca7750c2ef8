package fetch

import (
	"context"
	"fmt"
	"time"
)

// settleTime is the interval at which repeated refusals are recorded as a count. A tool that is
// refused a thousand times a second costs the daemon no more than one that is refused once.
const settleTime = time.Second

// tally is a kind of refusal with the count that is not recorded yet.
type tally struct {
	what   What
	untold int64
}

// refuse records a refusal: the first of its kind at once, equal ones as a count.
func (p *Proxy) refuse(w What) {
	key := fmt.Sprint(w.Kind, " ", w.Method, " ", w.Host, " ", w.Port, " ", w.Rule)
	p.mu.Lock()
	if p.refused[key] == nil && len(p.refused) >= maxRefused {
		w = What{ID: w.ID, Kind: w.Kind, Decision: Denied, Layer: w.Layer,
			Rule: "many different requests"}
		key = "many"
	}
	if t := p.refused[key]; t != nil {
		t.untold++
		p.mu.Unlock()
		return
	}
	p.refused[key] = &tally{what: w}
	p.mu.Unlock()
	p.record.Refused(Refused{What: w, Count: 1})
}

// refusalRate bounds the refusals of a run in one second; others wait for their turn. Without it a
// tool that is refused in a loop would keep a processor busy that the requests of others need.
const refusalRate = 200

// pace waits for the turn of a refusal, or until ended is closed.
func (p *Proxy) pace(ended <-chan struct{}) {
	p.paced.mu.Lock()
	wait := p.paced.turn(time.Now())
	p.paced.mu.Unlock()
	if wait <= 0 {
		return
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ended:
	}
}

// settle records the counts that are not recorded yet.
func (p *Proxy) settle() {
	p.mu.Lock()
	var out []Refused
	for _, t := range p.refused {
		if t.untold > 0 {
			out = append(out, Refused{What: t.what, Count: t.untold})
			t.untold = 0
		}
	}
	p.mu.Unlock()
	for _, r := range out {
		p.record.Refused(r)
	}
}

func (p *Proxy) settleOften(ctx context.Context) {
	for tick := time.NewTicker(settleTime); ; {
		select {
		case <-tick.C:
			p.settle()
		case <-ctx.Done():
			tick.Stop()
			return
		}
	}
}
