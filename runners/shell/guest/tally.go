package guest

import (
	"slices"
	"strings"
	"sync"

	"github.com/jail-sandbox/jail/runners"
)

// tally adds up what the tools of a script did, several of which run at once.
type tally struct {
	mu       sync.Mutex
	denials  runners.Denials
	usage    runners.Usage
	executed map[string]int64
	refused  *runners.MemoryRefused
	met      runners.LimitsMet
	failed   error
}

func (t *tally) count(name string, rep runners.Report) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.executed == nil {
		t.executed = map[string]int64{}
	}
	t.executed[name]++
	for _, d := range rep.Denied {
		t.denials.AddCount(d)
	}
	if rep.MemoryRefused != nil {
		t.refused = rep.MemoryRefused
	}
	for _, m := range rep.LimitsMet {
		t.met.Add(m)
	}
	t.usage.LoadNanos += rep.Usage.LoadNanos
	t.usage.MemoryPeak = max(t.usage.MemoryPeak, rep.Usage.MemoryPeak)
	t.usage.OpenPeak = max(t.usage.OpenPeak, rep.Usage.OpenPeak)
}

func (t *tally) deny(layer, what, rule string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.denials.Add(layer, what, rule)
}

// fail keeps the first fault that is not a tool's own.
func (t *tally) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failed == nil {
		t.failed = err
	}
}

func (t *tally) fault() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failed
}

func (t *tally) report() runners.Report {
	t.mu.Lock()
	defer t.mu.Unlock()
	rep := runners.Report{Denied: t.denials.List(), MemoryRefused: t.refused, LimitsMet: t.met,
		Usage: t.usage}
	for name, n := range t.executed {
		rep.Executed = append(rep.Executed, runners.Executed{Name: name, Count: n})
	}
	slices.SortFunc(rep.Executed, func(a, b runners.Executed) int {
		return strings.Compare(a.Name, b.Name)
	})
	return rep
}
