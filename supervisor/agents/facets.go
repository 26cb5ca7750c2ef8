package agents

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/supervisor/agents/manifest"
	"github.com/jail-sandbox/jail/supervisor/agents/store"
	"github.com/jail-sandbox/jail/supervisor/audit"
)

// A facet is a child of an instance, with a row, a database and a jail of its own. It runs the
// agent's module. It may do what both its parent may do and its parent asked for: its policy is the
// intersection with each policy that a parent asked for, its bindings are among its parent's, and
// its memory is taken from its parent's (families.go). Only its parent can call it.

// facets has the methods of Agents for facets.
type facets struct{ a *Agents }

// Bounds of an ask, in bytes if nothing else is said.
const (
	minStorage     = 1 << 20
	defaultStorage = 16 << 20
	maxAskPolicy   = 64 << 10
	// maxAskLimits is the maximum number of limits, and of gatekeepers.
	maxAskLimits = 16
	maxReason    = 500
)

// An ask is a parent's request for a facet.
type ask struct {
	Class    string          `json:"class,omitempty"`
	Bindings []string        `json:"bindings,omitempty"`
	Network  bool            `json:"network,omitempty"`
	Facets   bool            `json:"facets,omitempty"`
	Policy   string          `json:"policy,omitempty"`
	Limits   []string        `json:"limits,omitempty"`
	Storage  int64           `json:"storage,omitempty"`
	Config   json.RawMessage `json:"config,omitempty"`
	// Gatekeepers are the facet's gatekeepers, among its parent's.
	Gatekeepers []string `json:"gatekeepers,omitempty"`
}

// names reports whether the ask sets this limit.
func (k ask) names(limit string) bool {
	return slices.ContainsFunc(k.Limits, func(l string) bool {
		return strings.HasPrefix(l, limit+"=")
	})
}

func (k ask) check() error {
	bad := func(format string, args ...any) error {
		return agent.Errorf(agent.ErrParams, "facet: "+format, args...)
	}
	limits := policy.TopLimits()
	for _, l := range k.Limits {
		name, value, ok := strings.Cut(l, "=")
		if !ok {
			return bad("limit %.60q: want NAME=VALUE", l)
		}
		if err := limits.Set(name, value); err != nil {
			return bad("limit %.60q: %v", l, err)
		}
	}
	for _, b := range k.Bindings {
		if !slices.Contains(agent.Bindings, b) {
			return bad("binding %.60q: there are %s", b, strings.Join(agent.Bindings, ", "))
		}
	}
	for _, name := range k.Gatekeepers {
		if err := manifest.CheckName(name); err != nil {
			return bad("gatekeeper %v", err)
		}
	}
	switch {
	case len(k.Gatekeepers) > maxAskLimits:
		return bad("%d gatekeepers, more than %d", len(k.Gatekeepers), maxAskLimits)
	case len(k.Class) > agent.MaxName:
		return bad("a class of %d bytes, more than %d", len(k.Class), agent.MaxName)
	case len(k.Policy) > maxAskPolicy:
		return bad("a policy of %d bytes, more than %d", len(k.Policy), maxAskPolicy)
	case len(k.Limits) > maxAskLimits:
		return bad("%d limits, more than %d", len(k.Limits), maxAskLimits)
	case k.Storage != 0 && k.Storage < minStorage:
		return bad("storage: %d bytes, want at least %d", k.Storage, minStorage)
	}
	if config := bytes.TrimSpace(k.Config); len(config) > 0 && config[0] != '{' {
		return bad("config is no object")
	}
	return nil
}

// of returns the manifest of a facet from its parent's manifest m: with the capabilities that the
// ask names and the parent has.
func (k ask) of(m manifest.Manifest) manifest.Manifest {
	c := &m.Capabilities
	asks := func(binding string) bool { return slices.Contains(k.Bindings, binding) }
	c.AI, c.Storage = c.AI && asks(agent.AI), c.Storage && asks(agent.Storage)
	c.Network, c.Facets = c.Network && k.Network, c.Facets && k.Facets
	// A facet has no tools. The agent runs them for it.
	c.Tools = nil
	c.Gatekeepers = slices.DeleteFunc(slices.Clone(c.Gatekeepers), func(name string) bool {
		return !slices.Contains(k.Gatekeepers, name)
	})
	m.Mute = m.Mute || !asks(agent.PubSub)
	m.Facets = manifest.Facets{}
	m.Limits = slices.Concat(m.Limits, k.Limits)
	if m.Storage = min(m.Storage, defaultStorage); k.Storage > 0 {
		m.Storage = k.Storage
	}
	m.Config = json.RawMessage("{}")
	if len(k.Config) > 0 {
		m.Config = k.Config
	}
	m.Wake.Heartbeat = 0
	// The parent gets the error and may call again.
	m.Wake.Retries = 0
	return m
}

// line returns the instances from the agent down to i, which is the last.
func (f facets) line(ctx context.Context, i store.Instance) ([]kin, error) {
	a := f.a
	m, dir, err := a.manifest(i.Agent, i.Channel)
	if err != nil {
		return nil, err
	}
	known, err := a.Store.Agent(ctx, i.Agent)
	if err != nil {
		return nil, err
	}
	instances := []store.Instance{i}
	for instances[0].Parent != 0 {
		parent, err := a.Store.Instance(ctx, instances[0].Parent)
		if err != nil {
			return nil, fmt.Errorf("parent of %s: %w", instances[0].Name, err)
		}
		instances = append([]store.Instance{parent}, instances...)
	}
	var line []kin
	l := Launch{Channel: i.Channel, Dir: dir, Manifest: m}
	version := known.Digest
	for _, i := range instances {
		k := kin{instance: i}
		if i.Parent != 0 {
			if err := json.Unmarshal(i.Ask, &k.ask); err != nil {
				return nil, fmt.Errorf("facet %q: %w", i.Facet, err)
			}
			most := l.Manifest.Storage
			l.Manifest = k.ask.of(l.Manifest)
			l.Manifest.Storage = min(l.Manifest.Storage, most)
			l.Class = k.ask.Class
			if k.ask.Policy != "" {
				l.Narrow = append(slices.Clip(l.Narrow), k.ask.Policy)
			}
			version += "\n" + string(i.Ask)
		}
		l.Instance, l.AgentID, l.State = i.Name, a.Store.AgentID(store.PathOf(i)), a.stateDir(i.Name)
		k.launch, k.version = l, version
		line = append(line, k)
	}
	return line, nil
}

// makeRoom makes the agent's other facets sleep once they have ended their work, to free resources
// for the waiting facet at the end of line. The parents of that facet go on.
func (f facets) makeRoom(line []kin) {
	a := f.a
	all, err := a.Of(a.ctx, line[0].instance.Agent)
	if err != nil {
		return
	}
	for _, i := range all {
		if i.Parent != 0 && i.Channel == line[0].instance.Channel &&
			!slices.ContainsFunc(line, func(k kin) bool { return k.instance.ID == i.ID }) {
			a.turns.tell(i.ID, signal{sleep: "other facets wait for room"})
		}
	}
}

// rests reports whether an instance is paused. A facet is paused with its agent, but goes on while
// its parent runs, since the parent may wait for it.
func (f facets) rests(i store.Instance) bool {
	for i.Parent != 0 {
		parent, err := f.a.Store.Instance(f.a.ctx, i.Parent)
		if err != nil || f.a.turns.state(i.Parent) != "" {
			return false
		}
		i = parent
	}
	return i.Paused
}

// sleep makes the facets of an instance sleep, after the paused instance has ended.
func (f facets) sleep(i store.Instance) {
	all, err := store.ChildrenOf(f.a.Store).Of(f.a.ctx, i.ID)
	if err != nil {
		f.a.o.Log.Error("the facets of a paused agent are not paused", "instance", i.Name, "error", err)
	}
	for _, child := range all {
		f.a.turns.tell(child.ID, signal{sleep: "paused"})
	}
}

var facetName = regexp.MustCompile(`^[a-z][a-z0-9._-]{0,62}$`)

// parents returns m, restricted to agents that may have facets.
func parents(m method) method {
	return func(c *calls, ctx context.Context, call agent.Call) (any, error) {
		if c.r.m.OnHost() {
			return nil, agent.Errorf(agent.ErrNoBinding, "there are no facets and no loaded "+
				"programs: they have a part of the jail of their agent, and this agent has none")
		}
		if !c.r.m.Capabilities.Facets {
			return nil, agent.Errorf(agent.ErrNoBinding, "there are no facets: write facets = true "+
				"in [capabilities], and facets: true for a facet that has some itself")
		}
		return m(c, ctx, call)
	}
}

// A facetEnd is the parameters of abortFacet and deleteFacet.
type facetEnd struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

func (c *calls) abortFacet(ctx context.Context, _ agent.Call, p facetEnd) (any, error) {
	i, err := c.find(ctx, p.Name)
	if err != nil {
		return nil, err
	}
	return struct{}{}, facets{c.r.a}.abort(ctx, i, p.Reason)
}

func (c *calls) deleteFacet(ctx context.Context, _ agent.Call, p facetEnd) (any, error) {
	i, err := c.find(ctx, p.Name)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return deleted{}, nil
	case err != nil:
		return nil, err
	}
	return deleted{true}, facets{c.r.a}.delete(ctx, i)
}

type deleted struct {
	Deleted bool `json:"deleted"`
}

// A child describes a facet to its parent.
type child struct {
	Name    string `json:"name"`
	ID      string `json:"id"`
	State   string `json:"state"`
	Waiting int    `json:"waiting"`
	Note    string `json:"note,omitempty"`
	Error   string `json:"error,omitempty"`
}

func (c *calls) child(i store.Instance) child {
	return child{i.Facet[strings.LastIndexByte(i.Facet, '/')+1:], c.r.a.Store.AgentID(store.PathOf(i)),
		c.r.a.StateOf(i), i.Waiting, i.Note, i.Error}
}

// facet returns the facet with this name, and creates it if there is none.
func (c *calls) facet(ctx context.Context, _ agent.Call, p struct {
	Name string `json:"name"`
	ask
}) (any, error) {
	if !facetName.MatchString(p.Name) {
		return nil, agent.Errorf(agent.ErrParams, "facet %.80q: want a name of 1 to 63 "+
			"lower-case letters, digits, ., _ and -, which begins with a letter", p.Name)
	}
	if err := p.check(); err != nil {
		return nil, err
	}
	text, err := json.Marshal(p.ask)
	if err != nil {
		return nil, err
	}
	if p.Policy != "" {
		// Check the policy now, so that the parent gets the error.
		l := c.r.l
		l.Manifest, l.Narrow = p.of(l.Manifest), append(slices.Clip(l.Narrow), p.Policy)
		if _, err := c.r.a.o.Jails.Limits(ctx, l); err != nil {
			return nil, agent.Errorf(agent.ErrParams, "facet: %v", err)
		}
	}
	i, changed, err := store.ChildrenOf(c.r.a.Store).Get(c.r.from.ID, p.Name, text)
	if err != nil {
		return nil, err
	}
	if changed {
		c.r.a.turns.replace(i.ID, "its parent asks for something else")
	}
	// A changed ask gives a failed facet new tries.
	return c.child(i), c.r.a.revive(i)
}

func (c *calls) facets(ctx context.Context) (any, error) {
	all, err := store.ChildrenOf(c.r.a.Store).Of(ctx, c.r.from.ID)
	out := []child{}
	for _, i := range all {
		out = append(out, c.child(i))
	}
	return out, err
}

// find returns the agent's facet with this name.
func (c *calls) find(ctx context.Context, name string) (store.Instance, error) {
	if !facetName.MatchString(name) {
		return store.Instance{}, fmt.Errorf("facet %.80q: %w", name, store.ErrNotFound)
	}
	i, err := store.ChildrenOf(c.r.a.Store).Find(ctx, c.r.from, name)
	if err != nil {
		err = fmt.Errorf("facet %q: %w", name, err)
	}
	return i, err
}

// callFacets calls methods of facets in parallel and returns their results. Each call is a TypeCall
// event and its answer a TypeResult message, as in callMethod.
func (c *calls) callFacets(ctx context.Context, call agent.Call, p struct {
	Calls []struct {
		Name   string          `json:"name"`
		Method string          `json:"method"`
		Args   json.RawMessage `json:"args,omitempty"`
	} `json:"calls"`
}) (any, error) {
	if len(p.Calls) == 0 || len(p.Calls) > store.MaxFacets || call.Key == "" {
		return nil, agent.Errorf(agent.ErrParams, "callFacets takes 1 to %d calls, in an event",
			store.MaxFacets)
	}
	type result struct {
		Result any          `json:"result"`
		Error  *agent.Error `json:"error,omitempty"`
	}
	all := make([]result, len(p.Calls))
	var work sync.WaitGroup
	for n, one := range p.Calls {
		work.Go(func() {
			i, err := c.find(ctx, one.Name)
			if err == nil {
				key := fmt.Sprintf("%s/%d", call.Key, n+1)
				all[n].Result, err = c.ask(ctx, i, key, map[string]any{"method": one.Method,
					"args": one.Args})
			}
			if err != nil {
				all[n] = result{Error: asError(err)}
			}
		})
	}
	work.Wait()
	return all, nil
}

// abort ends a facet and the facets below it at once. Their committed state stays; waiting events
// become dead letters. The next call starts the facet again.
func (f facets) abort(ctx context.Context, i store.Instance, reason string) error {
	a := f.a
	reason = runners.Cut(reason, maxReason)
	all, err := store.ChildrenOf(a.Store).Abort(i.ID, abortedBy+reason)
	if err != nil {
		return err
	}
	for _, i := range all {
		a.pulse.beat(i.ID, Anyone)
		a.record(i, audit.AgentStep{Step: audit.AgentAborted, Reason: reason})
		a.turns.end(i.ID)
	}
	for _, i := range all {
		if err := a.turns.gone(ctx, i.ID); err != nil {
			return err
		}
	}
	return nil
}

// abortedBy is the prefix of the reason of dead letters whose facet was aborted.
const abortedBy = "aborted by its parent: "

// delete ends a facet and the facets below it, and durably removes their storage.
func (f facets) delete(ctx context.Context, i store.Instance) error {
	a := f.a
	all, err := store.ChildrenOf(a.Store).Condemn(i.ID)
	if err != nil {
		return err
	}
	for _, i := range all {
		a.record(i, audit.AgentStep{Step: audit.AgentRemoved})
	}
	return f.remove(ctx, all)
}
