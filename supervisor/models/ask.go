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
	// Ask sends a request to the model of a role and returns the response once its head is there.
	// key is the Idempotency-Key of the request.
	Ask(ctx context.Context, role manifest.Role, key string, body []byte) (*Response, error)
}

// A Response is that of a model's host. Its body is a stream of server-sent events if the status is
// 200, else a text.
type Response = fetchrun.Response

// anthropicVersion is the version of the messages API that requests name.
const anthropicVersion = "2023-06-01"

// A Jail asks models, each time by a jail of its own that has one request and its credential.
type Jail struct{ fetchrun.Sender }

// Ask sends a request to the model of a role: the key is neither here nor in any jail, whatever
// other policies say of the network.
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

// waits are the pauses before the attempts that follow responses with the status 429, of which there
// are at most three. After a status of 5xx and after a stream that broke off there is one more
// attempt, after a second.
var waits = []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}

// maxRefusal is how much of a response that is no success an error quotes.
const maxRefusal = 1 << 10

// A Model is the model of a role.
type Model struct {
	Asker Asker
	Role  manifest.Role
	// Delta gets each part of a reply's text as it comes. Again says that the parts so far are void,
	// and why: the model is asked again after a pause. Both may be nil.
	Delta func(text string)
	Again func(why string, pause time.Duration)
	// Pause waits; nil waits by the clock.
	Pause func(ctx context.Context, d time.Duration) error
}

// A hostError is what a model's host answered, or why it did not.
type hostError struct {
	// Status is that of the response, 0 for none.
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

// Reply asks for the next part of a conversation, again where that may help.
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

// MayHelp reports whether asking again later may help after an error of Reply: the host was busy,
// broken, or broke off.
func MayHelp(err error) bool {
	failed, ok := errors.AsType[*hostError](err)
	return ok && (failed.Status == 429 || failed.Status >= 500 || failed.Status == 200)
}
