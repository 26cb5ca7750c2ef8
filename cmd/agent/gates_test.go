package agent_test

import (
	database "database/sql"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	_ "modernc.org/sqlite" // the driver

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/supervisor/agents/agentapi"
)

// gatekeeper has an agent use the gatekeeper crm of a table of customers, and returns its file. The
// gatekeeper other is somebody else's.
func gatekeeper(t *testing.T, h *cmdtest.Host, agent string) (crm string) {
	t.Helper()
	crm = filepath.Join(h.State, "crm.db")
	db, err := database.Open("sqlite", crm)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(`CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT, city TEXT);
		INSERT INTO customers (name, city) VALUES ('Ann', 'Bern'), ('Bob', 'Basel')`); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(h.State, "gatekeepers.toml"), []byte(fmt.Sprintf(
		"[gatekeeper.crm]\nkind = \"sqlite\"\nfile = \"crm.db\"\nagents = [%q]\n"+
			"[gatekeeper.other]\nkind = \"sqlite\"\nfile = \"crm.db\"\nagents = [\"somebody\"]\n"+
			"[gatekeeper.wiki]\nkind = \"agent\"\nagent = \"keeper\"\n",
		agent)), 0o600); err != nil {
		t.Fatal(err)
	}
	return crm
}

// mayUse has the manifest of an agent ask for gatekeepers.
func mayUse(t *testing.T, dir string, names ...string) {
	t.Helper()
	path := filepath.Join(dir, "agent.toml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	all, err := json.Marshal(names)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), "[capabilities]",
		"[capabilities]\ngatekeepers = "+string(all), 1)), 0o644); err != nil {
		t.Fatal(err)
	}
}

// city is that of the first customer.
func city(t *testing.T, crm string) (city string) {
	t.Helper()
	db, err := database.Open("sqlite", crm)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRow("SELECT city FROM customers WHERE id = 1").Scan(&city); err != nil {
		t.Fatal(err)
	}
	return city
}

// TestGatekeeper: an agent reads a table of customers at once. Its update waits, is carried out when a
// person has approved it, and undone when a person wants that, also where jail-agentd was killed
// meanwhile.
func TestGatekeeper(t *testing.T) {
	h := cmdtest.New(t)
	cmdtest.CompiledBundles(h, "js")
	crm := gatekeeper(t, h, "askjs")
	a := startAgentd(t, h)
	dir := agentDir(t, "js", "gated")
	mayUse(t, dir.Dir, "crm", "other")
	h.Wants(h.Jail("agent", "add", dir.Dir), 0, "")
	says := func(id, what string) string {
		t.Helper()
		sent := a.send("askjs", id, cmdtest.Bound, what)
		if sent.State != agentapi.Committed || len(sent.Published) != 1 {
			t.Fatalf("%s: %+v", what, sent)
		}
		return string(sent.Published[0].Data)
	}
	propose := func(id, city string) (action string) {
		t.Helper()
		var p struct {
			ID, State     string
			Before, After struct{ City string }
		}
		if err := json.Unmarshal([]byte(says(id, city)), &p); err != nil || p.State != "pending" ||
			p.Before.City != "Bern" || p.After.City != city {
			t.Fatalf("%+v, %v", p, err)
		}
		return p.ID
	}
	ends := func(action, state string) {
		t.Helper()
		cmdtest.Eventually(t, "the agent knows that "+action+" is "+state, func() bool {
			i, ok := a.look("askjs")
			return ok && i.Note == state+" "+action
		})
	}
	if got := says("1", "read"); got != `{"rows":[{"city":"Bern","name":"Ann"},`+
		`{"city":"Basel","name":"Bob"}],"more":false}` {
		t.Errorf("it reads %s", got)
	}
	if got := says("2", "other"); got != `"not_found"` {
		t.Errorf("a gatekeeper that is not for this agent: %s", got)
	}
	action := propose("3", "Zug")
	if o := h.Jail("approvals", "show", action); !strings.Contains(o.Out, "she moved") ||
		!strings.Contains(o.Out, "have the gatekeeper crm do update") {
		t.Errorf("people see %s%s", o.Out, o.Err)
	}
	if got := city(t, crm); got != "Bern" {
		t.Errorf("before the approval it is %s", got)
	}
	h.Wants(h.Jail("approvals", "approve", action), 0, "")
	ends(action, "applied")
	if got := city(t, crm); got != "Zug" {
		t.Errorf("after the approval it is %s", got)
	}
	h.Wants(h.Jail("approvals", "revert", action), 0, "")
	ends(action, "reverted")
	if got := city(t, crm); got != "Bern" {
		t.Errorf("after the reversal it is %s", got)
	}
	// People decide while nobody is there who could do it.
	action = propose("4", "Chur")
	a.End(syscall.SIGKILL)
	h.Wants(h.Jail("approvals", "approve", action), 0, "")
	if got := city(t, crm); got != "Bern" {
		t.Errorf("with nobody who carries it out it is %s", got)
	}
	a.Start()
	ends(action, "applied")
	if got := city(t, crm); got != "Chur" {
		t.Errorf("after the approval it is %s", got)
	}
	a.End(syscall.SIGKILL)
	h.Wants(h.Jail("approvals", "revert", action), 0, "")
	a.Start()
	ends(action, "reverted")
	if got := city(t, crm); got != "Bern" {
		t.Errorf("after the reversal it is %s", got)
	}
	// The owner uses it, too.
	if o := h.Jail("gate", "list"); !strings.Contains(o.Out, "crm") || !strings.Contains(o.Out, crm) {
		t.Errorf("%s%s", o.Out, o.Err)
	}
	if o := h.Jail("gate", "read", "crm", "count", `{"table": "customers"}`); !strings.Contains(o.Out,
		"2") {
		t.Errorf("%s%s", o.Out, o.Err)
	}
	o := h.Jail("gate", "propose", "crm", "delete", `{"table": "customers", "key": {"id": 2}}`)
	if !strings.Contains(o.Out, "pending") {
		t.Errorf("%s%s", o.Out, o.Err)
	}
	h.Wants(h.Jail("gate", "read", "crm", "rows", `{"table": "nothing"}`), 2, "no table")
	h.Wants(h.Jail("gate", "show", "nothing"), 127, `no gatekeeper "nothing": there are crm`)

	// A gatekeeper that is an agent itself keeps a page.
	if o := h.Jail("gate", "list"); !strings.Contains(o.Out, `agent "keeper": there is none`) {
		t.Errorf("%s%s", o.Out, o.Err)
	}
	keeper := agentDir(t, "js", "keeper")
	mayKeep(t, keeper.Dir, "keeper")
	h.Wants(h.Jail("agent", "add", keeper.Dir), 0, "")
	page := func(text string) func() bool {
		return func() bool {
			return strings.Contains(h.Jail("gate", "read", "wiki", "page").Out, `"text": "`+text+`"`)
		}
	}
	o = h.Jail("gate", "propose", "wiki", "set", `{"to": "new"}`)
	action, _, ok := strings.Cut(o.Out, " pending")
	if !ok || !strings.Contains(o.Out, `before: "old"`) || !page("old")() {
		t.Fatalf("%s%s", o.Out, o.Err)
	}
	h.Wants(h.Jail("approvals", "approve", action), 0, "")
	cmdtest.Eventually(t, "the page is written", page("new"))
	h.Wants(h.Jail("approvals", "revert", action), 0, "")
	cmdtest.Eventually(t, "the page is as it was", page("old"))
}

// mayKeep gives an agent a name, and lets it be a gatekeeper.
func mayKeep(t *testing.T, dir, name string) {
	t.Helper()
	path := filepath.Join(dir, "agent.toml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(strings.ReplaceAll(string(text), "askjs", name), "[capabilities]",
		"[capabilities]\ngatekeeper = true", 1)
	if err := os.WriteFile(path, []byte(changed), 0o644); err != nil {
		t.Fatal(err)
	}
}
