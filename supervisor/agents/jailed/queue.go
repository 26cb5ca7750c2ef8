package jailed

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf16"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/agents"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/approvals"
	"github.com/jail-sandbox/jail/supervisor/client"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// A Queue is the approval queue of jaild, as an agents.Queue.
type Queue struct{ jaild *Jaild }

// Queue returns the approval queue.
func (j *Jaild) Queue() Queue { return Queue{j} }

// ask calls f with the queue. The error wraps agents.ErrNoJail if a later try may succeed.
func (q Queue) ask(ctx context.Context, f func(*api.Approvals) error) error {
	return q.jaild.ask(ctx, func(c *client.Client) error { return f(c.Approvals()) })
}

// Propose puts an action into the queue and returns its id.
func (q Queue) Propose(ctx context.Context, p agents.Proposal) (action string, err error) {
	err = q.ask(ctx, func(of *api.Approvals) error {
		a, err := of.Propose(ctx, requestFor(p))
		action = a.ID
		return err
	})
	return action, err
}

// maxWords is how many bytes of an agent's description are shown, less than jaild's limit.
const maxWords = 2000

// actionName matches the names of actions that jaild accepts.
var actionName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.-]{0,126}[A-Za-z0-9])?$`)
})

// requestFor returns the request for an action that the agent itself will do, as its own
// gatekeeper. If the proposal is a JSON object, its members type, resource and words become the
// action, the resource and the words of the request. People see them as the agent's own. All of the
// proposal is shown as the arguments.
func requestFor(p agents.Proposal) api.ProposeRequest {
	g := approvals.Gate{Gatekeeper: p.Name, Action: "propose", Resource: p.Agent}
	var said struct {
		Type     any `json:"type"`
		Resource any `json:"resource"`
		Words    any `json:"words"`
	}
	args := p.Data
	if json.Unmarshal(args, &said) != nil || !bytes.HasPrefix(bytes.TrimSpace(args), []byte("{")) {
		args = slices.Concat([]byte(`{"action":`), args, []byte("}"))
	}
	if text, ok := said.Type.(string); ok && actionName().MatchString(text) {
		g.Action = text
	}
	if text, ok := said.Resource.(string); ok && text != "" {
		g.Resource = text
	}
	words, _ := said.Words.(string)
	g.Args = shown(args)
	return api.ProposeRequest{Type: policy.ActionGate, Agent: p.Agent, Key: p.Key,
		Words: runners.Cut(words, maxWords), External: approvals.External{Gate: &g}}
}

// shown returns a JSON text on one line with invisible characters escaped: jaild refuses others.
func shown(text []byte) string {
	var line bytes.Buffer
	if json.Compact(&line, text) != nil {
		// jaild reports the error.
		return string(text)
	}
	var b strings.Builder
	for _, r := range line.String() {
		if unicode.IsGraphic(r) {
			b.WriteRune(r)
			continue
		}
		for _, half := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\u%04x`, half)
		}
	}
	return b.String()
}

// Decision waits for a decision on an action and returns the action's state.
func (q Queue) Decision(ctx context.Context, action, key string, wait time.Duration) (d agents.Decision,
	err error) {
	err = q.ask(ctx, func(of *api.Approvals) error {
		a, err := of.Get(ctx, action)
		if err == nil && a.State == approvals.Pending {
			a, err = of.Await(ctx, action, wait)
		}
		if err == nil && a.State == approvals.Approved && key != "" {
			a, err = claim(ctx, of, a, key)
		}
		d = decisionOf(a, key)
		if e, ok := errors.AsType[*problem.Error](err); ok && e.Code == problem.NotFound {
			// The queue forgets finished actions after a while.
			d, err = agents.Decision{State: string(approvals.Expired), Why: e.Message}, nil
		}
		return err
	})
	return d, err
}

// claim claims an approved action. If the policy ceiling now refuses it, the result is rejected.
func claim(ctx context.Context, of *api.Approvals, a approvals.Action, key string) (approvals.Action,
	error) {
	claimed, err := of.Claim(ctx, a.ID, key)
	e, ok := errors.AsType[*problem.Error](err)
	switch {
	case ok && e.Code == problem.Conflict:
		return of.Get(ctx, a.ID)
	case ok && e.Code == problem.Refused:
		gone, err := of.Withdraw(ctx, a.ID)
		gone.State, gone.Error = approvals.Rejected, e.Message
		return gone, err
	}
	return claimed, err
}

// decisionOf returns the decision for the state of an action.
func decisionOf(a approvals.Action, key string) agents.Decision {
	d := agents.Decision{State: string(a.State), Why: a.Error}
	// Only jail-agentd has the key, so it claimed the action; a tool's approval holds until it is
	// used.
	if a.State == approvals.Applying || a.State == approvals.Applied && key == "" {
		d.State = agents.Approved
	}
	return d
}

// Applied reports to the queue that the agent was told of an approval. It is not an error if the
// action is over already.
func (q Queue) Applied(ctx context.Context, action, key string) error {
	return over(q.ask(ctx, func(of *api.Approvals) error {
		_, err := of.Report(ctx, action, approvals.ReportRequest{Key: key, State: approvals.Applied,
			Outcome: "the agent was told"})
		return err
	}))
}

// Withdraw withdraws an action. It is not an error if the action is over already.
func (q Queue) Withdraw(ctx context.Context, action string) error {
	return over(q.ask(ctx, func(of *api.Approvals) error {
		_, err := of.Withdraw(ctx, action)
		return err
	}))
}

func over(err error) error {
	if e, ok := errors.AsType[*problem.Error](err); ok &&
		(e.Code == problem.Conflict || e.Code == problem.NotFound) {
		return nil
	}
	return err
}
