package console

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/supervisor/agents/agentapi"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// fakeAgents are agents of the tests' own, each text of which is says.
type fakeAgents struct {
	says string
	// counted are the channels whose tables were counted.
	counted *[]string
}

func (f fakeAgents) Close() {}

func (f fakeAgents) one(name string) agentapi.Agent {
	return agentapi.Agent{Name: name, ID: "agent:ann:" + f.says, State: f.says, About: f.says,
		Problem: f.says, Dir: "/" + f.says, Digest: f.says, Instances: []agentapi.Instance{{
			Instance: f.says, Agent: name, Channel: f.says, State: f.says, Note: f.says, Error: f.says,
			Waiting: 1, Dead: 1, Memory: 5 << 20, Alarms: []agentapi.Alarm{{Name: f.says}}},
			{Agent: name, Channel: "team", Facet: "rooms/" + f.says, State: f.says, Note: f.says,
				Committed: 31}, {Agent: name, Channel: "team", Facet: "mail"}},
		Tokens: agentapi.Tokens{Input: 7, Output: 5, Limit: 100}}
}

func (f fakeAgents) List(context.Context) ([]agentapi.Agent, error) {
	return []agentapi.Agent{f.one("a"), {Name: "claude-code-responder",
		State: agentapi.Available, Builtin: true, Runtime: "host"}}, nil
}

func (f fakeAgents) Status(_ context.Context, name string) (agentapi.Agent, error) {
	if name != "a" {
		return agentapi.Agent{}, problem.New(problem.NotFound, "agent %q: there is none", name)
	}
	return f.one(name), nil
}

func (f fakeAgents) Events(context.Context, string) (agentapi.Events, error) {
	data, err := json.Marshal(f.says)
	e := agentapi.Event{Event: agent.Event{Seq: 12, Source: f.says, Type: f.says, Data: data},
		Instance: f.says, Reason: f.says}
	return agentapi.Events{Waiting: []agentapi.Event{e}, Dead: []agentapi.Event{e}}, err
}

func (f fakeAgents) Log(_ context.Context, _ string, _ int64, _ bool,
	each func(agentapi.Publication) error) error {
	for n := range maxPublished + 10 {
		data, err := json.Marshal(map[string]any{"n": n, "says": f.says})
		if err == nil {
			err = each(agentapi.Publication{Channel: f.says, To: f.says, Type: f.says, Data: data})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (f fakeAgents) Tables(_ context.Context, _, channel string) (map[string]int64, error) {
	*f.counted = append(*f.counted, channel)
	return map[string]int64{f.says: 42}, nil
}

func agentsOf(says string, counted *[]string) func(context.Context) (Agents, error) {
	return func(context.Context) (Agents, error) { return fakeAgents{says, counted}, nil }
}

// A page of an agent has its state, inbox, messages, tokens, tables and children.
func TestAgentPages(t *testing.T) {
	var counted []string
	c := newClient(t, Options{Agents: agentsOf("hello", &counted)})
	for path, want := range map[string][]string{
		"/agents": {`/agents/a"`, "in no jail, with your rights"},
		"/agents/a": {"agent:ann:hello", "7 in, 5 out, of 100", "5 MiB", "Dead letters",
			`{&#34;n&#34;:59,`, "Children", "rooms/hello", "31", "Count rows"},
	} {
		body := c.get(path).Body.String()
		_, children, _ := strings.Cut(body, "<h2>Children</h2>")
		if path == "/agents/a" && (strings.Count(body, "Count rows") != 1 ||
			strings.Index(children, ">mail<") > strings.Index(children, "rooms/hello")) {
			t.Errorf("%s: the children are among the instances, or in no order\n%s", path, body)
		}
		for _, part := range want {
			if !strings.Contains(body, part) {
				t.Errorf("%s: no %s in\n%s", path, part, body)
			}
		}
		if strings.Contains(body, `{&#34;n&#34;:9,`) {
			t.Errorf("%s: more than the last messages", path)
		}
	}
	if o := c.get("/agents/none"); o.Code != 404 || !strings.Contains(o.Body.String(), "there is none") {
		t.Errorf("an agent that is not there: %d", o.Code)
	}
	// A look wakes no agent: its tables are counted by a form alone.
	if len(counted) != 0 {
		t.Errorf("tables were counted: %q", counted)
	}
	if o := c.get("/agents/a/tables"); o.Code != 405 && o.Code != 404 {
		t.Errorf("tables by a link: %d", o.Code)
	}
	o := c.post("/agents/a/tables", url.Values{"channel": {"team"}})
	if body := o.Body.String(); o.Code != 200 || !strings.Contains(body, "42") || len(counted) != 1 ||
		counted[0] != "team" || !strings.Contains(body, "Tables on channel team") {
		t.Errorf("%d %q", o.Code, counted)
	}
	if o := newClient(t, Options{}).get("/agents"); o.Code != 404 {
		t.Errorf("a console without agents: %d", o.Code)
	}
}
