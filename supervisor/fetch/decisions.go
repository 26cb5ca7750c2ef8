package fetch

import (
	"sync"

	"github.com/jail-sandbox/jail/policy"
)

const (
	// maxDecisions bounds the remembered decisions of a scope.
	maxDecisions = 512
	// maxDecisionText bounds the host, path and method of a remembered decision, in bytes.
	maxDecisionText = 1024
)

// decisions caches the decisions of one scope. A decision depends on the question, the policy of
// the scope, and the entries of internal hosts. The key is the whole question. Policy and entries
// never change in a proxy: a change of policy, of fetch.toml or of a credential reaches the next
// run, whose proxy has a cache of its own.
type decisions struct {
	mu    sync.Mutex
	known map[policy.Connect]*decision
}

// decision is the decision on a request before its credential and budgets are checked. Requests
// share it, so it is never changed.
type decision struct {
	policy.Decision
	// entry is the entry of an internal host; nil for a public host.
	entry *Internal
	// unnamed is the layer that grants the internal host by * alone, if there is one.
	unnamed *policy.Layer
}

// types returns the content types that the response may have; nil stands for all.
func (d *decision) types() policy.Globs {
	if d.Fetch == nil {
		return nil
	}
	return d.Fetch.Types
}

// scope is a policy of a proxy with its cached decisions.
type scope struct {
	policy.Effective
	decisions *decisions
}

// decided returns the decision of a scope, from the cache if it is there.
func (p *proxy) decided(s scope, q policy.Connect) *decision {
	s.decisions.mu.Lock()
	known := s.decisions.known[q]
	s.decisions.mu.Unlock()
	if known != nil {
		return known
	}
	d := &decision{Decision: s.Decide(q), entry: findInternal(p.setup.Internal, q.Host, q.Port)}
	if d.entry != nil {
		if l, unnamed := s.Unnamed(q); unnamed {
			d.unnamed = &l
		}
	}
	if max(len(q.Host), len(q.Path), len(q.Method)) > maxDecisionText {
		return d
	}
	s.decisions.mu.Lock()
	defer s.decisions.mu.Unlock()
	if s.decisions.known == nil || len(s.decisions.known) >= maxDecisions {
		s.decisions.known = map[policy.Connect]*decision{}
	}
	s.decisions.known[q] = d
	return d
}
