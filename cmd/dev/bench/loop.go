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

// loops measures in turn a call of the tool Bash in the tool loop, whose events jail-agentd keeps,
// and the same invocation of its session.
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
	model := &turner{}
	session, err := loop.Start(ctx, loop.Options{Log: agents.client, Model: model,
		Runner: loop.CodeTools{Session: jail}.Toolbox(), Now: time.Now,
		Gate: loop.Gate{Rules: []loop.Rule{{Tools: "*", Mode: loop.ModeAllow}}}}, "bench",
		transcript.Start{Dir: filepath.Base(jail.Root())})
	if err != nil {
		return err
	}
	call := func(ctx context.Context) (time.Duration, error) {
		e, err := session.Say(ctx, "go")
		if err == nil && e.Status != transcript.Success {
			err = fmt.Errorf("the turn ended with %s: %s", e.Status, e.Text)
		}
		return model.took, err
	}
	less := warm.invocation(jail.ID(), jail.Root())
	more := &subject{name: "loop: the same by the tool `Bash`, from the call to its result", once: rested(call)}
	if err := measure(ctx, []*subject{less, more}, rounds, stderr); err != nil {
		return err
	}
	if err := tellMedians(stdout, host, rounds); err != nil {
		return err
	}
	return medians(less, more, "what the loop adds, of each pair (to reach: 2)").write(stdout)
}
