package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/supervisor/agents/agentapi"
)

// Published returns at most limit publications of an agent's instances, with numbers above after.
// About the last 1,000 publications of each instance are kept.
func (s *Store) Published(ctx context.Context, name string, after int64,
	limit int) ([]agentapi.Publication, error) {
	return list(s.reading(ctx), `SELECT `+publicationColumns+` FROM publication
		WHERE n > ? AND instance IN (SELECT id FROM instance WHERE agent = ?) ORDER BY n LIMIT ?`,
		[]any{after, name, limit}, scanPublication)
}

// PublishedBy returns the publications of an instance whose ids have the prefix, such as
// AGENT/SEQ/.
func (s *Store) PublishedBy(ctx context.Context, of int64,
	prefix string) ([]agentapi.Publication, error) {
	return list(s.reading(ctx), `SELECT `+publicationColumns+` FROM publication
		WHERE instance = ? AND substr(id, 1, length(?)) = ? ORDER BY n`,
		[]any{of, prefix, prefix}, scanPublication)
}

// Answer returns the first publication of an instance that has the type kind and replies to the
// message id, or ErrNotFound.
func (s *Store) Answer(ctx context.Context, of int64, id,
	kind string) (agentapi.Publication, error) {
	return first(s.reading(ctx), `SELECT `+publicationColumns+` FROM publication
		WHERE reply_to = ? AND instance = ? AND type = ? ORDER BY n LIMIT 1`,
		[]any{id, of, kind}, scanPublication)
}

const publicationColumns = `n, time, channel, receiver, kind, id, type, reply_to, data`

func scanPublication(scan func(...any) error) (p agentapi.Publication, err error) {
	return p, scan(&p.N, (*stamp)(&p.Time), &p.Channel, &p.To, &p.Kind, &p.ID, &p.Type, &p.ReplyTo,
		(*[]byte)(&p.Data))
}

// LogKind is the kind of publications that are log lines of an agent. They are sent to nobody.
const LogKind = "log"

// Log stores a log line of an instance among its publications.
func (s *Store) Log(of int64, l agent.Log) error {
	text, err := json.Marshal(map[string]string{"message": l.Message})
	if err != nil {
		return err
	}
	return s.write(func(w *writer) error {
		var n int64
		if err := w.row(`INSERT INTO publication (instance, time, channel, receiver, kind, id,
			type, reply_to, data) SELECT id, ?, channel, '', ?, '', ?, '', ? FROM instance
			WHERE id = ? RETURNING n`, []any{millis(s.now()), LogKind, l.Level, text, of},
			&n); err != nil || n%64 != 0 {
			return err
		}
		return w.trim(of)
	})
}

// Settings returns the settings of a channel, a JSON object.
func (s *Store) Settings(ctx context.Context, channel string) (json.RawMessage, error) {
	value := []byte(`{}`)
	err := s.readers.row(`SELECT value FROM settings WHERE channel = ?`, []any{channel}, &value)
	return value, unless(ErrNotFound, err)
}

// AddTokens adds to the model tokens that an agent used today (UTC).
func (s *Store) AddTokens(name string, input, output int64) error {
	return s.exec(`INSERT INTO tokens VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET
		input = input + excluded.input, output = output + excluded.output`, name, s.day(), input,
		output)
}

// Tokens returns how many model tokens an agent used today (UTC).
func (s *Store) Tokens(ctx context.Context, name string) (input, output int64, err error) {
	err = s.readers.row(`SELECT input, output FROM tokens WHERE agent = ? AND day = ?`,
		[]any{name, s.day()}, &input, &output)
	return input, output, unless(ErrNotFound, err)
}

func (s *Store) day() string { return s.now().UTC().Format(time.DateOnly) }
