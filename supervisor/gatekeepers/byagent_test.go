package gatekeepers

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/approvals"
)

// A wiki is an agent that keeps one page. Each key is carried out once, as jail-agentd sees to it.
type wiki struct {
	page    string
	answers map[string]json.RawMessage
	calls   []string
	// slow says that the agent carries calls out, and has not answered yet.
	slow bool
}

func (w *wiki) ask(ctx context.Context, _, key, method string, args any) (json.RawMessage, error) {
	if w.answers[key] == nil {
		w.calls = append(w.calls, method)
		var in kept
		if err := json.Unmarshal(raws(args), &in); err != nil {
			return nil, err
		}
		var out any = object{}
		switch method {
		case "describe":
			out = object{"about": "a page", "resource": "a secret", "problem": "none",
				"actions": []object{{"name": "set"}}}
		case "read":
			out = w.page
		case "propose":
			if string(in.Args) == `{}` {
				out = object{"error": "set what?"}
			} else {
				out = object{"resource": "page", "reversible": true, "before": w.page, "after": "new"}
			}
		case "applyAction":
			if string(in.Before) != string(raws(w.page)) {
				out = object{"changed": "somebody wrote the page"}
			} else {
				w.page, out = "new", object{"outcome": "written"}
			}
		case "revertAction":
			w.page = "old"
		}
		w.answers[key] = raws(out)
	}
	if w.slow {
		return nil, context.DeadlineExceeded
	}
	return w.answers[key], nil
}

// An agent is asked for each step of an action: the action is done once, undone, stale if the resource
// has changed, and the agent is told if nobody does it.
func TestGatekeeperByAgent(t *testing.T) {
	page := &wiki{page: "old", answers: map[string]json.RawMessage{}}
	k := &byAgent{Agent: "keeper", Ask: page.ask}
	w := &world{keys: map[string]string{}}
	d := w.desk(nil)
	d.o.Kept = func() ([]Kept, error) {
		return []Kept{{Settings{Name: "crm", Agents: []string{"triage"}}, k}}, nil
	}
	ctx := t.Context()
	all, err := d.Describe(ctx, Caller{}, "crm")
	if err != nil || all[0].Kind != "agent" || all[0].Resource != "keeper" || all[0].Problem != "" ||
		all[0].About != "a page" || len(all[0].Actions) != 1 || all[0].Reads == nil {
		t.Errorf("%+v, %v", all, err)
	}
	if got, err := d.Read(ctx, triage, "crm", "page", raws(object{})); err != nil ||
		string(got.(json.RawMessage)) != `"old"` {
		t.Errorf("it reads %s, %v", got, err)
	}
	propose := func(ref string) *approvals.Action {
		t.Helper()
		p, err := d.Propose(ctx, triage, Proposal{Gatekeeper: "crm", Action: "set", Ref: ref,
			Args: raws(object{"to": "new"})})
		if err != nil || string(p.After) != `"new"` || !p.Reversible {
			t.Fatalf("%+v, %v", p, err)
		}
		return w.actions[len(w.actions)-1]
	}
	look := func(a *approvals.Action, is, becomes approvals.State, page2 string) {
		t.Helper()
		a.State, a.Claim = is, nil
		if _, err := d.each(ctx, false); err != nil || a.State != becomes || page.page != page2 {
			t.Errorf("%s becomes %s, and the page %q, %v", is, a.State, page.page, err)
		}
	}
	if _, err := d.Propose(ctx, triage, Proposal{Gatekeeper: "crm", Action: "set", Ref: "0",
		Args: raws(object{})}); err == nil {
		t.Error("an action that the agent refuses")
	}
	a := propose("1")
	if a.Gate.Resource != "keeper#page" {
		t.Errorf("people see %+v", a.Gate)
	}
	look(a, approvals.Approved, approvals.Applied, "new")
	look(a, approvals.Reverting, approvals.Reverted, "old")
	changed, no := propose("2"), propose("3")
	page.page = "of somebody else"
	look(changed, approvals.Approved, approvals.Stale, page.page)
	page.calls = nil
	look(no, approvals.Rejected, approvals.Rejected, page.page)
	if len(page.calls) != 1 || page.calls[0] != "rejectAction" {
		t.Errorf("the agent was told %q", page.calls)
	}
}

// An action whose agent has not answered in time is not said to have failed: the agent may have done it.
// It is settled by the answer to the same call.
func TestSlowGatekeeper(t *testing.T) {
	page := &wiki{page: "old", answers: map[string]json.RawMessage{}, slow: true}
	k := &byAgent{Agent: "keeper", Ask: page.ask}
	c := Change{Action: "set", Resource: "keeper#page", Args: raws(object{"to": "new"}),
		Before: raws("old")}
	late, stop := context.WithCancel(t.Context())
	stop()
	if _, err := k.Apply(late, "a", c); !errors.Is(err, api.ErrUnsettled) {
		t.Errorf("%v", err)
	}
	page.slow = false
	s, known, err := k.Settle(t.Context(), "a", c, false)
	if err != nil || !known || !s.Done || s.Outcome != "written" || len(page.calls) != 1 {
		t.Errorf("%+v, %t, %v after %q", s, known, err, page.calls)
	}
	if _, known, err := k.Settle(t.Context(), "a", c, true); known || err != nil {
		t.Errorf("a reversal: %t, %v", known, err)
	}
}
