package hosted

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/runners/agent/host"
	"github.com/jail-sandbox/jail/supervisor/agents"
	"github.com/jail-sandbox/jail/supervisor/agents/builtin"
)

// A guest handles events, as an agent in a jail does with the library of its language.
type guest interface {
	// OnWake is called first, with the reason for waking.
	OnWake(reason string) error
	// OnEvent is called for each event, one at a time and in order. If it returns an error, the
	// event is rolled back.
	OnEvent(ctx context.Context, e agent.Event) error
	// OnSleep is called last.
	OnSleep() error
}

// Main runs the process of an agent and returns its exit code. [Jails.Run] has its standard
// streams.
func Main() int {
	code, err := process()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return max(code, 1)
	}
	return code
}

func process() (code int, err error) {
	var l agents.Launch
	// Read the first frame and no byte more: the rest is for the host.
	if err := agent.NewReader(oneByte{os.Stdin}).Read(&l); err != nil {
		return 1, fmt.Errorf("what is to run: %w", err)
	}
	h, err := host.New(context.Background(), host.Options{ID: l.AgentID,
		Bindings: l.Manifest.Bindings(), Dir: l.State, Size: l.Manifest.Storage,
		Deadline: l.Manifest.Wake.Deadline, In: os.Stdin, Out: os.Stdout, Exit: exit})
	if err != nil {
		return 1, fmt.Errorf("database of the agent: %w", err)
	}
	wake, err := h.Wake()
	if err != nil {
		return 1, err
	}
	if b, ok := builtin.Find(l.Manifest.Name); ok {
		err = serve(h, &responder{Agent: b, bindings: bindings{h}, config: wake.Config,
			dir: l.State}, l.Manifest.Wake.Deadline)
	} else {
		code, err = native(h, l, wake)
	}
	why := fmt.Sprintf("the agent has ended with code %d before it had committed the event", code)
	if err != nil {
		why = err.Error()
	}
	return code, errors.Join(err, h.Close(h.Asleep() && code == 0 && err == nil, why))
}

// exit ends the process and kills all processes that the agent has started.
func exit(code int) {
	if pid := os.Getpid(); pid == syscall.Getpgrp() {
		_ = syscall.Kill(-pid, syscall.SIGKILL)
	}
	os.Exit(code)
}

// oneByte reads one byte at a time, so that no buffer reads ahead.
type oneByte struct{ f *os.File }

func (r oneByte) Read(p []byte) (int, error) { return r.f.Read(p[:min(len(p), 1)]) }

// serve calls the guest for each event until it has to sleep.
func serve(h *host.Host, g guest, deadline time.Duration) error {
	b := bindings{h}
	for {
		next := h.Wait(deadline)
		switch {
		case next.Wake != nil:
			if err := g.OnWake(next.Wake.Reason); err != nil {
				return err
			}
		case next.Event != nil:
			seq := map[string]any{"seq": next.Event.Seq}
			method := "checkpoint"
			if err := inTime(g, *next.Event, deadline); err != nil {
				method, seq["message"] = "fail", err.Error()
			}
			if err := b.call(agent.Host, method, seq, nil); err != nil {
				// The host has reported the error.
				continue
			}
		case h.Asleep():
			return g.OnSleep()
		case next.Type == "sleep":
			// An event has failed: end without OnSleep.
			return nil
		}
	}
}

func inTime(g guest, e agent.Event, deadline time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	return g.OnEvent(ctx, e)
}

// bindings makes calls to the host for a guest in this process.
type bindings struct{ h *host.Host }

// call calls a method of a binding and decodes its result into result, unless that is nil.
func (b bindings) call(binding, method string, params, result any) error {
	text, err := json.Marshal(params)
	if err != nil {
		return err
	}
	answer := b.h.Call(binding, method, text)
	defer answer.Close()
	if text, err = io.ReadAll(answer); err != nil {
		return err
	}
	var said struct {
		Result json.RawMessage `json:"result"`
		Error  *agent.Error    `json:"error"`
	}
	if err := json.Unmarshal(text, &said); err != nil {
		return err
	}
	if said.Error != nil {
		return said.Error
	}
	if result == nil || bytes.Equal(said.Result, []byte("null")) {
		return nil
	}
	return json.Unmarshal(said.Result, result)
}

// run executes an SQL statement in the agent's database.
func (b bindings) run(sql string, params ...any) error {
	if params == nil {
		params = []any{}
	}
	return b.call(agent.Storage, "run", map[string]any{"sql": sql, "params": params}, nil)
}
