package guest

import (
	"context"
	"os"

	"github.com/jail-sandbox/jail/runners/wasi/guest/hostagent"
)

// An Agent is what the guest of an agent has beside what every guest has.
type Agent struct {
	// Host answers its calls.
	Host hostagent.Host
	// Bindings are those whose functions it may import.
	Bindings []string
	// Open opens a stream on which Host answers the same calls as HTTP.
	Open func() (*os.File, error)
}

// agentKey is the key of the Agent in the context of a run.
type agentKey struct{}

// WithAgent makes the guests of a run those of an agent.
func WithAgent(ctx context.Context, a Agent) context.Context {
	return context.WithValue(ctx, agentKey{}, a)
}

// agentOf returns the agent of a run, or one without bindings.
func agentOf(ctx context.Context) Agent {
	a, _ := ctx.Value(agentKey{}).(Agent)
	return a
}
