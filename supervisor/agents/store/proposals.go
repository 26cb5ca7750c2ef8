package store

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"time"

	"github.com/jail-sandbox/jail/runners/agent"
)

// maxProposals is how many actions of an instance may wait for a decision at a time.
const maxProposals = 200

// A Proposal is an action of an instance that waits in the approval queue of jaild or will be put
// there. It is kept until the instance has got the decision.
type Proposal struct {
	// ID is the effect id AGENT/SEQ/N or, for a tool, the id of the action in the queue.
	ID       string
	Instance int64
	Time     time.Time
	// Data is the agent's description of the action, any JSON value.
	Data json.RawMessage
	// Key is the secret by which jail-agentd claims the action; empty for a tool, which jaild
	// itself carries out.
	Key string
	// Action is the action's id in the queue, empty until jail-agentd knows it.
	Action string
	// Told: the decision is in the instance's inbox, and this is not reported to the queue yet.
	Told bool
}

// propose stores a proposal, to be put into the approval queue.
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

// Asks are the methods of a Store for proposals.
type Asks struct{ s *Store }

// AsksOf returns the Asks of a store.
func AsksOf(s *Store) Asks { return Asks{s} }

// Room returns an error if maxProposals actions of an instance already wait for a decision.
func (a Asks) Room(ctx context.Context, of int64) error {
	var n int
	err := a.s.readers.row(countProposals, []any{of}, &n)
	if err == nil && n >= maxProposals {
		err = agent.Errorf(agent.ErrBusy, "%d actions of the agent wait for a decision already", n)
	}
	return err
}

// Tool records that an instance waits for a decision on the start of a tool. It is idempotent.
func (a Asks) Tool(of int64, action string) error {
	return a.s.exec(`INSERT INTO proposal (id, instance, time, key, action)
		VALUES (?1, ?2, ?3, '', ?1) ON CONFLICT DO NOTHING`, action, of, millis(a.s.now()))
}

// All returns all proposals, the oldest first.
func (a Asks) All(ctx context.Context) ([]Proposal, error) {
	return list(a.s.reading(ctx), `SELECT id, instance, time, data, key, action, told FROM proposal
		ORDER BY time, id`, nil, func(scan func(...any) error) (p Proposal, err error) {
		return p, scan(&p.ID, &p.Instance, (*stamp)(&p.Time), (*[]byte)(&p.Data), &p.Key, &p.Action,
			&p.Told)
	})
}

// Any reports whether there is any proposal.
func (a Asks) Any(ctx context.Context) (any bool, err error) {
	return any, a.s.readers.row(`SELECT EXISTS (SELECT 1 FROM proposal)`, nil, &any)
}

// Queued records the queue's id of the proposal with this ID.
func (a Asks) Queued(id, action string) error {
	return a.s.exec(`UPDATE proposal SET action = ? WHERE id = ?`, action, id)
}

// Tell puts the decision into the inbox of the instance and marks the proposal as told, in one
// transaction. If the instance is gone, it only marks the proposal.
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

// Forget deletes a proposal that is finished.
func (a Asks) Forget(id string) error {
	return a.s.exec(`DELETE FROM proposal WHERE id = ?`, id)
}
