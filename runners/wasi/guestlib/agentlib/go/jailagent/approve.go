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
//	gate := jailagent.ApprovalGate{Answers: answers,
//		Rules: []jailagent.ToolRule{{"rm", jailagent.Deny}}}
type ApprovalGate struct {
	// Answers stores the answers. A Singleton can be used.
	Answers interface {
		Value() (map[string]bool, error)
		Set(map[string]bool) error
	}
	// Rules are checked in order. The first match decides.
	Rules []ToolRule
}

// A ToolRule sets the mode of tools. Pattern is a name, or a prefix followed by *.
type ToolRule struct{ Pattern, Mode string }

// conversationKey returns the prefix of a conversation's keys in Answers.
func conversationKey(name string) string { return strconv.Quote(name) + " " }

// Check returns Allow, AskOnce or Deny for a tool. An unknown mode counts as Deny.
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

// Answer stores the answer about a tool in a conversation.
func (g ApprovalGate) Answer(tool, conversation string, yes bool) error {
	return g.change(func(all map[string]bool) { all[conversationKey(conversation)+tool] = yes })
}

// Revoke deletes the answer about a tool in a conversation.
func (g ApprovalGate) Revoke(tool, conversation string) error {
	return g.change(func(all map[string]bool) { delete(all, conversationKey(conversation)+tool) })
}

// Reset deletes all answers of a conversation.
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
