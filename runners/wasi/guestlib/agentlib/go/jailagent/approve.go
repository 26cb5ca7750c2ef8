package jailagent

import (
	"maps"
	"strconv"
	"strings"
)

// Modes of an ApprovalGate.
const (
	Allow   = "allow"
	AskOnce = "ask"
	Deny    = "deny"
)

// An ApprovalGate decides whether a tool may be used: by rule, else it asks once per tool and
// conversation.
//
//	answers, err := jailagent.One("approvals", map[string]bool{})
//	gate := jailagent.ApprovalGate{Answers: answers, Rules: []jailagent.ToolRule{{"rm", jailagent.Deny}}}
type ApprovalGate struct {
	// Answers keeps what was answered. A Singleton does.
	Answers interface {
		Value() (map[string]bool, error)
		Set(map[string]bool) error
	}
	// Rules are looked through in their order: the first that matches counts.
	Rules []ToolRule
}

// A ToolRule gives tools a mode. A pattern is a name, or ends in *.
type ToolRule struct{ Pattern, Mode string }

// conversationKey begins the places of the answers of a conversation.
func conversationKey(name string) string { return strconv.Quote(name) + " " }

// Check returns Allow, AskOnce or Deny. A mode that is none of these is Deny.
func (g ApprovalGate) Check(tool, conversation string) (string, error) {
	mode := AskOnce
	for _, r := range g.Rules {
		prefix, many := strings.CutSuffix(r.Pattern, "*")
		if r.Pattern == tool || many && strings.HasPrefix(tool, prefix) {
			mode = r.Mode
			break
		}
	}
	if mode != AskOnce {
		if mode != Allow {
			mode = Deny
		}
		return mode, nil
	}
	all, err := g.Answers.Value()
	if err != nil {
		return Deny, err
	}
	switch yes, known := all[conversationKey(conversation)+tool]; {
	case !known:
		return AskOnce, nil
	case yes:
		return Allow, nil
	}
	return Deny, nil
}

// Answer keeps what was answered about a tool.
func (g ApprovalGate) Answer(tool, conversation string, yes bool) error {
	return g.change(func(all map[string]bool) { all[conversationKey(conversation)+tool] = yes })
}

// Revoke takes an answer back.
func (g ApprovalGate) Revoke(tool, conversation string) error {
	return g.change(func(all map[string]bool) { delete(all, conversationKey(conversation)+tool) })
}

// Reset takes back all answers of a conversation.
func (g ApprovalGate) Reset(conversation string) error {
	return g.change(func(all map[string]bool) {
		maps.DeleteFunc(all, func(at string, _ bool) bool {
			return strings.HasPrefix(at, conversationKey(conversation))
		})
	})
}

func (g ApprovalGate) change(f func(map[string]bool)) error {
	all, err := g.Answers.Value()
	if err != nil {
		return err
	}
	changed := map[string]bool{}
	maps.Copy(changed, all)
	f(changed)
	return g.Answers.Set(changed)
}
