package worker

import (
	"context"
	"io"

	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/approvals"
	"github.com/jail-sandbox/jail/supervisor/fetchrun"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/toolsession"
)

// A daemon is what a task needs of jaild: one session, a run beside it, and approvals.
type daemon interface {
	open(ctx context.Context, r message.SessionRequest) (session, error)
	run(ctx context.Context, r message.Request, in io.Reader, out,
		errOut io.Writer) (message.Result, error)
	discard(ctx context.Context, session string) error
	approvals() queue
}

// A session has the repository. toolsession.Session is one.
type session interface {
	Name() string
	ID() string
	Run(ctx context.Context, c toolsession.Call) (toolsession.Outcome, error)
}

// A queue decides on pushes and pull requests. api.Approvals is one.
type queue interface {
	Propose(ctx context.Context, r api.ProposeRequest) (approvals.Action, error)
	Wait(ctx context.Context, id string) (approvals.Action, error)
	Withdraw(ctx context.Context, id string) (approvals.Action, error)
	Carry(ctx context.Context, id, key string,
		do func(approvals.Action) (string, error)) (approvals.Action, error)
}

// A sender sends requests. fetchrun.Sender is one.
type sender interface {
	Send(ctx context.Context, r fetchrun.Request) (*fetchrun.Response, error)
}

// jaild is the daemon of a client.
type jaild struct{ client *api.Client }

func (j jaild) open(ctx context.Context, r message.SessionRequest) (session, error) {
	s, err := toolsession.Open(ctx, j.client, r)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (j jaild) run(ctx context.Context, r message.Request, in io.Reader, out,
	errOut io.Writer) (message.Result, error) {
	return j.client.Run(ctx, r, in, out, errOut)
}

func (j jaild) discard(ctx context.Context, session string) error {
	_, err := j.client.StopSession(ctx, session, message.StopRequest{Fate: message.FateDiscard})
	return err
}

func (j jaild) approvals() queue { return j.client.Approvals() }
