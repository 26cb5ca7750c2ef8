package fetch

import (
	"net/url"
	"sync"
)

// maxTrail bounds the remembered redirects of a run.
const maxTrail = 256

// trail remembers the redirects of responses, so that a request to their targets is recorded as the
// next of a chain. It decides nothing: a followed redirect is a request like any other.
type trail struct {
	mu    sync.Mutex
	steps map[string]step
}

type step struct {
	from uint64
	hops int
}

// redirected notes the redirect of a response, without parts that may be secret.
func (rt *roundTrip) redirected(location string) {
	to, err := url.Parse(rt.target.String())
	if err == nil {
		to, err = to.Parse(location)
	}
	if err != nil {
		rt.try.out.Redirect = "unreadable"
		return
	}
	// Not as it was escaped, which could hide a credential.
	shown := url.URL{Scheme: to.Scheme, Host: to.Host, Path: to.Path}
	rt.try.out.Redirect = rt.clean(shown.String())
	rt.p.tool.trail.sends(rt.what, *to)
}

// sends notes that the response to a request redirects the tool.
func (t *trail) sends(from What, to url.URL) {
	to.Fragment = ""
	next, err := parseTarget(to.String())
	if err != nil {
		// The tool cannot request it either.
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.steps == nil || len(t.steps) >= maxTrail {
		t.steps = map[string]step{}
	}
	t.steps[next.String()+next.query] = step{from.ID, from.Hops + 1}
}

// follow returns the request whose redirect led to a target, and the number of redirects; 0 without
// one.
func (t *trail) follow(to target) (from uint64, hops int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := to.String() + to.query
	s := t.steps[key]
	delete(t.steps, key)
	return s.from, s.hops
}
