package agents

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/supervisor/agents/manifest"
	"github.com/jail-sandbox/jail/supervisor/agents/store"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// Limits of the calls and log lines of an awake agent.
const (
	// mostCalls is how many calls are answered at a time.
	mostCalls = 16
	// mostTools is how many tools run at a time, each with memory and processes beside the agent's.
	mostTools = 4
	// mostLines is the burst of log lines that are kept, linesSecond their rate per second.
	mostLines   = 200
	linesSecond = 20
	maxLine     = 2 << 10
	// maxResults bounds the JSON of a result that is sent in parts.
	maxResults = 2 << 20
)

// calls answers the calls of one run. Each call has a goroutine, so that a slow model delays
// neither events nor other calls.
type calls struct {
	ctx  context.Context
	r    *run
	work sync.WaitGroup
	free chan struct{}
	// tools is a semaphore for running tools.
	tools chan struct{}
	// lines is how many log lines were left at the time below.
	lines float64
	since time.Time
	// parts are the received parts of incomplete calls, by call id.
	parts map[uint64][]byte
	// of is the loaded program that makes the calls, nil for the agent itself.
	of *bound
}

func newCalls(ctx context.Context, r *run) *calls {
	return &calls{ctx: ctx, r: r, free: make(chan struct{}, mostCalls),
		tools: make(chan struct{}, mostTools), lines: mostLines, since: time.Now(),
		parts: map[uint64][]byte{}}
}

// take takes a call or a part of one, and answers the call once it is complete.
func (c *calls) take(call agent.Call) *cause {
	if call.More || len(call.Part) > 0 {
		all, held := append(c.parts[call.ID], call.Part...), 0
		for id, part := range c.parts {
			if id != call.ID {
				held += len(part)
			}
		}
		if held += len(all); held > 2*agent.MaxLoad || len(c.parts) > mostCalls {
			return nonsense("it sends calls of %d bytes", held)
		}
		if c.parts[call.ID] = all; call.More {
			return nil
		}
		delete(c.parts, call.ID)
		call.Params = all
	}
	if len(call.Params) > agent.MaxParamsOf(call.Binding, call.Method) {
		return nonsense("it sends parameters of %d bytes", len(call.Params))
	}
	c.begin(call)
	return nil
}

// begin starts a goroutine that answers a call.
func (c *calls) begin(call agent.Call) {
	select {
	case c.free <- struct{}{}:
	default:
		c.work.Go(func() {
			c.answer(call, nil, agent.Errorf(agent.ErrBusy, "%d calls are under way, more than "+
				"that are not answered", mostCalls))
		})
		return
	}
	c.work.Go(func() {
		defer func() { <-c.free }()
		result, err := c.call(call)
		c.answer(call, result, err)
	})
}

// answer sends the result or error of a call as its last reply, in parts if it is large.
func (c *calls) answer(call agent.Call, result any, err error) {
	reply := &agent.Reply{ID: call.ID}
	if err == nil && result != nil {
		reply.Result, err = json.Marshal(result)
	}
	for err == nil && len(reply.Result) > agent.MaxParams && len(reply.Result) <= maxResults {
		// The host joins the parts.
		c.r.order(c.ctx, agent.Order{Reply: &agent.Reply{ID: call.ID, More: true,
			Chunk: reply.Result[:agent.MaxParams]}})
		if reply.Result = reply.Result[agent.MaxParams:]; len(reply.Result) <= agent.MaxParams {
			reply.Chunk, reply.Result = reply.Result, nil
		}
	}
	if err == nil && len(reply.Result) > agent.MaxParams {
		err = agent.Errorf(agent.ErrTooLarge, "the result has %d bytes, more than %d",
			len(reply.Result), agent.MaxParams)
	}
	if err != nil {
		if ofHost(err) {
			c.r.a.o.Log.Warn("a call of an agent failed", "instance", c.r.from.Name, "method",
				call.Binding+"."+call.Method, "error", err)
		}
		reply.Result, reply.Error = nil, asError(err)
	}
	c.r.order(c.ctx, agent.Order{Reply: reply})
}

// asError converts an error for the guest, without paths of the host.
func asError(err error) *agent.Error {
	if e, ok := errors.AsType[*agent.Error](err); ok {
		return e
	}
	code := agent.ErrFailed
	switch {
	case errors.Is(err, ErrNoJail):
		return agent.Errorf(agent.ErrBusy, "no jail can be had now: call again later")
	case errors.Is(err, ErrWrong):
		return agent.Errorf(code, "the files of an agent are wrong: its owner can check them")
	case ofHost(err):
		return agent.Errorf(code, "jail failed: the log of jail-agentd says why")
	case errors.Is(err, store.ErrTooMany):
		code = agent.ErrTooLarge
	case errors.Is(err, store.ErrDeleting):
		code = agent.ErrBusy
	case errors.Is(err, store.ErrNotFound):
		code = agent.ErrNotFound
	case errors.Is(err, store.ErrFull):
		code = agent.ErrBusy
	case errors.Is(err, store.ErrTooLarge):
		code = agent.ErrTooLarge
	case errors.Is(err, context.DeadlineExceeded):
		code = agent.ErrDeadline
	}
	return agent.Errorf(code, "%v", err)
}

// ofHost reports whether an error is about the host and not about the agent's request. Its text may
// hold paths of the host, so it goes only to the log.
func ofHost(err error) bool {
	if e, ok := errors.AsType[*problem.Error](err); ok && !errors.Is(err, ErrNoJail) {
		return !slices.Contains([]string{problem.Usage, problem.Refused, problem.NotFound,
			problem.ApprovalPending}, e.Code)
	}
	_, file := errors.AsType[*fs.PathError](err)
	_, files := errors.AsType[*os.LinkError](err)
	return file || files || errors.Is(err, ErrNoJail) || errors.Is(err, ErrWrong)
}

// call does a call and returns its result. It checks again that the manifest allows the call, since
// the check of the agent's jail is not trusted.
func (c *calls) call(call agent.Call) (any, error) {
	ctx, cancel := context.WithTimeout(c.ctx, c.r.m.Wake.Deadline)
	defer cancel()
	if c.of != nil {
		return c.bound(ctx, call)
	}
	// A key of another agent's call would give access to that call's answer.
	if own := c.r.a.Store.AgentID(store.PathOf(c.r.from)) + "/"; call.Key != "" &&
		(!strings.HasPrefix(call.Key, own) || len(call.Key) > 8*agent.MaxName) {
		return nil, agent.Errorf(agent.ErrParams, "the key of the call is none of the agent's own")
	}
	if !slices.Contains(c.r.m.Bindings(), call.Binding) {
		return nil, agent.Errorf(agent.ErrNoBinding, "there is no binding %.40q: write it into "+
			"[capabilities] of the manifest, or into bindings of a facet", call.Binding)
	}
	if m, ok := methods[call.Binding+"."+call.Method]; ok {
		return m(c, ctx, call)
	}
	return nil, agent.Errorf(agent.ErrNoMethod, "the binding %.40q has no method %.40q that "+
		"jail-agentd answers", call.Binding, call.Method)
}

// A method answers a call of an agent and returns the result.
type method func(c *calls, ctx context.Context, call agent.Call) (any, error)

// with returns a method that decodes its parameters into a T and calls do.
func with[T any](do func(c *calls, ctx context.Context, call agent.Call, p T) (any, error)) method {
	return func(c *calls, ctx context.Context, call agent.Call) (any, error) {
		var p T
		if err := agent.Params(call.Params, &p); err != nil {
			return nil, err
		}
		return do(c, ctx, call, p)
	}
}

// without returns a method that takes no parameters and calls do.
func without(do func(c *calls, ctx context.Context) (any, error)) method {
	return with(func(c *calls, ctx context.Context, _ agent.Call, _ struct{}) (any, error) {
		return do(c, ctx)
	})
}

// methods are the methods that jail-agentd answers. They are set by init, since a method that loads
// a program answers the program's calls with this table.
var methods map[string]method

func init() {
	methods = map[string]method{
		"HOST.facet":                  parents(with((*calls).facet)),
		"HOST.facets":                 parents(without((*calls).facets)),
		"HOST.callFacets":             parents(with((*calls).callFacets)),
		"HOST.abortFacet":             parents(with((*calls).abortFacet)),
		"HOST.deleteFacet":            parents(with((*calls).deleteFacet)),
		"HOST." + agent.MethodLoad:    parents(with((*calls).load)),
		"HOST." + agent.MethodCommand: toolUsers(with((*calls).command)),
		"HOST." + agent.MethodPropose: toolUsers(with((*calls).changes)),
		"HOST." + agent.MethodDiscard: toolUsers(with((*calls).changes)),
		"HOST.gatekeepers":            with((*calls).gate),
		"HOST.gateRead":               with((*calls).gate),
		"HOST.gatePropose":            with((*calls).gate),
		"PUBSUB.roster":               without((*calls).roster),
		"PUBSUB.getSettings":          without((*calls).settings),
		"PUBSUB.discoverMethodDefs":   without((*calls).discover),
		"PUBSUB.callMethod":           with((*calls).callMethod),
		"AI.listRoles":                without((*calls).listRoles),
		"AI.streamText":               (*calls).streamText,
	}
}

// A peer describes a member of the channel to an agent.
type peer struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Handle string `json:"handle"`
	State  string `json:"state"`
	Note   string `json:"note,omitempty"`
	Self   bool   `json:"self,omitempty"`
}

func (c *calls) roster(ctx context.Context) (any, error) {
	members, err := c.r.a.Store.Members(ctx, c.r.from.Channel)
	peers := []peer{}
	for _, m := range members {
		peers = append(peers, peer{c.r.a.Store.AgentID(m.Agent), m.Agent, m.Handle,
			c.r.a.StateOf(m), m.Note, m.ID == c.r.from.ID})
	}
	return peers, err
}

// An offer is a method that an agent offers to other agents on its channels. The list methods in
// the config table of its manifest declares them.
type offer struct {
	ProviderID  string          `json:"providerId"`
	MethodName  string          `json:"methodName"`
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"schema,omitempty"`
}

// offered returns the methods that an agent offers. A gatekeeper offers none to other agents.
func offered(m manifest.Manifest) []offer {
	if m.Capabilities.Gatekeeper {
		return nil
	}
	var config struct {
		Methods []struct {
			Name        string          `json:"name"`
			Description string          `json:"description"`
			Schema      json.RawMessage `json:"schema"`
		} `json:"methods"`
	}
	// Ignore a config with other contents.
	if json.Unmarshal(m.Config, &config) != nil {
		return nil
	}
	var all []offer
	for _, d := range config.Methods {
		all = append(all, offer{m.Name, d.Name, d.Description, d.Schema})
	}
	return all
}

func (c *calls) settings(ctx context.Context) (any, error) {
	return c.r.a.Store.Settings(ctx, c.r.from.Channel)
}

func (c *calls) discover(ctx context.Context) (any, error) {
	members, err := c.r.a.Store.Members(ctx, c.r.from.Channel)
	all := []offer{}
	for _, member := range members {
		if member.ID == c.r.from.ID {
			continue
		}
		// Skip an agent whose manifest is invalid.
		if m, _, err := c.r.a.manifest(member.Agent, member.Channel); err == nil {
			all = append(all, offered(m)...)
		}
	}
	return all, err
}

// callMethod sends a TypeCall event to the agent that offers the method, and waits for the
// TypeResult message that answers it. The event's id is the key of the call, so a call that a
// replayed event repeats is done once.
func (c *calls) callMethod(ctx context.Context, call agent.Call, p struct {
	ProviderID string          `json:"providerId"`
	MethodName string          `json:"methodName"`
	Args       json.RawMessage `json:"args"`
}) (any, error) {
	if call.Key == "" {
		return nil, agent.Errorf(agent.ErrNoEvent, "there is no event: a call of another agent's "+
			"method belongs to one, so that the same event makes it once")
	}
	members, err := c.r.a.Store.Members(ctx, c.r.from.Channel)
	if err != nil {
		return nil, err
	}
	for _, member := range members {
		if member.Agent != p.ProviderID || member.ID == c.r.from.ID {
			continue
		}
		m, _, err := c.r.a.manifest(member.Agent, member.Channel)
		if err != nil {
			return nil, err
		}
		for _, o := range offered(m) {
			if o.MethodName == p.MethodName {
				return c.ask(ctx, member, call.Key, map[string]any{"method": p.MethodName,
					"args": p.Args})
			}
		}
	}
	return nil, agent.Errorf(agent.ErrNotFound, "no agent %.60q on channel %q offers a method "+
		"%.60q: discoverMethodDefs lists them", p.ProviderID, c.r.from.Channel, p.MethodName)
}

// ask calls a method of another instance for the agent and returns its result.
func (c *calls) ask(ctx context.Context, provider store.Instance, key string,
	what any) (any, error) {
	return asked(ctx, c.r.a, provider, agent.Event{ID: key, Channel: c.r.from.Channel,
		Source: c.r.a.Store.AgentID(store.PathOf(c.r.from))}, what)
}

// asked sends e, a TypeCall event, to an instance and waits for the answer. An event with the same
// source and id is delivered once.
func asked(ctx context.Context, a *Agents, provider store.Instance, e agent.Event,
	what any) (json.RawMessage, error) {
	key := e.ID
	var err error
	if e.Data, err = json.Marshal(what); err != nil {
		return nil, err
	}
	e.Type = agent.TypeCall
	if _, err := a.Send(provider.ID, e); err != nil {
		return nil, err
	}
	for {
		changed := a.Changed(provider.ID)
		answer, err := a.Store.Answer(ctx, provider.ID, key, agent.TypeResult)
		if err == nil {
			return answer.Data, nil
		}
		if !errors.Is(err, store.ErrNotFound) {
			return nil, err
		}
		who := store.PathOf(provider)
		switch why, err := store.ChildrenOf(a.Store).Lost(ctx, provider.ID, key); {
		case err == nil && strings.HasPrefix(why, abortedBy):
			return nil, agent.Errorf(agent.ErrAborted, "%s", why)
		case err == nil:
			return nil, agent.Errorf(agent.ErrFailed, "agent %q failed: %s", who, withoutDirs(a, why))
		case !errors.Is(err, store.ErrNotFound):
			return nil, err
		}
		switch now, err := a.Store.Instance(ctx, provider.ID); {
		case errors.Is(err, store.ErrNotFound):
			return nil, agent.Errorf(agent.ErrAborted, "agent %q is deleted", who)
		case err == nil && now.State == store.Failed:
			return nil, agent.Errorf(agent.ErrFailed, "agent %q has failed, and is not woken: %s",
				who, withoutDirs(a, now.Error))
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, agent.Errorf(agent.ErrDeadline, "agent %q has not answered", who)
		}
	}
}

// withoutDirs removes the host's directories of agents from the reason why an agent failed, so that
// another agent may see it.
func withoutDirs(a *Agents, why string) string {
	return strings.NewReplacer(a.o.State+"/", "", a.o.Folder+"/", "").Replace(why)
}

// log stores a log line of the agent, unless the agent logs too many.
func (c *calls) log(l agent.Log) {
	now := time.Now()
	c.lines = min(mostLines, c.lines+linesSecond*now.Sub(c.since).Seconds())
	c.since = now
	if c.lines < 1 {
		return
	}
	if c.lines--; c.lines < 1 {
		l.Message = "further lines are left out: there are too many of them"
	}
	if l.Level != "warn" && l.Level != "error" {
		l.Level = "info"
	}
	if len(l.Message) > maxLine {
		l.Message = l.Message[:maxLine]
	}
	if err := c.r.a.Note(c.r.from, l.Level, l.Message); err != nil {
		c.r.a.o.Log.Error("a line of an agent is not noted", "error", err)
	}
}

// Note adds a line to the log of an instance, which is listed with its publications.
func (a *Agents) Note(i store.Instance, level, message string) error {
	err := a.Store.Log(i.ID, agent.Log{Level: level, Message: message})
	a.pulse.beat(i.ID, Anyone)
	return err
}
