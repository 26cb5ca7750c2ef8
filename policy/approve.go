package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ApproveMode says whether an action waits for somebody's approval.
type ApproveMode = word[approveModes]

type approveModes struct{}

func (approveModes) words() []string { return []string{"never", "ask", "auto"} }

// Values of ApproveMode, each granting more than the one before.
const (
	ApproveNever ApproveMode = iota // the action is refused
	ApproveAsk                      // it waits until somebody has approved it
	ApproveAuto                     // it needs no approval
)

// Actions that a rule can hold back.
const (
	ActionCommit = "workspace.commit" // the changes of a shadow become real
	ActionFetch  = "fetch"            // a request is sent
	ActionTool   = "tool"             // a tool is started

	// A program outside of any jail proposes these and carries them out itself.
	ActionGate        = "gate"      // a gatekeeper acts on a resource
	ActionPush        = "git.push"  // a branch is pushed
	ActionPullRequest = "pr.create" // a pull request is opened

	ActionPolicyGrant = "policy.grant" // runs of a profile get more than the profile grants
)

// ApproveActions returns the actions that a rule can name.
func ApproveActions() []string {
	return []string{ActionCommit, ActionFetch, ActionTool, ActionGate, ActionPush,
		ActionPullRequest, ActionPolicyGrant}
}

// ApproveRule holds an action back. Rules for an action that the rest of the policy does not grant
// are void, and left out of a policy's normal form.
type ApproveRule struct {
	Action string `json:"action"`
	// Host and Methods narrow a rule for fetches: the zero Host is every host, and no method is
	// every method.
	Host    Host  `json:"host,omitzero"`
	Methods Globs `json:"methods,omitempty"`
	// Tool narrows a rule for tools, each of which is named as bundle/command or by the absolute
	// path of its program or module; empty is every tool.
	Tool Globs       `json:"tool,omitempty"`
	Mode ApproveMode `json:"mode"`
}

func (r ApproveRule) String() string {
	text := r.Action
	if r.Host.depth != hostNone {
		text += " host " + r.Host.String()
	}
	if len(r.Methods) > 0 {
		text += " methods " + r.Methods.String()
	}
	if len(r.Tool) > 0 {
		text += " tool " + r.Tool.String()
	}
	return text + " mode " + r.Mode.String()
}

// normal drops fields that narrow nothing or belong to another action.
func (r ApproveRule) normal() ApproveRule {
	out := ApproveRule{Action: r.Action, Mode: r.Mode}
	switch r.Action {
	case ActionFetch:
		if r.Host != AnyHost {
			out.Host = r.Host
		}
		if !MustGlobs("*").LessEq(r.Methods) {
			out.Methods = r.Methods.Normal()
		}
	case ActionTool:
		if !MustGlobs("**").LessEq(r.Tool) {
			out.Tool = r.Tool.Normal()
		}
	}
	return out
}

// below reports whether s holds back everything that r does, at least as strictly. Both are normal.
func (r ApproveRule) below(s ApproveRule) bool {
	return r.Action == s.Action && s.Mode <= r.Mode &&
		(s.Host.depth == hostNone || r.Host.depth != hostNone && r.Host.LessEq(s.Host)) &&
		(len(s.Methods) == 0 || len(r.Methods) > 0 && r.Methods.LessEq(s.Methods)) &&
		(len(s.Tool) == 0 || len(r.Tool) > 0 && r.Tool.LessEq(s.Tool))
}

// Approve is the list of actions that a policy holds back. The rules restrict, so they meet by
// union; of several rules for one action the strictest counts. An action without a rule needs no
// approval.
type Approve []ApproveRule

// strictest returns the strictest rule for an action for which holds returns true. If there is
// none, its mode is ApproveAuto.
func (a Approve) strictest(action string, holds func(ApproveRule) bool) ApproveRule {
	out := ApproveRule{Action: action, Mode: ApproveAuto}
	for _, r := range a {
		if r = r.normal(); r.Action == action && r.Mode < out.Mode && holds(r) {
			out = r
		}
	}
	return out
}

// Mode returns the strictest mode for an action, over all hosts, methods and tools.
func (a Approve) Mode(action string) ApproveMode {
	return a.strictest(action, func(ApproveRule) bool { return true }).Mode
}

// Fetch returns the rule that holds a request back; its mode is ApproveAuto if none does. The
// methods inside a tunnel or websocket are not visible, so every rule for the host applies.
func (a Approve) Fetch(q Connect) ApproveRule {
	return a.strictest(ActionFetch, func(r ApproveRule) bool {
		return (r.Host.depth == hostNone || r.Host.Match(q.Host)) &&
			(q.Tunnel || q.WebSocket || len(r.Methods) == 0 || r.Methods.Match(q.Method))
	})
}

// ForTool returns the rule that holds the start of a tool back; its mode is ApproveAuto if none
// does. The name is bundle/command or an absolute path.
func (a Approve) ForTool(name string) ApproveRule {
	return a.strictest(ActionTool, func(r ApproveRule) bool {
		return len(r.Tool) == 0 || r.Tool.Match(name)
	})
}

// of returns the rules for actions that p grants.
func (a Approve) of(p Policy) (out Approve) {
	for _, r := range a {
		if p.GrantsAction(r.Action) {
			out = append(out, r)
		}
	}
	return out
}

// GrantsAction reports whether p grants an action, regardless of approvals.
func (p Policy) GrantsAction(action string) bool {
	switch action {
	case ActionCommit:
		return p.Workspace.Access == WorkspaceShadow && p.Workspace.Commit != CommitNever
	case ActionFetch:
		return len(p.Fetch.Normal().Allow) > 0
	case ActionTool, ActionGate, ActionPush, ActionPullRequest, ActionPolicyGrant:
		// These act on behalf of a run, and without a tool there is none.
		return !p.Tools.Empty()
	}
	return true
}

// Meet returns the rules of both.
func (a Approve) Meet(b Approve) Approve { return append(slices.Clone(a), b...).Normal() }

// LessEq reports whether a holds back everything that b does, at least as strictly.
func (a Approve) LessEq(b Approve) bool { return listBelow(b.Normal(), a.Normal()) }

// Normal drops rules that hold nothing back or that another rule covers, and sorts the rest.
func (a Approve) Normal() Approve {
	var out Approve
	for _, r := range a {
		if r.Mode < ApproveAuto {
			out = append(out, r.normal())
		}
	}
	return normalList(out)
}

func (a Approve) String() string {
	texts := []string{}
	for _, r := range a.Normal() {
		texts = append(texts, r.String())
	}
	return fmt.Sprintf("%q", texts)
}

// CheckApproveAction returns an error unless action is one of ApproveActions.
func CheckApproveAction(action string) error {
	if !slices.Contains(ApproveActions(), action) {
		return fmt.Errorf("%q is no action that can wait for an approval: there are %s", action,
			strings.Join(ApproveActions(), ", "))
	}
	return nil
}

// ApproveToolPrefix begins an action of the form tool:NAME, which is the action tool for the tool
// NAME.
const ApproveToolPrefix = ActionTool + ":"

// ParseApproveTool parses the tool of a rule. A name without a slash matches every tool whose name
// ends with it after a slash.
func ParseApproveTool(text string) (Globs, error) {
	if text != "" && text != "**" && !strings.Contains(text, "/") {
		text = "**/" + text
	}
	g, err := ParseGlob(text)
	if err != nil {
		return nil, err
	}
	return Globs{g}, nil
}

func checkApprove(p Policy) (out []error) {
	out = tooMany("approve", len(p.Approve))
	items := 0
	for i, r := range p.Approve {
		key := fmt.Sprintf("approve[%d]", i)
		out = append(out, keyed(key+".action", CheckApproveAction(r.Action))...)
		if r.Mode > ApproveAuto {
			out = append(out, errors.New(key+".mode is no value there is"))
		}
		for _, m := range r.Methods {
			out = append(out, keyed(key+".methods", CheckMethod(m.String()))...)
		}
		switch {
		case r.Action != ActionFetch && (r.Host.depth != hostNone || len(r.Methods) > 0):
			out = append(out, errors.New(key+": only fetches have a host and methods"))
		case r.Action != ActionTool && len(r.Tool) > 0:
			out = append(out, errors.New(key+": only the action tool has a tool"))
		}
		items += len(r.Methods) + len(r.Tool)
	}
	return append(out, tooManyTogether("approve", items)...)
}
