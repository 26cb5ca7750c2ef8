//go:build agents

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/runners/agent/host"
	"github.com/jail-sandbox/jail/runners/agent/store"
	wasiguest "github.com/jail-sandbox/jail/runners/wasi/guest"
)

// hostAgent runs the order's module or program as the guest of an agent.
func hostAgent(ctx context.Context, order runners.Order, conn *control.Conn, modules [][]byte,
	ready *wasiguest.Loaded, proxy *wasiguest.Proxy) (int, runners.Answer) {
	a := order.Agent
	if a.Once && order.Native != nil {
		return failureCode, runners.FailureAnswer(nil,
			errors.New("a program of the host is no module that runs once"))
	}
	// A read that blocks would hold a processor of the Go runtime, which then looks for work 50,000
	// times a second.
	if err := syscall.SetNonblock(0, true); err != nil {
		return failureCode, runners.FailureAnswer(nil, err)
	}
	load := loadMeanwhile(order, modules, ready)
	h, err := host.New(ctx, host.Options{ID: a.ID, Event: proxy.Event, Bindings: a.Bindings,
		Dir: a.Dir, Size: a.Size,
		Deadline: time.Duration(a.DeadlineNanos), Once: a.Once, In: os.NewFile(0, "orders"),
		Out: os.Stdout, Exit: os.Exit})
	if err != nil {
		return failureCode, runners.FailureAnswer(nil, fmt.Errorf("database of the agent: %w", err))
	}
	if !a.Once {
		wake, err := h.Wake()
		if err != nil {
			return failureCode, runners.FailureAnswer(nil, err)
		}
		order.Invocation.Env = withAgent(order.Invocation.Env, a.Bindings, wake)
	}
	streams := h.Serve()
	var code int
	var answer runners.Answer
	if order.Native != nil {
		code, answer = runNative(order, conn, proxy, streams)
	} else {
		code, answer = runGuest(ctx, order, load, h, streams)
	}
	if err := h.Close(h.Asleep() && code == 0, ended(code, answer)); err != nil {
		return failureCode, runners.FailureAnswer(answer.Report, err)
	}
	return code, answer
}

// loadMeanwhile loads an agent's module in the background, unless it is loaded or the agent is a
// program. The returned function waits for the module. No code of the module runs before.
func loadMeanwhile(order runners.Order, modules [][]byte,
	ready *wasiguest.Loaded) func() (*wasiguest.Loaded, error) {
	if ready != nil || order.Native != nil {
		return func() (*wasiguest.Loaded, error) { return ready, nil }
	}
	load := sync.OnceValues(func() (*wasiguest.Loaded, error) {
		l, err := wasiguest.Prepare(context.Background(), modules[0], order.Invocation)
		_ = syscall.Munmap(modules[0])
		modules[0] = nil
		return l, err
	})
	go load()
	return load
}

// runGuest runs a module as the guest of an agent. Its output goes to standard error; the output of
// a program that runs once is reported instead.
func runGuest(ctx context.Context, order runners.Order, load func() (*wasiguest.Loaded, error),
	h *host.Host, streams *host.Streams) (int, runners.Answer) {
	ctx = wasiguest.WithAgent(ctx, wasiguest.Agent{Host: h, Bindings: order.Agent.Imports,
		Open: streams.Open})
	loaded, err := load()
	if err != nil {
		return failureCode, runners.FailureAnswer(nil, err)
	}
	out, errOut := os.Stderr, os.Stderr
	if order.Agent.Once {
		var done func()
		var err error
		if out, errOut, done, err = h.Output(); err != nil {
			return failureCode, runners.FailureAnswer(nil, err)
		}
		defer done()
	}
	return answerOf(loaded.Run(ctx, order.Invocation, nil, out, errOut))
}

// warm uses the database engine once, before an agent needs it. An error has no effect.
func warm() { _ = store.Warm(context.Background()) }

// tidy returns unused memory of a prewarmed jail to the kernel, since an agent may be awake for
// long. It must be called before the module runs: a looping module would block the garbage
// collection.
func tidy() { debug.FreeOSMemory() }

// withAgent returns env with the variables of an agent's guest.
func withAgent(env []string, bindings []string, w agent.Wake) []string {
	config := cmp.Or(string(w.Config), "{}")
	own := []string{"AGENT_ID=" + w.AgentID, "CHANNEL=" + w.Channel, "HANDLE=" + w.Handle,
		"CONFIG=" + config, "CLASS=" + w.Class, "AGENT_BINDINGS=" + strings.Join(bindings, ",")}
	env = slices.DeleteFunc(slices.Clone(env), func(v string) bool {
		return slices.ContainsFunc(own, func(o string) bool {
			name, _, _ := strings.Cut(o, "=")
			return strings.HasPrefix(v, name+"=")
		})
	})
	return append(env, own...)
}

// ended says how the guest ended.
func ended(code int, a runners.Answer) string {
	switch {
	case a.Failure != "":
		return "the guest could not run: " + a.Failure
	case a.Report != nil && a.Report.Trap != nil:
		return "the guest has ended: " + a.Report.Trap.Sentence
	}
	return fmt.Sprintf("the guest has ended with code %d before it had committed the event", code)
}
