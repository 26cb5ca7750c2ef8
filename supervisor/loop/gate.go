package loop

import (
	"context"
	"encoding/json"
	"fmt"
	"path"

	"github.com/jail-sandbox/jail/supervisor/transcript"
)

// Modes of a rule.
const (
	ModeAllow = "allow"
	ModeAsk   = "ask"
	ModeDeny  = "deny"
)

// A Rule sets the mode of the tools whose names match the pattern Tools (path.Match).
type Rule struct{ Tools, Mode string }

// CheckRule returns an error if the pattern of a rule is empty or malformed.
func CheckRule(pattern string) error {
	if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
		return fmt.Errorf("%.80q is no name of a tool, and no pattern of such names", pattern)
	}
	return nil
}

// A Question asks a person whether a tool may be called.
type Question struct {
	Tool  string
	Input json.RawMessage
}

// An Answer is a person's answer to a Question.
type Answer struct {
	Allow bool
	// Session is true if the answer is valid until the session ends or the permission is revoked.
	// If false, it is valid for this call.
	Session bool
}

// A Gate decides whether a tool may be called. Rules that deny take precedence over rules that ask,
// and these over rules that allow. A tool without a rule needs one permission per session.
//
// The gate is a convenience for people, not a security boundary: that is the jail.
type Gate struct {
	Rules []Rule
	// Ask asks a person. If it is nil or returns an error, the call is denied.
	Ask func(context.Context, Question) (Answer, error)

	// recorded returns the recorded mode of the current call, in a replay. Otherwise it is nil.
	recorded func() string
}

// mode returns the mode of a tool, and whether a rule sets it. The default is ModeAsk.
func (g Gate) mode(tool string) (mode string, ruled bool) {
	if g.recorded != nil {
		return g.recorded(), true
	}
	for _, mode := range []string{ModeDeny, ModeAsk, ModeAllow} {
		for _, r := range g.Rules {
			if ok, err := path.Match(r.Tools, tool); r.Mode == mode && ok && err == nil {
				return mode, true
			}
		}
	}
	return ModeAsk, false
}

// allowed decides on a call. why is the reason of a denial, empty if the call is allowed.
func (s *Session) allowed(ctx context.Context, c transcript.Call) (why string, err error) {
	mode, ruled := s.o.Gate.mode(c.Name)
	d := transcript.Decision{Decision: transcript.Deny, Scope: "once"}
	decided := func(via, why string) (string, error) {
		d.Via = via
		return why, s.Note(ctx, transcript.Event{Type: transcript.PermissionDecision, CallID: c.ID,
			Tool: c.Name, Decision: &d})
	}
	switch {
	case mode == ModeDeny:
		return decided("rule", fmt.Sprintf("a rule denies the tool %s", c.Name))
	case mode == ModeAllow, !ruled && s.granted[c.Name]:
		return "", nil
	}
	if err := s.Note(ctx, transcript.Event{Type: transcript.PermissionQuestion, CallID: c.ID,
		Tool: c.Name, Input: c.Input}); err != nil {
		return "", err
	}
	if s.o.Gate.Ask == nil {
		return decided("nobody",
			fmt.Sprintf("the tool %s has to be allowed, and there is nobody to ask", c.Name))
	}
	a, askErr := s.o.Gate.Ask(ctx, Question{Tool: c.Name, Input: c.Input})
	switch {
	case ctx.Err() != nil:
		return errInterrupted.Error(), nil
	case askErr != nil:
		return decided("nobody", fmt.Sprintf("the tool %s has to be allowed, and nobody answered", c.Name))
	case !a.Allow:
		return decided("person", fmt.Sprintf("a person denied the tool %s", c.Name))
	case a.Session:
		d.Scope = "session"
	}
	d.Decision = transcript.Allow
	return decided("person", "")
}

// decided updates granted with the decision in an event.
func (s *Session) decided(e transcript.Event) {
	switch d := e.Decision; {
	case d == nil:
	case d.Decision == transcript.Allow && d.Scope == "session":
		s.granted[e.Tool] = true
	case d.Decision == transcript.Revoke && e.Tool == "":
		clear(s.granted)
	case d.Decision == transcript.Revoke:
		delete(s.granted, e.Tool)
	}
}

// Granted returns the set of tools that a person allowed until the session ends.
func (s *Session) Granted() map[string]bool { return s.granted }

// Revoke revokes the session's permission for a tool, or for all tools if tool is empty.
func (s *Session) Revoke(ctx context.Context, tool string) error {
	return s.Note(ctx, transcript.Event{Type: transcript.PermissionDecision, Tool: tool,
		Decision: &transcript.Decision{Decision: transcript.Revoke, Via: "person"}})
}
