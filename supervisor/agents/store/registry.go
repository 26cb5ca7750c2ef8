package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jail-sandbox/jail/runners/agent"
)

// States of an instance. Initializing and Active mean awake. They are never stored in the database,
// since after a crash nothing is awake.
const (
	Created      = "created"
	Initializing = "initializing"
	Active       = "active"
	Dormant      = "dormant"
	Failed       = "failed"
	Terminated   = "terminated"
)

// An Agent is a registered agent.
type Agent struct {
	Name string
	// Dir is the directory of the agent's manifest.
	Dir string
	// Stamp changes when the manifest's file does. Digest is the digest of its content.
	Stamp, Digest string
	Added         time.Time
}

// A Member is an agent's membership of a channel.
type Member struct {
	Channel, Handle string
	// Heartbeat is the time between two tick events, 0 for no ticks.
	Heartbeat time.Duration
	// Roster: the agent gets an event when another member joins or leaves the channel.
	Roster bool
}

// An Instance is an agent on one channel, or a facet of another instance.
type Instance struct {
	ID     int64
	Name   string
	Agent  string
	State  string
	Paused bool
	Member
	// Failures is the number of consecutive failures.
	Failures int
	// NotBefore is when the instance may be woken again after a failure.
	NotBefore time.Time
	// Settled is the number of the last event whose effects are delivered.
	Settled uint64
	// Delivered is the highest event number that was ever delivered to the agent.
	Delivered uint64
	// Waiting is the number of events in the inbox, WaitingBytes the size of their data.
	Waiting      int
	WaitingBytes int64
	// Note is the text that the agent set with HOST.setState, Error the reason of a failure.
	Note    string
	Error   string
	Changed time.Time
	// Parent is the id of the parent instance of a facet, else 0. Facet is the facet's path: the
	// names of its parents that are facets, and its own, separated by slashes.
	Parent int64
	Facet  string
	// Ask is the parent's request for this facet.
	Ask []byte
}

// PathOf returns the name of an instance's agent, followed by the path of a facet, as in the id.
func PathOf(i Instance) string {
	if i.Facet == "" {
		return i.Agent
	}
	return i.Agent + "/" + i.Facet
}

const selectInstances = `SELECT id, name, agent, state, paused, channel, handle, failures,
	not_before, settled, delivered, waiting, bytes, note, error, changed, parent, facet, ask
	FROM instance WHERE `

func scanInstance(scan func(...any) error) (i Instance, err error) {
	return i, scan(&i.ID, &i.Name, &i.Agent, &i.State, &i.Paused, &i.Channel, &i.Handle, &i.Failures,
		(*stamp)(&i.NotBefore), &i.Settled, &i.Delivered, &i.Waiting, &i.WaitingBytes, &i.Note,
		&i.Error, (*stamp)(&i.Changed), &i.Parent, &i.Facet, &i.Ask)
}

// instances returns the instances for which the SQL condition which is true. instance returns the
// first of them, or ErrNotFound.
func instances(rows query, which string, args ...any) ([]Instance, error) {
	return list(rows, selectInstances+which, args, scanInstance)
}

func instance(rows query, which string, args ...any) (Instance, error) {
	return first(rows, selectInstances+which, args, scanInstance)
}

// instanceName returns the name of an agent's instance on a channel.
func instanceName(name, channel string) string { return "agent-" + name + "-" + channel }

// Put registers or updates an agent and makes it a member of exactly these channels. Inboxes and
// alarms are kept. An instance on any other channel is terminated, but keeps its state until the
// agent is deleted or joins the channel again. Put returns the other instances that got a roster
// event. It returns ErrTaken if another agent has an instance with the same name.
func (s *Store) Put(a Agent, members []Member) (woken []int64, err error) {
	err = s.write(func(w *writer) error {
		woken = nil
		now := millis(s.now())
		before, err := w.memberships(a.Name)
		if err != nil {
			return err
		}
		if err := w.exec(`INSERT INTO agent (name, dir, stamp, digest, next, added)
			VALUES (?, ?, ?, ?, 1, ?) ON CONFLICT (name) DO UPDATE SET dir = excluded.dir,
			stamp = excluded.stamp, digest = excluded.digest, removed = 0,
			added = CASE WHEN removed > 0 THEN excluded.added ELSE added END`,
			a.Name, a.Dir, a.Stamp, a.Digest, now); err != nil {
			return err
		}
		channels := []string{}
		for _, m := range members {
			channels = append(channels, m.Channel)
		}
		stay, err := json.Marshal(channels)
		if err != nil {
			return err
		}
		if err := w.exec(`UPDATE instance SET state = ?, changed = ? WHERE agent = ?
			AND state <> ? AND channel NOT IN (SELECT value FROM json_each(?))`, Terminated, now,
			a.Name, Terminated, string(stay)); err != nil {
			return err
		}
		for _, m := range members {
			if err := w.join(a.Name, m, now); err != nil {
				return err
			}
		}
		after, err := w.memberships(a.Name)
		if err == nil {
			woken, err = w.tellOthers(peer{ID: s.AgentID(a.Name), Name: a.Name}, before, after,
				s.now())
		}
		return err
	})
	return woken, err
}

// Prepare creates terminated instances for an agent that is not registered yet. They start with the
// event numbers of the instance of, whose state is copied to them. Put then registers the agent.
// Prepare returns ErrTaken if an agent with this name exists.
func (s *Store) Prepare(name string, channels []string, of Instance) error {
	return s.write(func(w *writer) error {
		now := millis(s.now())
		n, err := w.changed(`INSERT INTO agent (name, dir, stamp, digest, next, added, removed)
			SELECT ?1, '', '', '', next, ?2, ?2 FROM agent WHERE name = ?3
			ON CONFLICT (name) DO UPDATE SET next = max(next, excluded.next) WHERE removed > 0`,
			name, now, of.Agent)
		if err == nil && n == 0 {
			err = fmt.Errorf("agent %q: %w", name, ErrTaken)
		}
		for _, channel := range channels {
			if err != nil {
				return err
			}
			n, err = w.changed(`INSERT INTO instance (name, agent, channel, handle, state, delivered,
				settled, changed) VALUES (?1, ?2, ?3, '', ?4, ?5, ?5, ?6)
				ON CONFLICT (name) DO UPDATE SET delivered = ?5, settled = ?5
				WHERE agent = ?2 AND channel = ?3 AND deleting = 0`, instanceName(name, channel), name,
				channel, Terminated, of.Settled, now)
			if err == nil && n == 0 {
				err = fmt.Errorf("instance %s: %w", instanceName(name, channel), ErrTaken)
			}
		}
		return err
	})
}

// A peer describes a member of a channel in a roster event.
type peer struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Handle string `json:"handle"`
}

// memberships returns the channels of an agent, with its handle on each.
func (w *writer) memberships(name string) (map[string]string, error) {
	on := map[string]string{}
	err := w.rows(`SELECT channel, handle FROM instance WHERE agent = ? AND state <> ?`,
		[]any{name, Terminated}, func(r *sql.Rows) error {
			var channel, handle string
			err := r.Scan(&channel, &handle)
			on[channel] = handle
			return err
		})
	return on, err
}

// tellOthers sends roster events to members that asked for them, about the channels that agent who
// has joined (in after only) or left (in before only). It returns the instances that got one. It
// skips full inboxes.
func (w *writer) tellOthers(who peer, before, after map[string]string,
	now time.Time) (woken []int64, err error) {
	tell := func(change string, from, to map[string]string) error {
		for channel, handle := range from {
			if _, stays := to[channel]; stays {
				continue
			}
			who.Handle = handle
			data, err := json.Marshal(map[string]peer{change: who})
			if err != nil {
				return err
			}
			others, err := list(w.rows, `SELECT id FROM instance WHERE channel = ? AND roster
				AND state <> ? AND agent <> ?`, []any{channel, Terminated, who.Name}, single[int64])
			if err != nil {
				return err
			}
			for _, id := range others {
				_, _, err := w.append(id, agent.Event{Source: "host", Channel: channel,
					Type: agent.TypeRoster, Data: data}, now, false)
				if err == nil {
					woken = append(woken, id)
				} else if !errors.Is(err, ErrFull) {
					return err
				}
			}
		}
		return nil
	}
	err = tell("left", before, after)
	if err == nil {
		err = tell("joined", after, before)
	}
	return woken, err
}

// join makes an agent a member of a channel, or updates its membership.
func (w *writer) join(name string, m Member, now int64) error {
	instance := instanceName(name, m.Channel)
	var other, channel string
	var id int64
	var deleting bool
	err := w.row(`SELECT id, agent, channel, deleting FROM instance WHERE name = ?`,
		[]any{instance}, &id, &other, &channel, &deleting)
	switch {
	case err == ErrNotFound:
		if err := w.row(`INSERT INTO instance (name, agent, channel, handle, roster, state, changed)
			VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING id`, []any{instance, name, m.Channel, m.Handle,
			m.Roster, Created, now}, &id); err != nil {
			return err
		}
	case err != nil:
		return err
	case deleting:
		return fmt.Errorf("instance %s is being deleted: %w", instance, ErrTaken)
	case other != name || channel != m.Channel:
		return fmt.Errorf("agent %q on channel %q would have the instance %s, which is that of "+
			"agent %q on channel %q: %w", name, m.Channel, instance, other, channel, ErrTaken)
	default:
		// This also updates the agent's facets, which are on the same channel and get no roster
		// events.
		if err := w.exec(`UPDATE instance SET handle = ?, roster = CASE parent WHEN 0 THEN ? ELSE 0
			END, state = CASE state WHEN ? THEN ? ELSE state END WHERE agent = ? AND channel = ?
			AND deleting = 0`, m.Handle, m.Roster, Terminated, Dormant, name,
			m.Channel); err != nil {
			return err
		}
	}
	return w.heartbeat(id, m.Heartbeat, now)
}

// heartbeat sets the time between two ticks of an instance, 0 for no ticks. A due tick stays due.
func (w *writer) heartbeat(id int64, every time.Duration, now int64) error {
	if every <= 0 {
		return w.exec(`DELETE FROM alarm WHERE instance = ? AND name = ''`, id)
	}
	ms := every.Milliseconds()
	return w.exec(`INSERT INTO alarm (instance, name, at, every, pending) VALUES (?, '', ?, ?, 0)
		ON CONFLICT DO UPDATE SET every = excluded.every, at = min(at, excluded.at)`, id, now+ms,
		ms)
}

// Delete deletes an agent with its inboxes, alarms and publications. Its event numbers are not
// reused. It returns the agent's instances, whose files the caller removes before it calls Forget,
// and the other instances that got a roster event.
func (s *Store) Delete(name string) (all []Instance, woken []int64, err error) {
	err = s.write(func(w *writer) error {
		before, err := w.memberships(name)
		if err != nil {
			return err
		}
		n, err := w.changed(`UPDATE agent SET removed = ? WHERE name = ? AND removed = 0`,
			millis(s.now()), name)
		if err != nil {
			return err
		}
		if n == 0 {
			return ErrNotFound
		}
		if err := w.exec(`DELETE FROM tokens WHERE agent = ?`, name); err != nil {
			return err
		}
		if all, err = w.condemn(`SELECT id FROM instance WHERE agent = ?`, name); err != nil {
			return err
		}
		woken, err = w.tellOthers(peer{ID: s.AgentID(name), Name: name}, before, nil, s.now())
		return err
	})
	return all, woken, err
}

// Agents calls f for each registered agent, in order of their names.
func (s *Store) Agents(ctx context.Context, f func(Agent) error) error {
	return visit(s.reading(ctx), selectAgents+` ORDER BY name`, nil, scanAgent, f)
}

const selectAgents = `SELECT name, dir, stamp, digest, added FROM agent WHERE removed = 0`

func scanAgent(scan func(...any) error) (a Agent, err error) {
	return a, scan(&a.Name, &a.Dir, &a.Stamp, &a.Digest, (*stamp)(&a.Added))
}

// Agent returns a registered agent, or ErrNotFound.
func (s *Store) Agent(ctx context.Context, name string) (Agent, error) {
	return first(s.reading(ctx), selectAgents+` AND name = ?`, []any{name}, scanAgent)
}

// Instances calls f for each instance of an agent, or of all agents if name is empty, by creation.
func (s *Store) Instances(ctx context.Context, name string, f func(Instance) error) error {
	which, args := `deleting = 0 ORDER BY agent, id`, []any(nil)
	if name != "" {
		which, args = `agent = ? AND deleting = 0 ORDER BY id`, []any{name}
	}
	return visit(s.reading(ctx), selectInstances+which, args, scanInstance, f)
}

// Members returns the instances on a channel. Facets are not among them.
func (s *Store) Members(ctx context.Context, channel string) ([]Instance, error) {
	return instances(s.reading(ctx), `channel = ? AND state <> ? AND parent = 0 ORDER BY id`, channel,
		Terminated)
}

// Instance returns the instance with this id, or ErrNotFound.
func (s *Store) Instance(ctx context.Context, id int64) (Instance, error) {
	return instance(s.reading(ctx), `id = ?`, id)
}

// SetState stores the state of an instance. why is the reason if the state is Failed.
func (s *Store) SetState(id int64, state, why string) error {
	return s.exec(`UPDATE instance SET state = ?, error = ?, changed = ? WHERE id = ?
		AND state <> ?`, state, why, millis(s.now()), id, Terminated)
}

// SetPaused stores whether an instance is paused. A paused instance is not woken.
func (s *Store) SetPaused(id int64, paused bool) error {
	return s.exec(`UPDATE instance SET paused = ?, changed = ? WHERE id = ?`, paused,
		millis(s.now()), id)
}

// SetFailures stores an instance's number of consecutive failures, the reason of the last one, and
// when the instance may be woken again.
func (s *Store) SetFailures(id int64, failures int, notBefore time.Time, why string) error {
	return s.exec(`UPDATE instance SET failures = ?, not_before = ?, error = ? WHERE id = ?`,
		failures, millis(notBefore), why, id)
}

// Ready calls f for each instance with events in its inbox.
func (s *Store) Ready(ctx context.Context, f func(Instance) error) error {
	return visit(s.reading(ctx), selectInstances+`waiting > 0`, nil, scanInstance, f)
}
