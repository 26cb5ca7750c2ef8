package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jail-sandbox/jail/runners/agent"
)

// Decisions on a proposal.
const (
	Approved = "approved"
	Rejected = "rejected"
)

// maxProposals is how many proposals of an instance may wait for a decision.
const maxProposals = 200

// A Proposal is an action that an agent asks its owner for. When it is decided, the agent gets an
// event of the type approval: carrying the action out is the agent's own work.
type Proposal struct {
	ID   string          `json:"id"`
	Time time.Time       `json:"time"`
	Data json.RawMessage `json:"data,omitempty"`
	// Decision is empty while the proposal waits.
	Decision string    `json:"decision,omitempty"`
	Decided  time.Time `json:"decided,omitzero"`
}

// propose notes an action that waits for a decision.
func (d *delivery) propose(id string, f agent.Effect) error {
	var n int
	if err := d.w.row(`SELECT count(*) FROM proposal WHERE instance = ? AND decision = ''`,
		[]any{d.from.ID}, &n); err != nil {
		return err
	}
	if n >= maxProposals {
		return refused("%d proposals of agent %q wait for a decision already", n, d.from.Agent)
	}
	return d.w.exec(`INSERT INTO proposal (id, instance, time, data) VALUES (?, ?, ?, ?)`, id,
		d.from.ID, millis(d.now), []byte(f.Data))
}

// Proposals returns what an instance asked for, the newest first, at most limit.
func (s *Store) Proposals(ctx context.Context, of int64, limit int) (all []Proposal, err error) {
	err = s.read(ctx, `SELECT id, time, data, decision, decided FROM proposal WHERE instance = ?
		ORDER BY time DESC, id DESC LIMIT ?`, []any{of, limit}, func(r *sql.Rows) error {
		var p Proposal
		var at, decided int64
		var data []byte
		err := r.Scan(&p.ID, &at, &data, &p.Decision, &decided)
		p.Time, p.Data, p.Decided = fromMillis(at), data, fromMillis(decided)
		all = append(all, p)
		return err
	})
	return all, err
}

// Decide notes the decision on a proposal, once, and puts the event that says so into the inbox of
// the agent, in one transaction. It returns the instance.
func (s *Store) Decide(id, decision string) (of int64, err error) {
	err = s.write(func(w *writer) error {
		now := s.now()
		var before string
		if err := w.row(`SELECT instance, decision FROM proposal WHERE id = ?`, []any{id}, &of,
			&before); err != nil {
			return fmt.Errorf("proposal %s: %w", id, err)
		}
		if before != "" {
			return fmt.Errorf("proposal %s: %w: it is %s", id, ErrDecided, before)
		}
		if err := w.exec(`UPDATE proposal SET decision = ?, decided = ? WHERE id = ?`, decision,
			millis(now), id); err != nil {
			return err
		}
		text, err := json.Marshal(map[string]string{"id": id, "decision": decision})
		if err != nil {
			return err
		}
		if _, _, err := w.append(of, agent.Event{ID: id, Source: "user", Type: agent.TypeApproval,
			ReplyTo: id, Data: text}, now, false); err != nil {
			return err
		}
		return w.exec(`DELETE FROM proposal WHERE instance = ? AND decision <> '' AND id IN
			(SELECT id FROM proposal WHERE instance = ? AND decision <> '' ORDER BY time DESC
			LIMIT -1 OFFSET ?)`, of, of, maxProposals)
	})
	return of, err
}
