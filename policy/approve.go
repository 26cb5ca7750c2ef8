package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ApproveMode says whether an action waits for somebody's approval.
type ApproveMode uint8

// Values of ApproveMode, each granting more than the one before.
const (
	ApproveNever ApproveMode = iota // the action is refused
	ApproveAsk                      // it waits until somebody has approved it
	ApproveAuto                     // it needs no approval
)

var approveModeWords = []string{"never", "ask", "auto"}

// ApproveModeWords returns the words of approve.mode, the strictest first.
func ApproveModeWords() []string { return append([]string(nil), approveModeWords...) }

func (m ApproveMode) String() string { return word(approveModeWords, m) }

// MarshalText writes the word of a policy file.
func (m ApproveMode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads the word of a policy file.
func (m *ApproveMode) UnmarshalText(text []byte) error { return unword(approveModeWords, m, text) }

// ActionCommit is the action by which the changes of a shadow become real.
const ActionCommit = "workspace.commit"

// ApproveActions returns the actions that a rule can name.
func ApproveActions() []string { return []string{ActionCommit} }

// ApproveRule holds an action back. Rules for an action that the rest of the policy does not grant
// are void, and left out of a policy's normal form.
type ApproveRule struct {
	Action string      `json:"action"`
	Mode   ApproveMode `json:"mode"`
}

func (r ApproveRule) String() string { return fmt.Sprintf("%s mode %s", r.Action, r.Mode) }

// Approve are the actions that a policy holds back. Like protected names they take away, so they
// meet by union, and of several rules for one action the strictest counts. What no rule names needs
// no approval.
type Approve []ApproveRule

// Mode returns the mode of an action.
func (a Approve) Mode(action string) ApproveMode {
	mode := ApproveAuto
	for _, r := range a {
		if r.Action == action {
			mode = min(mode, r.Mode)
		}
	}
	return mode
}

// of returns the rules for actions that p grants at all.
func (a Approve) of(p Policy) (out Approve) {
	for _, r := range a {
		if p.GrantsAction(r.Action) {
			out = append(out, r)
		}
	}
	return out
}

// GrantsAction reports whether p grants an action, its rules of approval aside.
func (p Policy) GrantsAction(action string) bool {
	return action != ActionCommit ||
		p.Workspace.Access == WorkspaceShadow && p.Workspace.Commit != CommitNever
}

// Meet holds back what either of the two does.
func (a Approve) Meet(b Approve) Approve { return append(slices.Clone(a), b...).Normal() }

// LessEq reports whether a holds back all that b does, as strictly.
func (a Approve) LessEq(b Approve) bool {
	return !slices.ContainsFunc(b, func(r ApproveRule) bool { return a.Mode(r.Action) > r.Mode })
}

// Normal returns one rule for each action that is held back, sorted by action.
func (a Approve) Normal() Approve {
	var out Approve
	for _, r := range a {
		known := slices.ContainsFunc(out, func(o ApproveRule) bool { return o.Action == r.Action })
		if mode := a.Mode(r.Action); !known && mode != ApproveAuto {
			out = append(out, ApproveRule{r.Action, mode})
		}
	}
	slices.SortFunc(out, func(x, y ApproveRule) int { return strings.Compare(x.Action, y.Action) })
	return out
}

func (a Approve) String() string {
	texts := []string{}
	for _, r := range a.Normal() {
		texts = append(texts, r.String())
	}
	return fmt.Sprintf("%q", texts)
}

// CheckApproveAction returns what is wrong with the action of a rule, or nil.
func CheckApproveAction(action string) error {
	if !slices.Contains(ApproveActions(), action) {
		return fmt.Errorf("%q is no action that can wait for an approval: there are %s", action,
			strings.Join(ApproveActions(), ", "))
	}
	return nil
}

func checkApprove(p Policy) (out []error) {
	out = tooMany("approve", len(p.Approve))
	for i, r := range p.Approve {
		key := fmt.Sprintf("approve[%d]", i)
		out = append(out, keyed(key+".action", CheckApproveAction(r.Action))...)
		if r.Mode > ApproveAuto {
			out = append(out, errors.New(key+".mode is no value there is"))
		}
	}
	return out
}
