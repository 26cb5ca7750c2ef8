package agentapi

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/transcript"
)

// SessionsPath is the URL path of requests about sessions of the tool loop.
//
//	GET    SessionsPath            lists them
//	POST   SessionsPath/ID/events  adds an array of events; the event 1 begins the session
//	GET    SessionsPath/ID/events  gives its events as JSON Lines
//	DELETE SessionsPath/ID         deletes it
const SessionsPath = "/api/sessions"

func session(id, below string) string { return SessionsPath + "/" + url.PathEscape(id) + below }

// Append stores events of a session durably, all or none. It may be repeated after an error.
func (c *Client) Append(ctx context.Context, events ...transcript.Event) error {
	return c.call(ctx, http.MethodPost, session(events[0].SessionID, "/events"), events, nil)
}

// Sessions returns the sessions of the tool loop, the newest first.
func (c *Client) Sessions(ctx context.Context) (all []transcript.Summary, err error) {
	return all, c.call(ctx, http.MethodGet, SessionsPath, nil, &all)
}

// SessionEvents returns the events of a session.
func (c *Client) SessionEvents(ctx context.Context, id string) (all []transcript.Event, err error) {
	return all, c.lines(ctx, session(id, "/events"), transcript.MaxEvent+2, func(line []byte) error {
		var e transcript.Event
		if err := json.Unmarshal(line, &e); err != nil {
			return problem.New(problem.Failed, "session %s: %w", id, err)
		}
		all = append(all, e)
		return nil
	})
}

// DeleteSession deletes a session of the tool loop.
func (c *Client) DeleteSession(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, session(id, ""), nil, nil)
}

// A Keeper stores events at jail-agentd, and connects again if that has ended meanwhile: an idle
// jail-agentd ends by itself.
type Keeper struct {
	Options
	client *Client
}

// Append stores events as Client.Append does.
func (k *Keeper) Append(ctx context.Context, events ...transcript.Event) (err error) {
	// A repeated event is stored once, so a retry is safe.
	for again := false; ; again = true {
		if k.client == nil {
			if k.client, _, err = Connect(ctx, k.Options); err != nil {
				return err
			}
		}
		err = k.client.Append(ctx, events...)
		if err == nil || again || problem.From(err).Code != problem.Failed {
			return err
		}
		k.Close()
	}
}

// Close closes the connections.
func (k *Keeper) Close() {
	if k.client != nil {
		k.client.Close()
		k.client = nil
	}
}
