package agents

import (
	"context"
	"fmt"
	"regexp"

	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/supervisor/agents/store"
)

// Changes are what the tools of an agent changed in one conversation. Each conversation has a shadow
// of its own of the same directory. A commit of what one changed waits in the approval queue, where
// people see it before it is made, and can undo it.
type Changes struct {
	// Launch is that of the agent.
	Launch Launch
	// Conversation is empty for what the agent changed in none.
	Conversation string
	// Words are those of the agent.
	Words string
	// Asked are the actions of the agent that wait: a commit of the same conversation among them is
	// replaced.
	Asked []string
}

// Proposed is a commit that was proposed.
type Proposed struct {
	// ID is that of the action, and State pending unless a grant has approved it.
	ID       string `json:"id"`
	State    string `json:"state"`
	Added    int64  `json:"added"`
	Modified int64  `json:"modified"`
	Deleted  int64  `json:"deleted"`
}

var conversationName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,31}$`)

// converses checks the name of a conversation, which may be empty. Without a workspace nothing is
// changed, if that is asked for.
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

// changes proposes or discards what the tools of a conversation changed. An event of the type
// approval says what is decided.
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
