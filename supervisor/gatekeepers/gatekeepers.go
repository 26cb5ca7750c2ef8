// Package gatekeepers stands between agents and resources of their owner. An agent reads at once.
// What it wants to write becomes an action on jaild's approval queue, which is carried out after its
// approval, and can be reverted. The agent has neither the resource nor its credential: it names a
// gatekeeper, and only the gatekeeper knows the file, the host and the name of the credential.
//
//	sqlite.go   a SQLite file: rows are read, and one row is inserted, updated or deleted
//	openapi.go  an HTTP API that an OpenAPI document describes: GET is read, the rest is proposed
//	desk.go     the actions of all gatekeepers, from their proposal until nobody can revert them
//
// An action is done at most once: jaild gives its claim once (package approvals). If the process is
// killed after the claim, the next one finds out how the action ended. A SQLite file says whether it
// has the action. Of an HTTP API nobody knows, and a person looks.
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

// A Gatekeeper keeps one resource. Its methods may be called from several goroutines.
type Gatekeeper interface {
	// Describe says what the resource is, and what can be done with it.
	Describe(ctx context.Context) (agentapi.Gatekeeper, error)
	// Read reads, and changes nothing.
	Read(ctx context.Context, method string, args json.RawMessage) (any, error)
	// Propose checks an action and returns what the action would change. It changes nothing.
	Propose(ctx context.Context, action string, args json.RawMessage) (Change, error)
	// Apply does what Propose returned, whole or not at all, and returns what people are told of
	// it. The error is errChanged if the resource is not as it was when the action was proposed.
	Apply(ctx context.Context, id string, c Change) (outcome string, err error)
	// Revert undoes what Apply did, whole or not at all. outcome is what Apply returned. The error
	// is errChanged if the resource is not as Apply left it.
	Revert(ctx context.Context, id, outcome string, c Change) error
	// Settle returns how an action ended if the process was killed during Apply, or during Revert if
	// reverting is true. known is false if the gatekeeper cannot tell.
	Settle(ctx context.Context, id string, c Change, reverting bool) (s Settled, known bool, err error)
}

// errChanged is wrapped by the errors for a resource that has changed since the proposal or the action.
var errChanged = api.ErrChanged

// A Change is an action that was checked. People see all of it before they approve.
type Change struct {
	Action string `json:"-"`
	// Resource names what is changed, such as a row or a URL.
	Resource   string `json:"-"`
	Reversible bool   `json:"-"`

	// The other fields stand in the arguments of the action on the queue. Args are the arguments of
	// the proposal. Before is the resource at that time, and After the resource once the action is
	// done. They are nil if not known.
	Args   json.RawMessage `json:"args"`
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
	// Others counts further rows that triggers and foreign keys of a database change.
	Others int64 `json:"other_rows,omitempty"`
}

// A Settled says how an interrupted action ended.
type Settled struct {
	// Done says that the action, or its reversal, was carried out.
	Done    bool
	Outcome string
}

// Bounds of arguments and answers, in bytes.
const (
	// maxArgs bounds the arguments of an action with before and after: jaild takes 16 KiB.
	maxArgs = 15 << 10
	// maxAnswer bounds the answer to one read.
	maxAnswer = 1 << 20
	// maxSaid bounds what an outcome or error quotes: jaild takes 1 KiB.
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

// unknown returns the error for a read or an action that a gatekeeper does not have. what is reads or
// actions.
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

// text returns the arguments of a change as people see them: JSON with invisible characters escaped.
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

// changeOf is the inverse of text, with the action and the resource that stand beside it.
func changeOf(action, resource, text string) (Change, error) {
	c := Change{Action: action, Resource: resource}
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return Change{}, fmt.Errorf("the arguments of the action: %w", err)
	}
	return c, nil
}

// canonical returns a JSON value with sorted keys, and with its numbers as they are written.
func canonical(text json.RawMessage) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

// same reports whether two JSON values are equal but for the order of keys.
func same(a, b json.RawMessage) bool {
	one, err := canonical(a)
	if err != nil {
		return false
	}
	two, err := canonical(b)
	return err == nil && bytes.Equal(one, two)
}

// sum returns the SHA-256 of a JSON value, whatever the order of its keys, in hexadecimal digits.
func sum(text json.RawMessage) string {
	if ordered, err := canonical(text); err == nil {
		text = ordered
	}
	return fmt.Sprintf("%x", sha256.Sum256(text))
}
