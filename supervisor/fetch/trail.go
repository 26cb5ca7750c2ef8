package fetch

import (
	"net/url"
	"sync"
)

// maxTrail bounds the redirects of a run that are remembered.
const maxTrail = 256

// A trail remembers where answers have sent the tool, so that a request to there is recorded as the next one of a chain. It decides nothing: a
// redirect that is followed is a request like any other.
type trail struct {
	mu    sync.Mutex
	steps map[string]step
}

type step struct {
	from uint64
	hops int
}

// redirected notes where an answer sends the tool; on record it is without what may be secret.
func (tr *trip) redirected(location string) {
	to, err := url.Parse(tr.target.String())
	if err == nil {
		to, err = to.Parse(location)
	}
	if err != nil {
		tr.out.Redirect = "unreadable"
		return
	}
	shown := url.URL{Scheme: to.Scheme, Host: to.Host, Path: to.Path} // not as it was escaped, which could hide a credential
	tr.out.Redirect = tr.clean(shown.String())
	tr.p.trail.sends(tr.what, *to)
}

// sends notes that the answer to a request sends the tool elsewhere.
func (t *trail) sends(from What, to url.URL) {
	to.Fragment = ""
	next, err := ParseTarget(to.String())
	if err != nil {
		return // the tool cannot ask for it either
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.steps == nil || len(t.steps) >= maxTrail {
		t.steps = map[string]step{}
	}
	t.steps[next.String()+next.Query] = step{from.ID, from.Hops + 1}
}

// follow returns the request whose answer sent the tool to a target, and how many there were; 0 where none did.
func (t *trail) follow(to Target) (from uint64, hops int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := to.String() + to.Query
	s := t.steps[key]
	delete(t.steps, key)
	return s.from, s.hops
}
