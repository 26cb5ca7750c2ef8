package agentapi

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/transcript"
)

// SessionsPath is where the sessions of the tool loop are.
//
//	GET    SessionsPath            lists them
//	POST   SessionsPath/ID/events  adds an array of events; the event 1 begins the session
//	GET    SessionsPath/ID/events  gives its events as JSON Lines
//	DELETE SessionsPath/ID         deletes it
const SessionsPath = "/api/sessions"

func session(id, below string) string { return SessionsPath + "/" + url.PathEscape(id) + below }

// Append keeps events of a session, all or none. When it returns, they are on the disk. It may be
// repeated when it failed.
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

// A Keeper keeps events at a jail-agentd that may have ended meanwhile: one that nobody asks ends,
// and the next one is started.
type Keeper struct {
	Options
	client *Client
}

// Append is that of a Client.
func (k *Keeper) Append(ctx context.Context, events ...transcript.Event) (err error) {
	// An event is kept once, however often it is sent.
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

// Close ends the connections.
func (k *Keeper) Close() {
	if k.client != nil {
		k.client.Close()
		k.client = nil
	}
}
