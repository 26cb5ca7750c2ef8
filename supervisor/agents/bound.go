package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/supervisor/stdio"
)

// A grant is a binding that a loaded program has, given in its env. Exactly one field is set.
type grant struct {
	// Binding is agent.AI, which gives the program the models of the agent. The name is AI, too.
	Binding string `json:"binding,omitempty"`
	// Facet names a facet of the agent. The binding has the facet's methods.
	Facet string `json:"facet,omitempty"`
	// Gatekeeper names a gatekeeper of the agent. The binding has describe, read and propose.
	Gatekeeper string `json:"gatekeeper,omitempty"`
}

// grantOf decodes and checks the grant that env has under this name.
func grantOf(name string, raw json.RawMessage) (g grant, err error) {
	if err := agent.Params(raw, &g); err != nil {
		return g, err
	}
	given := slices.DeleteFunc([]string{g.Binding, g.Facet, g.Gatekeeper},
		func(v string) bool { return v == "" })
	switch {
	case len(given) != 1:
		return g, errors.New("want one of binding, facet and gatekeeper")
	case g.Binding != "" && (g.Binding != agent.AI || name != agent.AI):
		return g, fmt.Errorf(`binding: only models can be given, as %q: {"binding": %q}; give a facet `+
			"for what else the agent has", agent.AI, agent.AI)
	case g.Binding == "" && slices.Contains(agent.Bindings, name):
		return g, fmt.Errorf("the name is that of a binding of agents, of %s",
			strings.Join(agent.Bindings, ", "))
	}
	return g, nil
}

// mayGrant returns an error for bindings that the agent itself does not have. With bindings, the
// call must belong to an event: then a replay of the event does not repeat the program's calls.
func (c *calls) mayGrant(ctx context.Context, call agent.Call, grants map[string]grant) error {
	if len(grants) > 0 && call.Key == "" {
		return agent.Errorf(agent.ErrNoEvent, "load: there is no event, and the calls of a "+
			"program that has bindings belong to one")
	}
	for name, g := range grants {
		none := agent.Errorf(agent.ErrNoBinding, "load: env %q: the agent has no such binding "+
			"itself", name)
		switch {
		case g.Facet != "":
			if _, err := c.find(ctx, g.Facet); err != nil {
				return err
			}
		case g.Gatekeeper != "" && !slices.Contains(c.r.m.Capabilities.Gatekeepers, g.Gatekeeper),
			g.Binding != "" && !slices.Contains(c.r.m.Bindings(), g.Binding):
			return none
		}
	}
	return nil
}

// bound is a loaded program that has bindings.
type bound struct {
	grants map[string]grant
	// key is the key of the call that loads the program, calls the number of the program's calls.
	key   string
	calls atomic.Int64
}

// errOutput ends a program that writes more than MaxLoadOutput.
var errOutput = errors.New("it writes more than its bound")

// loadBound runs a program that has bindings, answers its calls and returns its result.
func (c *calls) loadBound(ctx context.Context, l Load, of *bound) (Loaded, error) {
	ctx, kill := context.WithCancelCause(ctx)
	defer kill(errAsked)
	state, err := os.MkdirTemp(c.r.a.o.State, loadPrefix)
	if err != nil {
		return Loaded{}, err
	}
	defer os.RemoveAll(state)
	r := &run{a: c.r.a, from: c.r.from, m: c.r.m, l: c.r.l, kill: kill,
		orders: make(chan agent.Order, mostCalls), reports: make(chan agent.Report, mostCalls)}
	r.calls = newCalls(ctx, r)
	r.calls.of = of
	defer r.calls.work.Wait()
	defer kill(errAsked)
	out := r.receive(ctx)
	enough := make(chan struct{})
	l.State, l.Orders, l.Enough = state, &Orders{newOrders(ctx, r.orders), out}, enough
	l.Models = of.grants[agent.AI].Binding != ""
	var done Loaded
	ended := make(chan error, 1)
	go func() {
		var err error
		done, err = c.r.a.o.Jails.Load(ctx, l)
		out.Close()
		ended <- err
	}()
	stdout, stderr := &stdio.Kept{Most: MaxLoadOutput}, &stdio.Kept{Most: MaxLoadOutput}
	over := false
	for report := range r.reports {
		if over {
			continue
		}
		switch failure := r.calls.ofProgram(report, stdout, stderr); {
		case errors.Is(failure, errOutput):
			over = true
			close(enough)
		case failure != nil:
			kill(failure)
		}
	}
	err = <-ended
	done.Stdout, done.Stderr = stdout.String(), stderr.String()
	switch why := context.Cause(ctx); {
	case err != nil && why != nil:
		err = why
	case err == nil && over:
		done.ExitCode, done.Limit = exitKilled, limitOutput
	}
	return done, err
}

// The result of a program that was ended because of its output, the same as jaild returns.
const (
	exitKilled  = 137
	limitOutput = "output"
)

// ofProgram handles a report of a program that runs once: a call or output.
func (c *calls) ofProgram(report agent.Report, stdout, stderr *stdio.Kept) error {
	switch {
	case report.Call != nil:
		if failure := c.take(*report.Call); failure != nil {
			return errors.New(failure.why)
		}
	case report.Output != nil:
		to := stdout
		if report.Output.Err {
			to = stderr
		}
		to.Write(report.Output.Data)
		if stdout.Cut || stderr.Cut || stdout.Len()+stderr.Len() > MaxLoadOutput {
			return errOutput
		}
	default:
		return errors.New("its jail breaks the protocol: it reports what no program has")
	}
	return nil
}

// bound answers a call of a loaded program. The program can call only the bindings in its grants.
func (c *calls) bound(ctx context.Context, call agent.Call) (any, error) {
	g, ok := c.of.grants[call.Binding]
	if !ok {
		return nil, agent.Errorf(agent.ErrNoBinding, "there is no binding %.40q: env of load "+
			"names those that there are", call.Binding)
	}
	call.Key = fmt.Sprintf("%s/%d", c.of.key, c.of.calls.Add(1))
	if g.Facet != "" {
		i, err := c.find(ctx, g.Facet)
		if err != nil {
			return nil, err
		}
		return c.ask(ctx, i, call.Key, map[string]any{"method": call.Method, "args": call.Params})
	}
	if g.Gatekeeper != "" {
		return c.gateOf(ctx, g.Gatekeeper, call)
	}
	switch call.Method {
	case "listRoles":
		return c.listRoles(ctx)
	case "streamText":
		return c.streamText(ctx, call)
	}
	return nil, noMethod(call)
}

func noMethod(call agent.Call) error {
	return agent.Errorf(agent.ErrNoMethod, "the binding %.40q has no method %.40q", call.Binding,
		call.Method)
}

// gateOf answers a loaded program's call of a gatekeeper binding.
func (c *calls) gateOf(ctx context.Context, gatekeeper string, call agent.Call) (any, error) {
	method, ok := map[string]string{"describe": "gatekeepers", "read": "gateRead",
		"propose": "gatePropose"}[call.Method]
	if !ok {
		return nil, noMethod(call)
	}
	var p gateCall
	if err := agent.Params(call.Params, &p); err != nil {
		return nil, err
	}
	if p.Gatekeeper != "" {
		return nil, agent.Errorf(agent.ErrParams, "parameters: the binding is one gatekeeper, "+
			"and names none")
	}
	p.Gatekeeper, call.Method = gatekeeper, method
	return c.gate(ctx, call, p)
}
