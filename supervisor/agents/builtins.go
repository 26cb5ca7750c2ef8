package agents

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/jail-sandbox/jail/jail/atomicfile"
	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/supervisor/agents/builtin"
	"github.com/jail-sandbox/jail/supervisor/agents/manifest"
	"github.com/jail-sandbox/jail/supervisor/agents/store"
	"github.com/jail-sandbox/jail/supervisor/audit"
)

// Errors about placing agents on channels.
var (
	// ErrPlace is wrapped by errors about a place that is not allowed for an agent.
	ErrPlace = errors.New("the agent cannot be put there")
	// ErrAvailable is wrapped by errors about a built-in agent that is not on any channel.
	ErrAvailable = errors.New("it is built in, and on no channel")
)

// placesFile is the file in the directory of a built-in agent with the channels on which its user
// has put it: a JSON object of builtin.Place by channel.
const placesFile = "places.json"

// builtins is the parent directory of the directories of built-in agents, named by agent. No
// instance has a directory of this name.
type builtins string

func builtinsOf(state string) builtins { return builtins(filepath.Join(state, "builtin")) }

func (b builtins) dir(name string) string { return filepath.Join(string(b), name) }

// Spawn puts a built-in agent on a channel, or wakes the user's agent of that name on a channel of
// its manifest, and returns the instance. An empty channel means manifest.DefaultChannel for a
// built-in agent, else the first channel of the manifest.
func (a *Agents) Spawn(ctx context.Context, name, channel string,
	p builtin.Place) (store.Instance, error) {
	b, ok := builtin.Find(name)
	if !ok {
		return wakeOn(ctx, a, name, channel, p)
	}
	channel = cmp.Or(channel, manifest.DefaultChannel)
	if err := builtin.CheckPlace(channel, p); err != nil {
		return store.Instance{}, fmt.Errorf("%w: %w", ErrPlace, err)
	}
	woken, err := placeOn(a, b, channel, p)
	if err != nil {
		return store.Instance{}, err
	}
	a.wake(woken...)
	i, err := instanceOn(ctx, a, name, channel)
	if err != nil {
		return i, err
	}
	a.record(i, audit.AgentStep{Step: audit.AgentInstalled, Runtime: manifest.Host})
	a.turns.tell(i.ID, signal{sleep: "its owner changed it"})
	return i, nil
}

// placeOn puts a built-in agent on one more channel and returns the instances to wake.
func placeOn(a *Agents, of builtin.Agent, channel string, p builtin.Place) ([]int64, error) {
	a.placing.Lock()
	defer a.placing.Unlock()
	all := builtinsOf(a.o.State)
	places, err := all.places(of.Name)
	if err != nil {
		return nil, err
	}
	places[channel] = p
	return all.place(a.Store, of, places)
}

// wakeOn wakes a user's agent on a channel of its manifest and returns the instance.
func wakeOn(ctx context.Context, a *Agents, name, channel string,
	p builtin.Place) (store.Instance, error) {
	if _, err := a.Store.Agent(ctx, name); err != nil {
		return store.Instance{}, fmt.Errorf("agent %q: %w", name, err)
	}
	m, err := a.Manifest(name)
	if err != nil {
		return store.Instance{}, err
	}
	channel = cmp.Or(channel, m.Channels[0])
	switch {
	case p.Handle != "" && p.Handle != m.Handle, len(p.Config) > 0:
		return store.Instance{}, fmt.Errorf("%w: handle and config of agent %q are those of its "+
			"manifest, %s", ErrPlace, name, m.Source)
	case !m.Has(channel):
		return store.Instance{}, fmt.Errorf("%w: agent %q is not on channel %q: its manifest has %q",
			ErrPlace, name, channel, m.Channels)
	}
	i, err := instanceOn(ctx, a, name, channel)
	if err == nil {
		_, err = a.Send(i.ID, agent.Event{Source: "host", Channel: channel, Type: agent.TypeManual})
	}
	return i, err
}

// instanceOn returns the instance of an agent on this channel.
func instanceOn(ctx context.Context, a *Agents, name, channel string) (store.Instance, error) {
	all, err := a.Of(ctx, name)
	for _, i := range all {
		if i.Channel == channel && i.Parent == 0 {
			return i, nil
		}
	}
	if err == nil {
		err = fmt.Errorf("agent %q on channel %q: %w", name, channel, store.ErrNotFound)
	}
	return store.Instance{}, err
}

// places returns the places of a built-in agent, by channel.
func (b builtins) places(name string) (map[string]builtin.Place, error) {
	places := map[string]builtin.Place{}
	text, err := os.ReadFile(filepath.Join(b.dir(name), placesFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return places, nil
	case err != nil:
		return nil, err
	}
	return places, json.Unmarshal(text, &places)
}

// place stores the places of a built-in agent and makes it a member of exactly these channels.
func (b builtins) place(s *store.Store, of builtin.Agent,
	places map[string]builtin.Place) ([]int64, error) {
	text, err := json.Marshal(places)
	if err != nil {
		return nil, err
	}
	dir := b.dir(of.Name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := atomicfile.Write(filepath.Join(dir, placesFile), text, 0o600, atomicfile.Durable); err != nil {
		return nil, err
	}
	var members []store.Member
	for _, channel := range slices.Sorted(maps.Keys(places)) {
		members = append(members, store.Member{Channel: channel,
			Handle: of.HandleAt(places[channel])})
	}
	sum := sha256.Sum256(append([]byte(of.Name+"\n"), text...))
	return s.Put(store.Agent{Name: of.Name, Dir: dir, Stamp: stampOf(dir),
		Digest: "sha256:" + hex.EncodeToString(sum[:])}, members)
}

// reserved returns the error for a user's agent that has the name of a built-in one, else nil.
func reserved(name string) error {
	if _, ok := builtin.Find(name); !ok {
		return nil
	}
	return wrong(fmt.Errorf("%q is the name of a built-in agent, so this one is skipped: give it "+
		"another name", name))
}

// runtimeOf returns the runtime for the audit log, empty for an agent in a jail.
func runtimeOf(m manifest.Manifest) string {
	if m.OnHost() {
		return m.Runtime
	}
	return ""
}
