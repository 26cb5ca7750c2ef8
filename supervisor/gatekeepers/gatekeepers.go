// Package gatekeepers mediates the access of agents to resources of their owner. Reads are answered
// at once. A write becomes an action on jaild's approval queue: it is applied after approval, and
// may be reverted. An agent has neither the resource nor its credential: it names a gatekeeper, and
// only the gatekeeper knows the file, the host and the name of the credential.
//
//	sqlite.go   a SQLite file: rows are read, and one row is inserted, updated or deleted
//	openapi.go  an HTTP API that an OpenAPI document describes: GET is read, the rest is proposed
//	desk.go     the actions of all gatekeepers, from their proposal until nobody can revert them
//
// An action is applied at most once, because jaild lets it be claimed once (package approvals). If
// the process is killed after the claim, the next process finds out how the action ended. A SQLite
// file records its actions. For an HTTP API a person has to find out.
package gatekeepers

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"

	names "github.com/jail-sandbox/jail/policy/strict"
	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/supervisor/agents/agentapi"
	"github.com/jail-sandbox/jail/supervisor/api"
)

// A Gatekeeper controls access to one resource. Its methods may be called concurrently.
type Gatekeeper interface {
	// Describe returns the kind of resource, its reads and its actions.
	Describe(ctx context.Context) (agentapi.Gatekeeper, error)
	// Read calls a read method and returns a value to encode as JSON. It changes nothing.
	Read(ctx context.Context, method string, args json.RawMessage) (any, error)
	// Propose checks an action and returns what the action would change. It changes nothing.
	Propose(ctx context.Context, action string, args json.RawMessage) (Change, error)
	// Apply carries out the change completely or not at all, and returns a description of the
	// outcome for people. The error wraps errChanged if the resource has changed since the
	// proposal.
	Apply(ctx context.Context, id string, c Change) (outcome string, err error)
	// Revert undoes the change completely or not at all. outcome is the result of Apply. The error
	// wraps errChanged if the resource has changed since Apply.
	Revert(ctx context.Context, id, outcome string, c Change) error
	// Settle returns how an action ended if the process was killed during Apply, or during Revert
	// if reverting is true. known is false if the gatekeeper cannot tell.
	Settle(ctx context.Context, id string, c Change, reverting bool) (s Settled, known bool, err error)
}

// errChanged is wrapped by the errors for a resource that has changed since the proposal or the
// action.
var errChanged = api.ErrChanged

// A Change is an action that was checked. People see all its fields before they approve it.
type Change struct {
	Action string `json:"-"`
	// Resource names the resource that is changed, such as a row or a URL.
	Resource   string `json:"-"`
	Reversible bool   `json:"-"`

	// Args are the arguments of the proposal, Before is the resource at that time, and After is the
	// resource after the action. Before and After are nil if not known. With Others they become the
	// arguments of the action on the queue.
	Args   json.RawMessage `json:"args"`
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
	// Others is the number of other rows that triggers and foreign keys change.
	Others int64 `json:"other_rows,omitempty"`
}

// A Settled says how an interrupted action ended.
type Settled struct {
	// Done is true if the action, or its reversal, was carried out.
	Done    bool
	Outcome string
}

// Bounds of arguments and answers, in bytes.
const (
	// maxArgs bounds the encoded Args, Before and After of an action: jaild accepts 16 KiB.
	maxArgs = 15 << 10
	// maxAnswer bounds the result of one read.
	maxAnswer = 1 << 20
	// maxSaid bounds the quoted text in an outcome or error: jaild accepts 1 KiB.
	maxSaid = 300
)

// bad returns the error for wrong arguments.
func bad(format string, args ...any) *agent.Error {
	return agent.Errorf(agent.ErrParams, format, args...)
}

// tooLarge returns the error for an answer or an action that is too large.
func tooLarge(format string, args ...any) *agent.Error {
	return agent.Errorf(agent.ErrTooLarge, format, args...)
}

// notFound returns the error for an unknown name.
func notFound(format string, args ...any) *agent.Error {
	return agent.Errorf(agent.ErrNotFound, format, args...)
}

// unknown returns the error for a read or an action that a gatekeeper does not have. what is reads
// or actions.
func unknown(what, name string, known ...string) *agent.Error {
	return notFound("the gatekeeper has no %.60q among its %s: there are %s", name, what,
		strings.Join(known, ", "))
}

// strict decodes arguments. It refuses unknown keys, which would have no effect.
func strict(text json.RawMessage, to any) error {
	if len(bytes.TrimSpace(text)) == 0 {
		text = json.RawMessage("{}")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	d.UseNumber()
	err := d.Decode(to)
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("something follows the object")
		}
	}
	if err == nil {
		err = names.Names(text, to)
	}
	if err != nil {
		return bad("arguments: %v", err)
	}
	return nil
}

// text returns the arguments of a change as people see them: JSON with invisible characters
// escaped.
func (c Change) text() (string, error) {
	raw, err := json.Marshal(c)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, r := range string(raw) {
		switch {
		case !unicode.Is(unicode.Cf, r) && !unicode.IsControl(r):
			b.WriteRune(r)
		case r > 0xffff:
			one, two := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, one, two)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	if b.Len() > maxArgs {
		return "", tooLarge("the action has %d bytes with what is before and after, more than %d",
			b.Len(), maxArgs)
	}
	return b.String(), nil
}

// changeOf is the inverse of text. The action and the resource are stored beside the text.
func changeOf(action, resource, text string) (Change, error) {
	c := Change{Action: action, Resource: resource}
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return Change{}, fmt.Errorf("the arguments of the action: %w", err)
	}
	return c, nil
}

// canonical re-encodes a JSON value with sorted keys. It does not change numbers.
func canonical(text json.RawMessage) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

// same reports whether two JSON values are equal, except for the order of keys.
func same(a, b json.RawMessage) bool {
	one, err := canonical(a)
	if err != nil {
		return false
	}
	two, err := canonical(b)
	return err == nil && bytes.Equal(one, two)
}

// sum returns the SHA-256 of a JSON value with sorted keys, in hexadecimal.
func sum(text json.RawMessage) string {
	if ordered, err := canonical(text); err == nil {
		text = ordered
	}
	return fmt.Sprintf("%x", sha256.Sum256(text))
}
