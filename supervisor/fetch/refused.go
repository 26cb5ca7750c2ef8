package fetch

import (
	"context"
	"fmt"
	"time"
)

// settleTime is how often refusals that were said before are said again, as a number: a tool that is refused a thousand times a second keeps the
// daemon no busier than one that is refused once.
const settleTime = time.Second

// A tally is a kind of refusal, and how many of it have not been told.
type tally struct {
	what   What
	untold int64
}

// refuse puts a refusal on record: the first of its kind at once, those alike as a number.
func (p *Proxy) refuse(w What) {
	key := fmt.Sprint(w.Kind, " ", w.Method, " ", w.Host, " ", w.Port, " ", w.Rule)
	p.mu.Lock()
	if p.refused[key] == nil && len(p.refused) >= maxRefused {
		w = What{ID: w.ID, Kind: w.Kind, Decision: Denied, Layer: w.Layer, Rule: "many different requests"}
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

// refusalRate is how many refusals a run is told in one second; the others wait for their turn. Who asks for what it cannot have as fast as it can
// would else keep a processor busy that others' requests need.
const refusalRate = 200

// pace waits for the turn of a refusal, or until ended.
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

// settle tells what has not been told.
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
