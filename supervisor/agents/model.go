package agents

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/supervisor/agents/manifest"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/models"
)

// API formats of model requests, as a role's manifest names them.
const (
	formMessages  = "messages"
	formChat      = "chat"
	formResponses = "responses"
)

const (
	// defaultTokens is the default of max_tokens in the messages API, which requires one.
	defaultTokens = 4096
	// maxModelError is how many bytes of a failed response a guest sees.
	maxModelError = 1 << 10
)

// roleNames returns the names of the roles, sorted. It is never nil, to be a list in JSON.
func roleNames(m manifest.Manifest) []string {
	return append([]string{}, slices.Sorted(maps.Keys(m.AI.Roles))...)
}

func (c *calls) listRoles(context.Context) (any, error) { return roleNames(c.r.m), nil }

// streamText asks the model of a role and streams the response to the agent: server-sent events in
// the format of the role's API. Parameters:
//
//	role        a name of listRoles; may be left out if there is one
//	messages    those of the API; or prompt, one text of the user's
//	system      a text
//	max_tokens  of the answer
//
// Other parameters, such as tools, are passed on unchanged. The role sets model and streaming.
func (c *calls) streamText(ctx context.Context, call agent.Call) (any, error) {
	name, params, err := roleOf(c.r.m, call.Params)
	if err != nil {
		return nil, err
	}
	role := c.r.m.AI.Roles[name]
	left, err := c.tokensLeft(ctx)
	if err != nil {
		return nil, err
	}
	body, err := requestOf(role, params, left)
	if err != nil {
		return nil, err
	}
	if c.r.a.o.Models == nil {
		return nil, agent.Errorf(agent.ErrModel, "no models can be asked here")
	}
	res, err := c.askPatiently(ctx, role, call.Key, body)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	used := &usage{form: role.Form}
	err = c.stream(ctx, call.ID, res.Body, used)
	if e := c.r.a.Store.AddTokens(c.r.from.Agent, used.input, used.output); e != nil {
		err = errors.Join(err, e)
	}
	c.r.a.record(c.r.from, audit.AgentStep{Step: audit.AgentTokens, Role: name,
		Reason: role.Model, Tokens: used.input + used.output})
	return nil, err
}

// roleOf returns the name of the role in the parameters, and the other parameters.
func roleOf(m manifest.Manifest, text []byte) (string, map[string]json.RawMessage, error) {
	var params map[string]json.RawMessage
	if err := json.Unmarshal(text, &params); err != nil || params == nil {
		return "", nil, agent.Errorf(agent.ErrParams, "the parameters are no object")
	}
	name := ""
	if names := roleNames(m); len(names) == 1 {
		name = names[0]
	}
	if given, ok := params["role"]; ok {
		if err := json.Unmarshal(given, &name); err != nil {
			return "", nil, agent.Errorf(agent.ErrParams, "role is no text")
		}
		delete(params, "role")
	}
	if _, ok := m.AI.Roles[name]; !ok {
		return "", nil, agent.Errorf(agent.ErrNotFound, "no role %.60q: the manifest has %q", name,
			roleNames(m))
	}
	return name, params, nil
}

// tokensLeft returns how many tokens are left today, negative if they are not limited.
func (c *calls) tokensLeft(ctx context.Context) (int64, error) {
	day := c.r.m.AI.TokensDay
	if day == 0 {
		return -1, nil
	}
	input, output, err := c.r.a.Store.Tokens(ctx, c.r.from.Agent)
	if err != nil {
		return 0, err
	}
	if input+output >= day {
		return 0, agent.Errorf(agent.ErrBudget, "%d of the %d tokens of today are used: "+
			"tokens_day of the manifest bounds them", input+output, day)
	}
	return day - input - output, nil
}

// requestOf returns the JSON body of a request in the API format of the role.
func requestOf(role manifest.Role, params map[string]json.RawMessage, left int64) ([]byte, error) {
	body := map[string]any{}
	for key, value := range params {
		body[key] = value
	}
	wrong := func(what string) error {
		return agent.Errorf(agent.ErrParams, "%s", what)
	}
	var messages []json.RawMessage
	if text, ok := params["messages"]; ok && json.Unmarshal(text, &messages) != nil {
		return nil, wrong("messages is no list")
	}
	if text, ok := params["prompt"]; ok {
		var prompt string
		if json.Unmarshal(text, &prompt) != nil {
			return nil, wrong("prompt is no text")
		}
		messages = append(messages, message("user", prompt))
		delete(body, "prompt")
	}
	if len(messages) == 0 {
		return nil, wrong("messages or prompt is missing")
	}
	var system string
	if text, ok := params["system"]; ok && json.Unmarshal(text, &system) != nil {
		return nil, wrong("system is no text")
	}
	var most int64
	if text, ok := params["max_tokens"]; ok && (json.Unmarshal(text, &most) != nil || most < 1) {
		return nil, wrong("max_tokens is no number from 1")
	}
	for _, bound := range []int64{role.MaxTokens, left} {
		if bound > 0 && (most == 0 || most > bound) {
			most = bound
		}
	}
	body["model"], body["stream"] = role.Model, true
	switch role.Form {
	case formMessages:
		body["messages"] = messages
		if most == 0 {
			most = defaultTokens
		}
		body["max_tokens"] = most
	case formResponses:
		delete(body, "messages")
		delete(body, "system")
		delete(body, "max_tokens")
		body["input"], body["store"] = messages, false
		if system != "" {
			body["instructions"] = system
		}
		if most > 0 {
			body["max_output_tokens"] = most
		}
	default:
		delete(body, "system")
		if system != "" {
			messages = append([]json.RawMessage{message("system", system)}, messages...)
		}
		body["messages"] = messages
		body["stream_options"] = map[string]bool{"include_usage": true}
		if most > 0 {
			body["max_tokens"] = most
		}
	}
	return json.Marshal(body)
}

func message(role, text string) json.RawMessage {
	b, err := json.Marshal(map[string]string{"role": role, "content": text})
	if err != nil {
		panic(fmt.Sprintf("bug: two texts that are not JSON: %v", err))
	}
	return b
}

// modelWaits are the pauses before retries after status 429. After 5xx there is one retry, after
// the first of these pauses.
var modelWaits = []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}

// askPatiently sends a request to the model, with three retries after status 429 and one after 5xx.
func (c *calls) askPatiently(ctx context.Context, role manifest.Role, key string,
	body []byte) (*models.Response, error) {
	busy, broken := 0, 0
	for {
		res, err := c.r.a.o.Models.Ask(ctx, role, key, body)
		if err != nil {
			return nil, agent.Errorf(agent.ErrModel, "%s", clipped(err.Error()))
		}
		if res.Status == 200 {
			return res, nil
		}
		text, err := io.ReadAll(io.LimitReader(res.Body, maxModelError))
		res.Body.Close()
		wait := time.Duration(-1)
		switch {
		case res.Status == 429 && busy < len(modelWaits):
			wait = modelWaits[busy]
			busy++
		case res.Status >= 500 && broken == 0:
			wait = modelWaits[0]
			broken++
		}
		if wait < 0 || err != nil {
			return nil, agent.Errorf(agent.ErrModel, "the model's host answered %d: %s", res.Status,
				bytes.ToValidUTF8(text, nil))
		}
		select {
		case <-time.After(scaled(wait, c.r.a.o.FirstPause)):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// scaled returns pause multiplied by first/1s, so that tests can shorten all pauses.
func scaled(pause, first time.Duration) time.Duration {
	return time.Duration(float64(pause) * first.Seconds())
}

// stream sends the body of a response to the agent as it arrives, and counts its tokens in used.
func (c *calls) stream(ctx context.Context, id uint64, body io.Reader, used *usage) error {
	part := make([]byte, 32<<10)
	for {
		n, err := body.Read(part)
		if n > 0 {
			used.take(part[:n])
			c.r.order(ctx, agent.Order{Reply: &agent.Reply{ID: id, Chunk: bytes.Clone(part[:n]),
				More: true}})
		}
		switch {
		case errors.Is(err, io.EOF):
			return ctx.Err()
		case err != nil:
			return agent.Errorf(agent.ErrModel, "%s", clipped(err.Error()))
		}
	}
}

// usage reads the token counts from a stream of server-sent events in any of the three API formats.
type usage struct {
	form          string
	line          []byte
	input, output int64
}

// maxEventLine bounds a line that usage parses. It skips longer lines.
const maxEventLine = 1 << 20

func (u *usage) take(part []byte) {
	for len(part) > 0 {
		line, rest, whole := bytes.Cut(part, []byte("\n"))
		if len(u.line)+len(line) <= maxEventLine {
			u.line = append(u.line, line...)
		}
		if part = rest; whole {
			u.read(u.line)
			u.line = u.line[:0]
		}
	}
}

func (u *usage) read(line []byte) {
	data, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("data:"))
	if !ok || !bytes.Contains(data, []byte(`"usage"`)) {
		return
	}
	type counts struct {
		InputTokens      int64 `json:"input_tokens"`
		OutputTokens     int64 `json:"output_tokens"`
		CacheCreation    int64 `json:"cache_creation_input_tokens"`
		CacheRead        int64 `json:"cache_read_input_tokens"`
		PromptTokens     int64 `json:"prompt_tokens"`
		CompletionTokens int64 `json:"completion_tokens"`
	}
	var event struct {
		Usage    counts                 `json:"usage"`
		Message  struct{ Usage counts } `json:"message"`
		Response struct{ Usage counts } `json:"response"`
	}
	if json.Unmarshal(data, &event) != nil {
		return
	}
	for _, n := range []counts{event.Usage, event.Message.Usage, event.Response.Usage} {
		// Each event has the totals so far.
		u.input = max(u.input, n.InputTokens+n.CacheCreation+n.CacheRead, n.PromptTokens)
		u.output = max(u.output, n.OutputTokens, n.CompletionTokens)
	}
}
