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

// A Rule says what becomes of calls of the tools whose names match a pattern, as path.Match has it.
type Rule struct{ Tools, Mode string }

// CheckRule returns what is wrong with the pattern of a rule.
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

// An Answer is a person's.
type Answer struct {
	Allow bool
	// Session: it holds until the session ends or a person takes it back, else for this call.
	Session bool
}

// A Gate decides whether a tool may be called. Of its rules those that deny come first, then those
// that ask, then those that allow. Without a rule it asks once for each tool of a session.
//
// The gate is what a person wants to be asked about. It is no wall: those are the jail's.
type Gate struct {
	Rules []Rule
	// Ask asks a person. Where it is nil, or fails, there is nobody, and the call is denied.
	Ask func(context.Context, Question) (Answer, error)

	// recorded says what the rules said when a call was recorded, in a replay.
	recorded func() string
}

// mode returns what the rules say of a tool, ModeAsk if nothing, and whether one says it.
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

// allowed decides on a call. why is empty if it may be carried out.
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

// decided takes a decision in.
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

// Granted returns the tools that are allowed until the session ends.
func (s *Session) Granted() map[string]bool { return s.granted }

// Revoke takes back what was allowed for a tool, or for all if tool is empty. They ask again.
func (s *Session) Revoke(ctx context.Context, tool string) error {
	return s.Note(ctx, transcript.Event{Type: transcript.PermissionDecision, Tool: tool,
		Decision: &transcript.Decision{Decision: transcript.Revoke, Via: "person"}})
}
