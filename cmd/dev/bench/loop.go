package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/jail-sandbox/jail/supervisor/agents/agentapi"
	"github.com/jail-sandbox/jail/supervisor/loop"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/models"
	"github.com/jail-sandbox/jail/supervisor/toolsession"
	"github.com/jail-sandbox/jail/supervisor/transcript"
)

const loopPart = "loop"

// A turner is a model that calls the tool Bash once in each turn. It measures from its call to the
// result, which it is asked about.
type turner struct {
	called time.Time
	took   time.Duration
	turns  int
}

func (c *turner) Reply(_ context.Context, _ string, r models.Request) (models.Reply, error) {
	if last := r.Turns[len(r.Turns)-1]; len(last.Results) > 0 {
		c.took = time.Since(c.called)
		if last.Results[0].Error {
			return models.Reply{}, errors.New(last.Results[0].Text)
		}
		return models.Reply{Text: "done"}, nil
	}
	c.turns++
	c.called = time.Now()
	return models.Reply{Calls: []models.Call{{ID: fmt.Sprint(c.turns), Name: "Bash",
		Input: json.RawMessage(`{"command":"true"}`)}}}, nil
}

// idle has tools that do nothing.
type idle struct{}

func (idle) Tools() []models.Tool { return nil }

func (idle) Run(context.Context, transcript.Call) (string, bool) { return "", false }

// turns starts a session of the tool loop with a runner, and returns a function that measures a call
// from the model's message to the request with its result.
func turns(ctx context.Context, log loop.Log, tools loop.Runner, id, dir string) (once, error) {
	model := &turner{}
	session, err := loop.Start(ctx, loop.Options{Log: log, Model: model, Runner: tools, Now: time.Now,
		Gate: loop.Gate{Rules: []loop.Rule{{Tools: "*", Mode: loop.ModeAllow}}}}, id,
		transcript.Start{Dir: dir})
	return func(ctx context.Context) (time.Duration, error) {
		e, err := session.Say(ctx, "go")
		if err == nil && e.Status != transcript.Success {
			err = fmt.Errorf("the turn ended with %s: %s", e.Status, e.Text)
		}
		return model.took, err
	}, err
}

// loops measures in turn a call of the tool Bash in the tool loop, whose events jail-agentd keeps,
// the same invocation of its session, and a call of a tool that does nothing.
func loops(ctx context.Context, bin string, rounds int, stdout, stderr io.Writer) (err error) {
	bin, host, err := settle(bin)
	if err != nil {
		return err
	}
	_, warm, end, err := twoBeds(ctx, bin, loopPart, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	agents := &agentBed{bin: bin, dir: warm.path(loopPart),
		client: agentapi.NewClient(warm.path(loopPart, "agentd.sock"))}
	if _, err := agents.start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, agents.stop()) }()
	jail, err := toolsession.Open(ctx, warm.client, message.SessionRequest{Request: message.Request{
		ID: "loop", Profile: "build", Dir: warm.path("small"), Fate: message.FateDiscard}})
	if err != nil {
		return err
	}
	call, err := turns(ctx, agents.client, loop.CodeTools{Session: jail}.Toolbox(), "bench",
		filepath.Base(jail.Root()))
	if err != nil {
		return err
	}
	bare, err := turns(ctx, agents.client, idle{}, "idle", filepath.Base(jail.Root()))
	if err != nil {
		return err
	}
	less := warm.invocation(jail.ID(), jail.Root())
	more := &subject{name: "loop: the same by the tool `Bash`, from the call to its result", once: rested(call)}
	alone := &subject{name: "loop: a tool that does nothing, from the call to its result", once: rested(bare)}
	if err := measure(ctx, []*subject{less, more, alone}, rounds, stderr); err != nil {
		return err
	}
	if err := tellMedians(stdout, host, rounds); err != nil {
		return err
	}
	t := medians(less, more, "what the loop adds, of each pair (to reach: 2)")
	t.add(alone.name, millis(alone.took.median()), millis(alone.took.percentile(99)),
		millis(alone.took.min()))
	return t.write(stdout)
}
