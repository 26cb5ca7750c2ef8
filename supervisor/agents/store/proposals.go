package store

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"time"

	"github.com/jail-sandbox/jail/runners/agent"
)

// maxProposals is how many actions of an instance may wait for a decision.
const maxProposals = 200

// A Proposal is an action of an instance that waits in the approval queue of jaild, or is about to.
// It is kept until the instance was told of the decision.
type Proposal struct {
	// ID is AGENT/SEQ/N of what the agent proposed, and of a tool that of its action.
	ID       string
	Instance int64
	Time     time.Time
	// Data is what the agent says of the action, any JSON value.
	Data json.RawMessage
	// Key is the secret by which jail-agentd claims the action; empty for a tool, which jaild
	// itself carries out.
	Key string
	// Action is its id in the queue, empty as long as it is not known to be there.
	Action string
	// Told: the inbox of the instance has the decision, and the queue does not know that yet.
	Told bool
}

// propose notes an action that goes into the queue.
func (d *delivery) propose(id string, f agent.Effect) error {
	var n int
	if err := d.w.row(countProposals, []any{d.from.ID}, &n); err != nil {
		return err
	}
	if n >= maxProposals {
		return refused("%d proposals of agent %q wait for a decision already", n, d.from.Agent)
	}
	d.done.Proposed = true
	return d.w.exec(`INSERT INTO proposal (id, instance, time, data, key) VALUES (?, ?, ?, ?, ?)`,
		id, d.from.ID, millis(d.now), []byte(f.Data), rand.Text())
}

const countProposals = `SELECT count(*) FROM proposal WHERE instance = ?`

// Asks are the actions that wait for a decision.
type Asks struct{ s *Store }

// AsksOf returns the actions of a database that wait.
func AsksOf(s *Store) Asks { return Asks{s} }

// Room returns an error if so many actions of an instance wait that there is no room for one more.
func (a Asks) Room(ctx context.Context, of int64) error {
	var n int
	err := a.s.readers.row(countProposals, []any{of}, &n)
	if err == nil && n >= maxProposals {
		err = agent.Errorf(agent.ErrBusy, "%d actions of the agent wait for a decision already", n)
	}
	return err
}

// Tool notes that an instance waits for a decision on the start of a tool. Twice is once.
func (a Asks) Tool(of int64, action string) error {
	return a.s.exec(`INSERT INTO proposal (id, instance, time, key, action)
		VALUES (?1, ?2, ?3, '', ?1) ON CONFLICT DO NOTHING`, action, of, millis(a.s.now()))
}

// All returns what waits, the eldest first.
func (a Asks) All(ctx context.Context) ([]Proposal, error) {
	return list(a.s.reading(ctx), `SELECT id, instance, time, data, key, action, told FROM proposal
		ORDER BY time, id`, nil, func(scan func(...any) error) (p Proposal, err error) {
		return p, scan(&p.ID, &p.Instance, (*stamp)(&p.Time), (*[]byte)(&p.Data), &p.Key, &p.Action,
			&p.Told)
	})
}

// Any reports whether something waits.
func (a Asks) Any(ctx context.Context) (any bool, err error) {
	return any, a.s.readers.row(`SELECT EXISTS (SELECT 1 FROM proposal)`, nil, &any)
}

// Queued notes the id of an action in the queue.
func (a Asks) Queued(id, action string) error {
	return a.s.exec(`UPDATE proposal SET action = ? WHERE id = ?`, action, id)
}

// Tell puts the decision into the inbox of the instance, and notes that it is there, in one
// transaction. After an instance that is gone nothing is told.
func (a Asks) Tell(p Proposal, data json.RawMessage) error {
	return a.s.write(func(w *writer) error {
		changed, err := w.changed(`UPDATE proposal SET told = 1 WHERE id = ? AND told = 0`, p.ID)
		if err != nil || changed == 0 {
			return err
		}
		_, _, err = w.append(p.Instance, agent.Event{ID: p.ID, Source: "user",
			Type: agent.TypeApproval, ReplyTo: p.ID, Data: data}, a.s.now(), false)
		return unless(ErrNotFound, err)
	})
}

// Forget forgets an action of which all is said.
func (a Asks) Forget(id string) error {
	return a.s.exec(`DELETE FROM proposal WHERE id = ?`, id)
}
