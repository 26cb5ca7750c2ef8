package console

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/jail-sandbox/jail/supervisor/agents/agentapi"
)

// Bounds of the lists on an agent's page.
const (
	maxAgents    = 500
	maxEvents    = 50
	maxPublished = 50
	maxChildren  = 200
	// maxData bounds the bytes of an event's data that are shown.
	maxData = 300
)

// Agents has the reviewer's agents. An *agentapi.Client is one.
type Agents interface {
	List(ctx context.Context) ([]agentapi.Agent, error)
	Status(ctx context.Context, name string) (agentapi.Agent, error)
	Events(ctx context.Context, name string) (agentapi.Events, error)
	Log(ctx context.Context, name string, after int64, follow bool,
		f func(agentapi.Publication) error) error
	Tables(ctx context.Context, name, channel string) (map[string]int64, error)
	Close()
}

// noAgents is the notice of a console without agents.
var noAgents = notice{Title: "No agents", Text: "This console was started without agents."}

type agentPages struct{ c *Console }

// all answers with the list of the reviewer's agents.
func (p agentPages) all(r *http.Request, s *session) (answer, error) {
	return p.with(r, s, func(a Agents) (answer, error) {
		all, err := a.List(r.Context())
		var list agentList
		list.Agents, list.Skipped = clip(all, maxAgents)
		return answer{http.StatusOK, "agents.html", s.page("Agents", "agents", list)}, err
	})
}

// agentList is the body of the page with all agents.
type agentList struct {
	Agents  []agentapi.Agent
	Skipped int
}

type agentPage struct {
	agentapi.Agent
	Waiting, Dead []agentapi.Event
	// MoreWaiting and MoreDead count the events that are not shown.
	MoreWaiting, MoreDead int
	// Published are the last messages, the newest first.
	Published []agentapi.Publication
	// Children are the instances of facets and sub-agents, which are not in Instances. MoreChildren
	// counts those that are not shown.
	Children     []agentapi.Instance
	MoreChildren int
	// Tables has the number of rows per table. It is only set when the reviewer asks for it, since
	// counting wakes the agent.
	Tables map[string]int64
	// Of is the channel that Tables are of.
	Of string
}

// one answers with the page of one agent.
func (p agentPages) one(r *http.Request, s *session) (answer, error) {
	return p.with(r, s, func(a Agents) (answer, error) { return p.show(r, s, a, nil) })
}

// tables answers with the page of an agent and its row counts, which wakes the agent.
func (p agentPages) tables(r *http.Request, s *session) (answer, error) {
	return p.with(r, s, func(a Agents) (answer, error) {
		counts, err := a.Tables(r.Context(), r.PathValue("name"), r.PostForm.Get("channel"))
		if err != nil {
			return answer{}, err
		}
		return p.show(r, s, a, counts)
	})
}

func (p agentPages) show(r *http.Request, s *session, a Agents,
	counts map[string]int64) (answer, error) {
	name := r.PathValue("name")
	one, err := a.Status(r.Context(), name)
	if err != nil {
		return answer{}, err
	}
	shown := agentPage{Agent: one, Of: r.PostForm.Get("channel"), Tables: counts}
	shown.Instances = nil
	for _, i := range one.Instances {
		if i.Facet == "" {
			shown.Instances = append(shown.Instances, i)
		} else {
			shown.Children = append(shown.Children, i)
		}
	}
	slices.SortFunc(shown.Children, func(x, y agentapi.Instance) int {
		return cmp.Or(strings.Compare(x.Channel, y.Channel), strings.Compare(x.Facet, y.Facet))
	})
	shown.Children, shown.MoreChildren = clip(shown.Children, maxChildren)
	if one.State != agentapi.Available {
		events, err := a.Events(r.Context(), name)
		if err != nil {
			return answer{}, err
		}
		shown.Waiting, shown.MoreWaiting = clip(events.Waiting, maxEvents)
		shown.Dead, shown.MoreDead = clip(events.Dead, maxEvents)
		if shown.Published, err = lastPublished(r.Context(), a, name); err != nil {
			return answer{}, err
		}
	}
	return answer{http.StatusOK, "agent.html", s.page("Agent "+text(name), "agents", shown)}, nil
}

// lastPublished returns the last messages of an agent, the newest first.
func lastPublished(ctx context.Context, a Agents, name string) (last []agentapi.Publication,
	err error) {
	err = a.Log(ctx, name, 0, false, func(p agentapi.Publication) error {
		p.Data = json.RawMessage(cut(string(p.Data), maxData))
		last = append([]agentapi.Publication{p}, last[:min(len(last), maxPublished-1)]...)
		return nil
	})
	return last, err
}

// with connects to the agents and returns the answer of f.
func (p agentPages) with(r *http.Request, s *session,
	f func(Agents) (answer, error)) (answer, error) {
	if p.c.Agents == nil {
		return s.said(http.StatusNotFound, noAgents), nil
	}
	a, err := p.c.Agents(r.Context())
	if err != nil {
		return answer{}, err
	}
	defer a.Close()
	return f(a)
}
