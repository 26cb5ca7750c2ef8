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

// A Queue is the approval queue of jaild.
type Queue struct{ jaild *Jaild }

// Queue returns the approval queue.
func (j *Jaild) Queue() Queue { return Queue{j} }

// ask asks the queue. An error that can pass wraps agents.ErrNoJail.
func (q Queue) ask(ctx context.Context, f func(*api.Approvals) error) error {
	return q.jaild.ask(ctx, func(c *client.Client) error { return f(c.Approvals()) })
}

// Propose puts an action into the queue.
func (q Queue) Propose(ctx context.Context, p agents.Proposal) (action string, err error) {
	err = q.ask(ctx, func(of *api.Approvals) error {
		a, err := of.Propose(ctx, requestFor(p))
		action = a.ID
		return err
	})
	return action, err
}

// maxWords is how many bytes of the words of an agent are shown, less than jaild takes.
const maxWords = 2000

// actionName is what jaild takes as the name of what a gatekeeper does.
var actionName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.-]{0,126}[A-Za-z0-9])?$`)
})

// requestFor is the action of an agent that carries it out itself: the agent is the gatekeeper of
// what it does. An object says by type and resource what is done to what, and by words why; those
// are shown as the agent's own. The whole of it is shown as the arguments.
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

// shown is a JSON text in one line in which each character is seen: jaild refuses others.
func shown(text []byte) string {
	var line bytes.Buffer
	if json.Compact(&line, text) != nil {
		// jaild says what is wrong with it.
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

// Decision waits for a decision on an action.
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
			// The queue keeps what is over for a while only.
			d, err = agents.Decision{State: string(approvals.Expired), Why: e.Message}, nil
		}
		return err
	})
	return d, err
}

// claim claims what is approved. An approval that the ceiling does not let count any more is none.
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

// decisionOf is what the state of an action says of the decision.
func decisionOf(a approvals.Action, key string) agents.Decision {
	d := agents.Decision{State: string(a.State), Why: a.Error}
	// Nobody else has the key; and the start of a tool is allowed until it is used.
	if a.State == approvals.Applying || a.State == approvals.Applied && key == "" {
		d.State = agents.Approved
	}
	return d
}

// Applied reports that the agent was told of an approval. That the action is over already is no
// error.
func (q Queue) Applied(ctx context.Context, action, key string) error {
	return over(q.ask(ctx, func(of *api.Approvals) error {
		_, err := of.Report(ctx, action, approvals.ReportRequest{Key: key, State: approvals.Applied,
			Outcome: "the agent was told"})
		return err
	}))
}

// Withdraw takes an action back. That it is over already is no error.
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
