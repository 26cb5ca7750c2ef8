package models

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/jail-sandbox/jail/jail/tick"
	"github.com/jail-sandbox/jail/supervisor/agents/manifest"
	"github.com/jail-sandbox/jail/supervisor/fetchrun"
)

// An Asker sends requests to models.
type Asker interface {
	// Ask sends a request to the model of a role and returns the response when its headers have
	// arrived. key is the Idempotency-Key of the request, empty for none.
	Ask(ctx context.Context, role manifest.Role, key string, body []byte) (*Response, error)
}

// A Response is the HTTP response of a model's host. Its body is a stream of server-sent events if
// the status is 200, otherwise an error text.
type Response = fetchrun.Response

// anthropicVersion is the value of the header anthropic-version in requests to the messages API.
const anthropicVersion = "2023-06-01"

// A Jail is an Asker that sends each request from a new jail, whose policy allows only that.
type Jail struct{ fetchrun.Sender }

// Ask implements Asker. Neither this process nor the jail has the API key: the fetch proxy adds it.
func (j Jail) Ask(ctx context.Context, role manifest.Role, key string,
	body []byte) (*Response, error) {
	to, err := url.Parse(role.URL)
	if err != nil {
		return nil, fmt.Errorf("url of the role: %w", err)
	}
	// JoinPath does not make up the slash of a URL without a path.
	to.Path = "/" + strings.TrimPrefix(to.Path, "/")
	to = to.JoinPath(formOf(role).path)
	header := map[string]string{"Accept": "text/event-stream"}
	if key != "" {
		header["Idempotency-Key"] = key
	}
	if role.Form == formMessages {
		header["anthropic-version"] = anthropicVersion
	}
	return j.Send(ctx, fetchrun.Request{For: "model of an agent", Method: "POST", URL: to,
		Credential: role.Credential, Header: header, Body: body})
}

// waits are the pauses before the three retries after status 429. After a status of 5xx or a stream
// that failed, there is one retry, after the first of these pauses.
var waits = []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}

// maxRefusal bounds how many bytes of an unsuccessful response an error quotes.
const maxRefusal = 1 << 10

// A Model sends requests to the model of a role, with retries.
type Model struct {
	Asker Asker
	Role  manifest.Role
	// Delta is called with each part of a reply's text as it arrives. Again is called before a
	// retry: the parts so far are void. Both may be nil.
	Delta func(text string)
	Again func(why string, pause time.Duration)
	// Pause waits for d before a retry. If nil, the system clock is used.
	Pause func(ctx context.Context, d time.Duration) error
}

// A hostError is an error that a model's host returned, or the reason why no response came.
type hostError struct {
	// Status is the HTTP status of the response, 0 if there was none.
	Status int
	Err    error
}

func (e *hostError) Error() string {
	if e.Status != 0 && e.Status != 200 {
		return fmt.Sprintf("the model's host answered %d: %v", e.Status, e.Err)
	}
	return e.Err.Error()
}

func (e *hostError) Unwrap() error { return e.Err }

// Reply returns the model's next turn in a conversation. It retries as waits says. key is the
// Idempotency-Key, the same for all attempts.
func (m Model) Reply(ctx context.Context, key string, r Request) (Reply, error) {
	text, err := body(m.Role, r)
	if err != nil {
		return Reply{}, &hostError{Err: err}
	}
	busy, broken := 0, 0
	for {
		reply, err := m.once(ctx, key, text, r.Before)
		var failed *hostError
		if err == nil || ctx.Err() != nil || !errors.As(err, &failed) {
			return reply, err
		}
		var pause time.Duration
		switch {
		case failed.Status == 429 && busy < len(waits):
			pause = waits[busy]
			busy++
		case (failed.Status >= 500 || failed.Status == 200) && broken == 0:
			pause = waits[0]
			broken++
		default:
			return Reply{}, err
		}
		if m.Again != nil {
			m.Again(failed.Error(), pause)
		}
		if err := m.pause(ctx, pause); err != nil {
			return Reply{}, err
		}
	}
}

func (m Model) once(ctx context.Context, key string, text []byte, before func() error) (Reply,
	error) {
	res, err := m.Asker.Ask(ctx, m.Role, key, text)
	if err != nil {
		return Reply{}, &hostError{Err: err}
	}
	defer res.Body.Close()
	if before != nil {
		if err := before(); err != nil {
			return Reply{}, err
		}
	}
	if res.Status != 200 {
		said, err := io.ReadAll(io.LimitReader(res.Body, maxRefusal))
		if err == nil {
			err = errors.New(string(bytes.ToValidUTF8(said, nil)))
		}
		return Reply{}, &hostError{Status: res.Status, Err: err}
	}
	reply, err := read(formOf(m.Role), res.Body, m.Delta)
	if err != nil {
		return Reply{}, &hostError{Status: res.Status, Err: err}
	}
	return reply, nil
}

func (m Model) pause(ctx context.Context, d time.Duration) error {
	if m.Pause != nil {
		return m.Pause(ctx, d)
	}
	if !tick.Wait(ctx.Done(), d) {
		return context.Cause(ctx)
	}
	return nil
}

// MayHelp reports whether a later retry may succeed after this error of Reply: the host was busy,
// returned a status of 5xx or sent a broken stream.
func MayHelp(err error) bool {
	failed, ok := errors.AsType[*hostError](err)
	return ok && (failed.Status == 429 || failed.Status >= 500 || failed.Status == 200)
}
