package agents

import (
	"context"
	"errors"

	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/supervisor/agents/store"
	"github.com/jail-sandbox/jail/supervisor/audit"
)

// maxResult bounds the input and the result of an operation, in bytes.
const maxResult = 64 << 20

// operationPart is how many bytes of an operation's input go into one frame.
const operationPart = 512 << 10

var (
	errEnding = errors.New("jail-agentd ends")
	// errTaken is the cause that ends a run whose instance is deleted or aborted.
	errTaken = errors.New("the agent is deleted, or its parent has ended it")
)

// An operation is an operation on the database of an agent that its owner asks for.
type operation struct {
	op     string
	data   []byte
	result []byte
	done   chan error
}

func (o *operation) fail(err error) {
	select {
	case o.done <- err:
	default:
	}
}

// Operate does an operation on the database of an instance and returns the result. It wakes the
// instance. op is one of the agent.Admin… operations.
func (a *Agents) Operate(ctx context.Context, i store.Instance, op string,
	data []byte) ([]byte, error) {
	if len(data) > maxResult {
		return nil, store.ErrTooLarge
	}
	o := &operation{op: op, data: data, done: make(chan error, 1)}
	if step := map[string]string{agent.AdminExport: audit.AgentExported,
		agent.AdminImport: audit.AgentImported}[op]; step != "" {
		a.record(i, audit.AgentStep{Step: step})
	}
	a.turns.ask(i.ID, o)
	select {
	case err := <-o.done:
		return o.result, err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-a.ctx.Done():
		return nil, errEnding
	}
}

// operate sends an operation to the agent's jail.
func (r *run) operate(ctx context.Context, o *operation) {
	r.window.operations++
	id := r.window.operations
	r.window.admins[id] = o
	agent.Split(o.data, operationPart, func(part []byte, more bool) {
		r.order(ctx, agent.Order{Admin: &agent.Admin{ID: id, Op: o.op, Data: part, More: more}})
	})
}

// operated takes a part of an operation's result.
func (r *run) operated(part agent.AdminResult) *cause {
	o := r.window.admins[part.ID]
	if o == nil {
		return nonsense("it answers operation %d, which nobody asked for", part.ID)
	}
	if len(o.result)+len(part.Data) > maxResult {
		return nonsense("the result of an operation is larger than %d bytes", maxResult)
	}
	o.result = append(o.result, part.Data...)
	if part.More {
		return nil
	}
	delete(r.window.admins, part.ID)
	if part.Error != nil {
		o.fail(part.Error)
	} else {
		o.fail(nil)
	}
	return nil
}
