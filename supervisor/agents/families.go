package agents

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/supervisor/agents/store"
)

// Limits of the awake facets of one agent.
const (
	// mostFacets is how many facets may be awake at a time.
	mostFacets = 16
	// parts is the divisor of the facets' pool: a facet without a limit in its ask gets one part.
	parts = 4
	// crowdedPause is how long a facet waits before it asks again for resources.
	crowdedPause = 20 * time.Millisecond
	// crowdedNote is how long a facet waits before it logs what it waits for.
	crowdedNote = 5 * time.Second
)

// ownPart is the share that an agent keeps for its own jail if its manifest does not set the
// facets' share, but at least a quarter and at most a half of its limits.
var ownPart = Share{Memory: 128 << 20, PIDs: 16}

// forFacets returns the facets' part of a grant if the manifest does not set one.
func forFacets(grant Share) Share {
	return grant.minus(Share{max(grant.Memory/4, min(grant.Memory/2, ownPart.Memory)),
		max(grant.PIDs/4, min(grant.PIDs/2, ownPart.PIDs))})
}

// leastPart is the minimum for a facet without a limit in its ask, if the pool has so much. A
// program for the Python bundle needs this.
var leastPart = Share{Memory: 96 << 20, PIDs: 12}

// errCrowded: the awake facets use all that the agent has for facets.
var errCrowded = errors.New("other facets of the agent are awake")

// errNothing: the parent of a facet has too little memory or too few processes to divide.
var errNothing = errors.New("its parent has no memory or no processes for facets")

func (s Share) least(o Share) Share { return Share{min(s.Memory, o.Memory), min(s.PIDs, o.PIDs)} }

func (s Share) plus(o Share) Share { return Share{s.Memory + o.Memory, s.PIDs + o.PIDs} }

func (s Share) minus(o Share) Share { return Share{s.Memory - o.Memory, s.PIDs - o.PIDs} }

// String returns the share as text for messages.
func (s Share) String() string {
	return fmt.Sprintf("%s of memory and %d processes", policy.Bytes.Format(s.Memory), s.PIDs)
}

func (s Share) fitsIn(o Share) bool { return s.Memory <= o.Memory && s.PIDs <= o.PIDs }

// A kin is an agent or a facet, as an element of the line from the agent down to an instance.
type kin struct {
	instance store.Instance
	launch   Launch
	ask      ask
	// version changes when the resources of the instance change.
	version string
}

// families divides the resources of agents among their jails and the jails of their facets. The
// pool for facets is subtracted from the agent's own limits, and each awake facet gets a part of
// it. The kernel enforces the limits of each jail, so all together never exceed the agent's limits.
type families struct {
	mu sync.Mutex
	// accounts are the accounts of instances that are awake or have awake facets, by id.
	accounts map[int64]*account
	// awake is the number of awake facets, by the id of their agent's instance.
	awake map[int64]int
	// loads is the last id of a loaded program. The ids are negative.
	loads atomic.Int64
}

// An account holds the resources of one instance.
type account struct {
	version string
	// awake says that the instance itself runs, and not only facets below it.
	awake bool
	// pool is the share for its facets, used the part of it that awake facets have.
	pool, used Share
	// grant is the share of the instance, including its facets.
	grant Share
	// refs counts the instance, if it is awake, and the awake facets below it.
	refs int
}

// enter reserves the resources for the last instance of line and returns its own share, or nil for
// an agent without facets. It returns errCrowded if they are in use. limits returns a policy's
// limits.
func (f *families) enter(ctx context.Context, line []kin,
	limits func(context.Context, Launch) (Share, error)) (*Share, error) {
	granted := make([]Share, len(line))
	alone := len(line) == 1 && !line[0].launch.Manifest.Capabilities.Facets
	if alone {
		// Not divided, so any share will do.
		granted[0] = Share{1, 1}
	}
	for i, k := range line {
		if alone || f.has(k, i < len(line)-1) {
			continue
		}
		var err error
		if granted[i], err = limits(ctx, k.launch); err != nil {
			return nil, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	root := line[0].instance.ID
	if len(line) > 1 && f.awake[root] >= mostFacets {
		return nil, fmt.Errorf("%w: %d, and no more may be", errCrowded, mostFacets)
	}
	var parent *account
	for i, k := range line {
		a, err := f.account(k, parent, granted[i], i < len(line)-1)
		if err != nil {
			f.release(line[:i])
			return nil, err
		}
		a.refs++
		parent = a
	}
	if len(line) > 1 {
		f.awake[root]++
	}
	parent.awake = true
	if alone {
		return nil, nil
	}
	own := parent.grant.minus(parent.pool)
	return &own, nil
}

// serves reports whether a run of k or, with above, of a facet of k may use this account. An
// instance whose files change while it runs keeps its account until it sleeps, and its facets use
// that account. Otherwise the instance and its facet would wait for each other.
func (a *account) serves(k kin, above bool) bool {
	return a != nil && (a.version == k.version || above && a.awake && a.pool != Share{})
}

// has reports whether instance k has an account that serves the run.
func (f *families) has(k kin, above bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.accounts[k.instance.ID].serves(k, above)
}

// account returns the account of an instance, and opens it if there is none. f.mu is held.
func (f *families) account(k kin, parent *account, granted Share, above bool) (*account, error) {
	if a := f.accounts[k.instance.ID]; a.serves(k, above) {
		return a, nil
	} else if a != nil {
		// The old account is used until all that have a part of it sleep.
		return nil, errCrowded
	}
	if granted == (Share{}) {
		// The account was closed since enter looked for it.
		return nil, errCrowded
	}
	grant := granted
	if parent != nil {
		part := Share{max(parent.pool.Memory/parts, leastPart.Memory),
			max(parent.pool.PIDs/parts, leastPart.PIDs)}
		if !k.ask.names("memory") {
			grant.Memory = min(grant.Memory, part.Memory)
		}
		if !k.ask.names("pids") {
			grant.PIDs = min(grant.PIDs, part.PIDs)
		}
		grant = grant.least(parent.pool)
		if grant.Memory < 1 || grant.PIDs < 1 {
			return nil, fmt.Errorf("facet %q: %w", k.instance.Facet, errNothing)
		}
		if !parent.used.plus(grant).fitsIn(parent.pool) {
			return nil, fmt.Errorf("%w: they have %v, this one needs %v, and all of them may have %v; "+
				"raise memory and pids in [limits] of the policy of the agent and in [facets] of its "+
				"manifest", errCrowded, parent.used, grant, parent.pool)
		}
		parent.used = parent.used.plus(grant)
	}
	a := &account{version: k.version, grant: grant}
	if m := k.launch.Manifest; m.Capabilities.Facets {
		a.pool = forFacets(grant)
		if m.Facets.Memory > 0 {
			a.pool.Memory = m.Facets.Memory
		}
		if m.Facets.PIDs > 0 {
			a.pool.PIDs = m.Facets.PIDs
		}
		// Leave something for the instance itself.
		a.pool = a.pool.least(Share{grant.Memory - 1, grant.PIDs - 1})
	}
	if f.accounts == nil {
		f.accounts, f.awake = map[int64]*account{}, map[int64]int{}
	}
	f.accounts[k.instance.ID] = a
	return a, nil
}

// leave returns the resources that enter reserved.
func (f *families) leave(line []kin) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.accounts[line[len(line)-1].instance.ID].awake = false
	if root := line[0].instance.ID; len(line) > 1 {
		if f.awake[root]--; f.awake[root] == 0 {
			delete(f.awake, root)
		}
	}
	f.release(line)
}

// release drops a reference to each account of the line and closes unused ones. f.mu is held.
func (f *families) release(line []kin) {
	for i := len(line) - 1; i >= 0; i-- {
		id := line[i].instance.ID
		a := f.accounts[id]
		if a.refs--; a.refs > 0 {
			continue
		}
		delete(f.accounts, id)
		if i > 0 {
			parent := f.accounts[line[i-1].instance.ID]
			parent.used = parent.used.minus(a.grant)
		}
	}
}
