package agents

import (
	"context"
	"fmt"
	"regexp"

	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/supervisor/agents/store"
)

// Changes names the file changes of an agent's tools in one conversation. Each conversation has its
// own shadow of the workspace. A commit of it waits in the approval queue, where people review it
// and can later undo it.
type Changes struct {
	// Launch describes the agent.
	Launch Launch
	// Conversation is empty for changes outside of a conversation.
	Conversation string
	// Words is the agent's description of the changes.
	Words string
	// Asked are the agent's waiting actions. A new commit replaces one of the same conversation.
	Asked []string
}

// Proposed is the result of proposing a commit.
type Proposed struct {
	// ID is the action's id. State is pending unless a grant has approved the action.
	ID       string `json:"id"`
	State    string `json:"state"`
	Added    int64  `json:"added"`
	Modified int64  `json:"modified"`
	Deleted  int64  `json:"deleted"`
}

var conversationName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,31}$`)

// converses checks the name of a conversation, which may be empty. If changes is true, it also
// returns an error for an agent without a workspace.
func (c *calls) converses(name string, changes bool) error {
	why := ""
	switch {
	case name != "" && !conversationName.MatchString(name):
		why = fmt.Sprintf("conversation %.60q: want 1 to 32 lower-case letters, digits and -, which "+
			"begin with a letter or digit", name)
	case changes && c.r.m.Tools.Workspace == "":
		why = "the tools of the agent change nothing: write their workspace into [tools]"
	default:
		return nil
	}
	return agent.Errorf(agent.ErrParams, "%s", why)
}

// changes proposes or discards the file changes of a conversation's tools. The agent later gets the
// decision as an approval event.
func (c *calls) changes(ctx context.Context, call agent.Call, p struct {
	Conversation string `json:"conversation"`
	Words        string `json:"words"`
}) (any, error) {
	if err := c.converses(p.Conversation, true); err != nil {
		return nil, err
	}
	of := Changes{Launch: c.r.l, Conversation: p.Conversation, Words: p.Words}
	all, err := store.AsksOf(c.r.a.Store).All(ctx)
	if err != nil {
		return nil, err
	}
	for _, waits := range all {
		if waits.Instance == c.r.from.ID && waits.Action != "" {
			of.Asked = append(of.Asked, waits.Action)
		}
	}
	if call.Method == agent.MethodDiscard {
		return struct{}{}, refusal(ctx, call.Method, c.r.a.o.Jails.Discard(ctx, of))
	}
	if err := store.AsksOf(c.r.a.Store).Room(ctx, c.r.from.ID); err != nil {
		return nil, err
	}
	done, err := c.r.a.o.Jails.Propose(ctx, of)
	if err != nil {
		return nil, refusal(ctx, call.Method, err)
	}
	return done, c.asked(done.ID)
}
