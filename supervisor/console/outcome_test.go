package console

import (
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/audit"
)

// The list of runs begins with how each ended: exit, limit, refusals, changes. An id that is used
// again has the outcome of its last run.
func TestOutcomes(t *testing.T) {
	entry := func(run string, e audit.Event) audit.Entry { return audit.Entry{Run: run, Event: e} }
	log := newLog(t,
		entry("again", audit.RunStarted{Tool: "x"}), entry("again", audit.RunFinished{ExitCode: 7}),
		entry("good", audit.RunStarted{Tool: "x"}), entry("good",
			audit.Denied{Layer: "wasi", What: "read /x", Count: 3}),
		entry("good", audit.RunFinished{Changes: audit.Changes{Added: 1, Deleted: 2}}),
		entry("slow", audit.RunStarted{Tool: "x"}), entry("slow",
			audit.RunFinished{ExitCode: 124, Limit: "wall"}),
		entry("asleep", audit.RunStarted{}), entry("asleep",
			audit.RunFinished{ExitCode: 124, Limit: "idle", Changes: audit.Changes{Added: 1}}),
		entry("lost", audit.RunStarted{Tool: "x"}),
		entry("again", audit.RunStarted{Tool: "x"}), entry("again", audit.RunFinished{}))
	body := newClient(t, Options{Log: log}).get("/").Body.String()
	for id, want := range map[string]string{"good": "exit 0|denied 3|changed &#43;1 ~0 -2",
		"slow": "exit 124|limit wall", "asleep": `class="state ">idle|changed &#43;1`,
		"lost": "no end on record"} {
		row, _, _ := strings.Cut(body[strings.LastIndex(body[:strings.Index(body, `/runs/`+id+`"`)],
			"<tr>"):], "</tr>")
		if id == "asleep" && strings.Contains(row, "124") {
			t.Errorf("a session that sleeps has failed: %s", row)
		}
		for text := range strings.SplitSeq(want, "|") {
			if !strings.Contains(row, text) {
				t.Errorf("%s: %s, want %s", id, row, text)
			}
		}
		if at := strings.Index(row, "outcome"); at < 0 || at > strings.Index(row, "/runs/") {
			t.Errorf("%s: the outcome does not come first: %s", id, row)
		}
	}
	if first, second := strings.Index(body, "exit 7"), strings.LastIndex(body,
		`/runs/again"`); first < 0 || first > second || strings.Count(body, "exit 7") != 1 {
		t.Errorf("the id that was used again: %s", body)
	}
}

// Conditions with known values are menus. A value that the menu has not stays chosen.
func TestMenus(t *testing.T) {
	c := newClient(t, Options{Log: newLog(t)})
	body := c.get("/log?decision=denied&since=90m").Body.String()
	for _, want := range []string{`<select name="type"><option value="" selected>any</option>`,
		`<option value="denied" selected>denied</option>`,
		`<option value="run.finished">run.finished</option>`,
		`<option value="90m" selected>90m</option>`, `<select name="layer">`} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s in %s", want, body)
		}
	}
}

// The page of a run names the secrets and the outward links of a change set that waits.
func TestWaiting(t *testing.T) {
	f := &fake{lines: []api.ReviewLine{
		{Change: &api.Change{Change: workspace.Change{Path: "conf", Kind: workspace.Added,
			Risks: []workspace.Risk{{Class: workspace.Secret, Why: "an AWS key"}}}}},
		{Change: &api.Change{Change: workspace.Change{Path: "plain", Kind: workspace.Added}}},
		{Change: &api.Change{Change: workspace.Change{Path: "out", Kind: workspace.Added,
			Outside: true}}},
	}}
	c := &Console{Options: Options{Daemon: f}}
	got := strings.Join(c.waiting(t.Context(), "r"), "\n")
	if got != "secret: conf: an AWS key\nlink: out: it leads out of the workspace" {
		t.Errorf("%s", got)
	}
}
