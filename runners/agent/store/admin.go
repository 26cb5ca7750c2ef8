package store

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/jail-sandbox/jail/runners/agent"
)

// Administer does an operation for the owner in a transaction of its own and returns its result, a
// value for JSON. id is the agent's id.
func (s *Store) Administer(ctx context.Context, id string, a agent.Admin) (result any, err error) {
	if err := s.Begin(ctx); err != nil {
		return nil, err
	}
	switch a.Op {
	case agent.AdminExport:
		result, err = s.export(ctx, id)
	case agent.AdminImport:
		result, err = nil, s.merge(ctx, a.Data)
	case agent.AdminGoals:
		result, err = s.goals(ctx)
	case agent.AdminAddGoal:
		result, err = nil, s.addGoal(ctx, a.Data)
	case agent.AdminTables:
		result, err = s.counts(ctx)
	default:
		err = agent.Errorf(agent.ErrNoMethod, "operation %q: there is none of that name", a.Op)
	}
	if err == nil {
		err = s.Commit(ctx, agent.Effects{})
	}
	if err != nil {
		return nil, errors.Join(err, s.Rollback(context.WithoutCancel(ctx)))
	}
	return result, nil
}

// rowsOf returns all rows of a query. fields returns the fields of a row to scan the columns into.
func rowsOf[T any](ctx context.Context, s *Store, query string, fields func(*T) []any) ([]T,
	error) {
	rows, err := s.conn.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := []T{}
	for rows.Next() {
		var row T
		if err := rows.Scan(fields(&row)...); err != nil {
			return nil, err
		}
		all = append(all, row)
	}
	return all, rows.Err()
}

// The casts convert values that the guest stored with another type than the column's.
const (
	selectConversations = `SELECT id, CAST(coalesce(started_at, 0) AS INTEGER),
		CAST(coalesce(summary, '') AS TEXT), CAST(coalesce(tokens_used, 0) AS INTEGER)
		FROM conversations ORDER BY id`
	selectMessages = `SELECT id, CAST(coalesce(role, '') AS TEXT), CAST(coalesce(content, '') AS TEXT),
		CAST(coalesce(created_at, 0) AS INTEGER), CAST(coalesce(conversation_id, '') AS TEXT)
		FROM messages ORDER BY created_at, id`
	selectPatterns = `SELECT id, CAST(coalesce(pattern_type, '') AS TEXT),
		CAST(coalesce(description, '') AS TEXT), CAST(coalesce(confidence, 0) AS REAL)
		FROM learned_patterns ORDER BY id`
	selectGoals = `SELECT id, CAST(coalesce(description, '') AS TEXT),
		CAST(coalesce(priority, 0) AS INTEGER), CAST(coalesce(status, '') AS TEXT),
		CAST(coalesce(progress, 0) AS REAL) FROM goals ORDER BY priority DESC, id`
	selectPeers = `SELECT npub, CAST(coalesce(name, '') AS TEXT),
		CAST(coalesce(relationship, '') AS TEXT), CAST(coalesce(trust_score, 0) AS REAL)
		FROM agent_peers ORDER BY npub`
)

func (s *Store) goals(ctx context.Context) ([]agent.Goal, error) {
	return rowsOf(ctx, s, selectGoals, func(g *agent.Goal) []any {
		return []any{&g.ID, &g.Description, &g.Priority, &g.Status, &g.Progress}
	})
}

// export returns the memory of the agent with this id.
func (s *Store) export(ctx context.Context, id string) (*agent.Memory, error) {
	m := &agent.Memory{Agent: id}
	var err error
	m.Conversations, err = rowsOf(ctx, s, selectConversations, func(c *agent.Conversation) []any {
		c.Messages = []agent.Message{}
		return []any{&c.ID, &c.StartedAt, &c.Summary, &c.TokensUsed}
	})
	if err != nil {
		return nil, err
	}
	type message struct {
		agent.Message
		of string
	}
	messages, err := rowsOf(ctx, s, selectMessages, func(x *message) []any {
		return []any{&x.ID, &x.Role, &x.Content, &x.CreatedAt, &x.of}
	})
	if err != nil {
		return nil, err
	}
	places := map[string]int{}
	for i, c := range m.Conversations {
		places[c.ID] = i
	}
	for _, x := range messages {
		// A message without a conversation is not exported.
		if i, ok := places[x.of]; ok {
			m.Conversations[i].Messages = append(m.Conversations[i].Messages, x.Message)
		}
	}
	if m.Patterns, err = rowsOf(ctx, s, selectPatterns, func(p *agent.Pattern) []any {
		return []any{&p.ID, &p.PatternType, &p.Description, &p.Confidence}
	}); err != nil {
		return nil, err
	}
	if m.Goals, err = s.goals(ctx); err != nil {
		return nil, err
	}
	m.Peers, err = rowsOf(ctx, s, selectPeers, func(p *agent.Peer) []any {
		return []any{&p.NPub, &p.Name, &p.Relationship, &p.TrustScore}
	})
	return m, err
}

// strict decodes the owner's JSON. An unknown field is an error. what names the value in errors.
func strict(what string, text []byte, to any) error {
	if err := agent.Strict(text, to); err != nil {
		return &agent.Error{Code: agent.ErrParams, Message: what + ": " + err.Error()}
	}
	return nil
}

// merge merges the memory in text into the database, by id. An existing row is replaced only by a
// later conversation, a goal with more progress or a pattern with higher confidence. So merging the
// same memory twice changes nothing.
func (s *Store) merge(ctx context.Context, text []byte) error {
	var m agent.Memory
	if err := strict("memory", text, &m); err != nil {
		return err
	}
	// The driver prepares the statement again for each row. There are few rows.
	put := func(err error, statement string, args ...any) error {
		if err != nil {
			return err
		}
		_, err = s.conn.ExecContext(ctx, statement, args...)
		return err
	}
	var err error
	for _, c := range m.Conversations {
		err = put(err, `INSERT INTO conversations (id, started_at, summary, tokens_used)
			VALUES (?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET started_at = excluded.started_at,
			summary = excluded.summary, tokens_used = excluded.tokens_used
			WHERE (excluded.started_at, excluded.tokens_used) >
			(coalesce(conversations.started_at, 0), coalesce(conversations.tokens_used, 0))`,
			c.ID, c.StartedAt, c.Summary, c.TokensUsed)
		for _, x := range c.Messages {
			err = put(err, `INSERT INTO messages (id, conversation_id, role, content, created_at)
				VALUES (?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING`,
				x.ID, c.ID, x.Role, x.Content, x.CreatedAt)
		}
	}
	for _, p := range m.Patterns {
		err = put(err, `INSERT INTO learned_patterns (id, pattern_type, description, confidence)
			VALUES (?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET pattern_type = excluded.pattern_type,
			description = excluded.description, confidence = excluded.confidence
			WHERE excluded.confidence > coalesce(learned_patterns.confidence, 0)`,
			p.ID, p.PatternType, p.Description, p.Confidence)
	}
	for _, g := range m.Goals {
		err = put(err, putGoal+` WHERE excluded.progress > coalesce(goals.progress, 0)`,
			g.ID, g.Description, g.Priority, g.Status, g.Progress)
	}
	for _, p := range m.Peers {
		err = put(err, `INSERT INTO agent_peers (npub, name, relationship, trust_score)
			VALUES (?, ?, ?, ?) ON CONFLICT (npub) DO NOTHING`,
			p.NPub, p.Name, p.Relationship, p.TrustScore)
	}
	return err
}

const putGoal = `INSERT INTO goals (id, description, priority, status, progress)
	VALUES (?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET description = excluded.description,
	priority = excluded.priority, status = excluded.status, progress = excluded.progress`

// addGoal adds the goal in text, a JSON object, or replaces the goal with the same id.
func (s *Store) addGoal(ctx context.Context, text []byte) error {
	var g agent.Goal
	if err := strict("goal", text, &g); err != nil {
		return err
	}
	if g.ID == "" {
		return agent.Errorf(agent.ErrParams, "goal: no id")
	}
	_, err := s.conn.ExecContext(ctx, putGoal, g.ID, g.Description, g.Priority, g.Status,
		g.Progress)
	return err
}

// counts returns the number of rows of each table, by name, including jail's own tables.
func (s *Store) counts(ctx context.Context) (map[string]int64, error) {
	names, err := rowsOf(ctx, s, `SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name`,
		func(n *sql.NullString) []any { return []any{n} })
	if err != nil {
		return nil, err
	}
	all := map[string]int64{}
	for _, n := range names {
		var count int64
		// The guest chose the name. Quoting prevents SQL injection.
		query := `SELECT count(*) FROM "` + strings.ReplaceAll(n.String, `"`, `""`) + `"`
		if err := s.conn.QueryRowContext(ctx, query).Scan(&count); err != nil {
			return nil, err
		}
		all[n.String] = count
	}
	return all, nil
}
