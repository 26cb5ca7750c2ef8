package console

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/jail-sandbox/jail/supervisor/agents/agentapi"
)

// Bounds of what a page of an agent shows.
const (
	maxAgents    = 500
	maxEvents    = 50
	maxPublished = 50
	// maxData is how many bytes of the data of an event are shown.
	maxData = 300
)

// Agents are those of the reviewer. An *agentapi.Client is one.
type Agents interface {
	List(ctx context.Context) ([]agentapi.Agent, error)
	Status(ctx context.Context, name string) (agentapi.Agent, error)
	Events(ctx context.Context, name string) (agentapi.Events, error)
	Log(ctx context.Context, name string, after int64, follow bool,
		f func(agentapi.Publication) error) error
	Tables(ctx context.Context, name, channel string) (map[string]int64, error)
	Close()
}

// noAgents is shown where the console knows of no agents.
var noAgents = notice{Title: "No agents", Text: "This console was started without agents."}

// agents lists the agents of the reviewer.
func (c *Console) agents(w http.ResponseWriter, r *http.Request, s *session) {
	c.withAgents(w, r, s, func(a Agents) error {
		all, err := a.List(r.Context())
		if err != nil {
			return err
		}
		list := agentList{Agents: all[:min(len(all), maxAgents)],
			Skipped: max(len(all)-maxAgents, 0)}
		c.show(w, http.StatusOK, "agents.html", s.page("Agents", "agents", list))
		return nil
	})
}

// agentList is the page of all agents.
type agentList struct {
	Agents  []agentapi.Agent
	Skipped int
}

// agentRows are the rows of agents in a table, as two pages have it.
type agentRows struct {
	Base   string
	Agents []agentapi.Agent
}

// agentPage is the page of one agent.
type agentPage struct {
	agentapi.Agent
	Waiting, Dead []eventShown
	// MoreWaiting and MoreDead count the events that are not listed.
	MoreWaiting, MoreDead int
	// Published are the last messages, the newest first.
	Published []publicationShown
	Children  []agentapi.Agent
	// Tables are counted only when the reviewer asks for that, since it wakes the agent.
	Tables []tableShown
	// Of is the channel whose tables are shown.
	Of string
}

type eventShown struct {
	Seq                         uint64
	Instance, Type, Source, Why string
	Time                        time.Time
	Attempt                     int
	Data                        string
}

type publicationShown struct {
	Time              time.Time
	Channel, To, Type string
	Data              string
}

type tableShown struct {
	Name string
	Rows int64
}

// agent shows one agent.
func (c *Console) agent(w http.ResponseWriter, r *http.Request, s *session) {
	c.withAgents(w, r, s, func(a Agents) error { return c.showAgent(w, r, s, a, nil) })
}

// tables counts the rows of an agent's tables, which wakes the agent.
func (c *Console) tables(w http.ResponseWriter, r *http.Request, s *session) {
	c.withAgents(w, r, s, func(a Agents) error {
		counts, err := a.Tables(r.Context(), r.PathValue("name"), r.PostForm.Get("channel"))
		if err != nil {
			return err
		}
		return c.showAgent(w, r, s, a, counts)
	})
}

func (c *Console) showAgent(w http.ResponseWriter, r *http.Request, s *session, a Agents,
	counts map[string]int64) error {
	name := r.PathValue("name")
	one, err := a.Status(r.Context(), name)
	if err != nil {
		return err
	}
	p := agentPage{Agent: one, Of: r.PostForm.Get("channel")}
	all, err := a.List(r.Context())
	if err != nil {
		return err
	}
	for _, other := range all {
		if strings.HasPrefix(other.Name, name+"/") {
			p.Children = append(p.Children, other)
		}
	}
	if one.State != agentapi.Available {
		events, err := a.Events(r.Context(), name)
		if err != nil {
			return err
		}
		p.Waiting, p.MoreWaiting = shownEvents(events.Waiting)
		p.Dead, p.MoreDead = shownEvents(events.Dead)
		if p.Published, err = lastPublished(r.Context(), a, name); err != nil {
			return err
		}
	}
	for _, table := range slices.Sorted(maps.Keys(counts)) {
		p.Tables = append(p.Tables, tableShown{table, counts[table]})
	}
	c.show(w, http.StatusOK, "agent.html", s.page("Agent "+text(name), "agents", p))
	return nil
}

func shownEvents(all []agentapi.Event) (shown []eventShown, more int) {
	for _, e := range all[:min(len(all), maxEvents)] {
		shown = append(shown, eventShown{Seq: e.Seq, Instance: e.Instance, Type: e.Type,
			Source: e.Source, Why: e.Reason, Time: e.Time, Attempt: e.Attempt,
			Data: cut(string(e.Data), maxData)})
	}
	return shown, max(len(all)-maxEvents, 0)
}

// lastPublished returns the last messages of an agent, the newest first.
func lastPublished(ctx context.Context, a Agents, name string) (last []publicationShown, err error) {
	err = a.Log(ctx, name, 0, false, func(p agentapi.Publication) error {
		shown := publicationShown{Time: p.Time, Channel: p.Channel, To: p.To, Type: p.Type,
			Data: cut(string(p.Data), maxData)}
		last = append([]publicationShown{shown}, last[:min(len(last), maxPublished-1)]...)
		return nil
	})
	return last, err
}

// withAgents calls f with the agents, and shows why that failed.
func (c *Console) withAgents(w http.ResponseWriter, r *http.Request, s *session,
	f func(Agents) error) {
	if c.Agents == nil {
		c.say(w, http.StatusNotFound, s, noAgents)
		return
	}
	a, err := c.Agents(r.Context())
	if err == nil {
		defer a.Close()
		err = f(a)
	}
	if err != nil {
		c.fail(w, r, s, err)
	}
}
