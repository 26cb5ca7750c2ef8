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

// Bounds of the facets of one agent that are awake.
const (
	// mostFacets are awake at one time.
	mostFacets = 16
	// parts is into how many parts that which is for the facets of an agent is divided: a facet
	// whose parent names no limit gets one.
	parts = 4
	// crowdedPause is how long a facet waits before it looks again whether there is room.
	crowdedPause = 20 * time.Millisecond
	// crowdedNote is how long a facet waits before its log says for what.
	crowdedNote = 5 * time.Second
)

// ownPart is what an agent keeps for its own jail if its manifest does not say what is for facets. An
// agent keeps at least a quarter and at most a half of what it has.
var ownPart = Share{Memory: 128 << 20, PIDs: 16}

// forFacets returns the part of a grant that is for facets if the manifest does not name one.
func forFacets(grant Share) Share {
	return grant.minus(Share{max(grant.Memory/4, min(grant.Memory/2, ownPart.Memory)),
		max(grant.PIDs/4, min(grant.PIDs/2, ownPart.PIDs))})
}

// leastPart is what a facet gets at least if its parent names no limit and there is so much: what a
// program for the Python bundle needs.
var leastPart = Share{Memory: 96 << 20, PIDs: 12}

// errCrowded: the facets that are awake have all that there is for facets of the agent.
var errCrowded = errors.New("other facets of the agent are awake")

// errNothing: the parent of a facet has too little to divide.
var errNothing = errors.New("its parent has no memory or no processes for facets")

func (s Share) least(o Share) Share { return Share{min(s.Memory, o.Memory), min(s.PIDs, o.PIDs)} }

func (s Share) plus(o Share) Share { return Share{s.Memory + o.Memory, s.PIDs + o.PIDs} }

func (s Share) minus(o Share) Share { return Share{s.Memory - o.Memory, s.PIDs - o.PIDs} }

// String is for people.
func (s Share) String() string {
	return fmt.Sprintf("%s of memory and %d processes", policy.Bytes.Format(s.Memory), s.PIDs)
}

func (s Share) fitsIn(o Share) bool { return s.Memory <= o.Memory && s.PIDs <= o.PIDs }

// A kin is an agent, or one of its facets, in the line from the agent to an instance.
type kin struct {
	instance store.Instance
	launch   Launch
	ask      ask
	// version changes when what it has does.
	version string
}

// families divide what an agent has among its jail and those of its facets: what is for the facets
// is taken out of the agent's own limits, and each facet that is awake has a part of it. The limits
// of each jail are the kernel's, so all of them together never have more than the agent alone.
type families struct {
	mu sync.Mutex
	// accounts are those of the instances that are awake, or have facets that are.
	accounts map[int64]*account
	// awake counts facets by the number of their agent's instance.
	awake map[int64]int
	// loads numbers the programs that are loaded, from -1 downwards.
	loads atomic.Int64
}

// An account is what one instance has.
type account struct {
	version string
	// awake says that the instance itself runs, and not only facets that stand in it.
	awake bool
	// pool is for its facets, and used is what those have that are awake.
	pool, used Share
	// grant is what it has with its facets.
	grant Share
	// refs counts itself, if it is awake, and the facets that stand in it and are awake.
	refs int
}

// enter takes what an instance needs to run, which is the last of the line, and returns it; nil if
// it is an agent without facets. limits returns what a policy grants.
func (f *families) enter(ctx context.Context, line []kin,
	limits func(context.Context, Launch) (Share, error)) (*Share, error) {
	granted := make([]Share, len(line))
	alone := len(line) == 1 && !line[0].launch.Manifest.Capabilities.Facets
	if alone {
		// It has what its policy grants, and nothing of that is for facets.
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

// serves reports whether a run may use this account: a run of k itself or, with above, a run of a
// facet of k. The files of an instance may change while it runs. It keeps its account until it
// sleeps, and its facets take their parts of that account. Otherwise the instance would wait for a
// facet, and the facet for the instance.
func (a *account) serves(k kin, above bool) bool {
	return a != nil && (a.version == k.version || above && a.awake && a.pool != Share{})
}

// has reports whether an instance has an account that serves.
func (f *families) has(k kin, above bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.accounts[k.instance.ID].serves(k, above)
}

// account returns the account of an instance, which is opened if there is none. f.mu is held.
func (f *families) account(k kin, parent *account, granted Share, above bool) (*account, error) {
	if a := f.accounts[k.instance.ID]; a.serves(k, above) {
		return a, nil
	} else if a != nil {
		// What it had before goes on until all that have a part of it sleep.
		return nil, errCrowded
	}
	if granted == (Share{}) {
		// It was there when this began, and is not any more.
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
		// Something is left for itself.
		a.pool = a.pool.least(Share{grant.Memory - 1, grant.PIDs - 1})
	}
	if f.accounts == nil {
		f.accounts, f.awake = map[int64]*account{}, map[int64]int{}
	}
	f.accounts[k.instance.ID] = a
	return a, nil
}

// leave gives back what enter took.
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

// release closes the accounts that nobody needs any more. f.mu is held.
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
