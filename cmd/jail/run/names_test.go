package run_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// TestNames: --id is an alias of its user. Two users have something of one name each, at one time,
// neither finds out about the other's, and root names both.
func TestNames(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon().Admit()
	own := filepath.Join(h.Root, "own")
	if err := errors.Join(os.Mkdir(own, 0o755), os.Chown(own, cmdtest.Stranger, cmdtest.Stranger)); err != nil {
		t.Fatal(err)
	}
	other := func(args ...string) cmdtest.Outcome {
		t.Helper()
		return h.Run(cmdtest.As(h.Command(args...), cmdtest.Stranger))
	}
	theirsWas := other("run", "--json", "--workspace", own, "--id", "free", "--", "touch", "made")
	h.Wants(h.Jail("run", "--quiet", "--id", "taken", "--", "touch", "roots"), 0, "")
	theirs := other("run", "--json", "--workspace", own, "--id", "taken", "--", "touch", "made")

	// What they are told does not depend on what root has.
	unlike := func(o cmdtest.Outcome) string {
		t.Helper()
		var res struct {
			ID        string         `json:"id"`
			GlobalID  string         `json:"global_id"`
			ExitCode  int            `json:"exit_code"`
			Changes   map[string]int `json:"changes"`
			Workspace string         `json:"workspace"`
		}
		if err := json.Unmarshal([]byte(o.Out), &res); err != nil || len(res.GlobalID) != 26 {
			t.Fatalf("%v: %+v", err, o)
		}
		text, _ := json.Marshal([]any{res.ExitCode, res.Changes, res.Workspace})
		return string(text)
	}
	if was, is := unlike(theirsWas), unlike(theirs); was != is {
		t.Errorf("a name that is free gives %s, one that root has %s", was, is)
	}
	h.Wants(other("run", "--workspace", own, "--id", "taken", "--", "true"), 2,
		"run id taken is in use: the shadow of that run is kept")

	// Each has their own by the name, root the other's by USER/NAME, and everybody by the id.
	h.Says(h.Jail("diff", "taken"), 0, "A roots")
	h.Says(h.Jail("diff", "0/taken"), 0, "A roots")
	h.Says(h.Jail("diff", "12345/taken"), 0, "A made")
	h.Says(other("diff", "taken"), 0, "A made")
	h.Says(other("diff", "12345/taken"), 0, "A made")
	h.Wants(other("diff", "0/taken"), 127, `no shadow is kept for run "0/taken"`)
	h.Wants(other("diff", "root/taken"), 127, "no shadow is kept")
	h.Wants(other("diff", "root/nobodys"), 127, "no shadow is kept")
	var kept []struct {
		ID       string `json:"id"`
		GlobalID string `json:"global_id"`
		Caller   struct {
			UID int `json:"uid"`
		} `json:"caller"`
	}
	if o := h.Jail("workspaces", "--json"); json.Unmarshal([]byte(o.Out), &kept) != nil ||
		len(kept) != 3 {
		t.Fatalf("%+v", o)
	}
	for _, w := range kept {
		want := map[int]string{0: "A roots", cmdtest.Stranger: "A made"}[w.Caller.UID]
		h.Says(h.Jail("diff", w.GlobalID), 0, want)
		if w.Caller.UID == 0 {
			for _, verb := range []string{"diff", "attach", "kill", "inspect"} {
				if o := other(verb, w.GlobalID); o.Code != 127 || strings.Contains(o.Err, "taken") {
					t.Errorf("%s of the id of root's: %+v", verb, o)
				}
			}
		}
	}

	// The log tells the two apart, and by its id one of them.
	ids := map[string]bool{}
	for _, r := range h.Records("taken", "run.started") {
		ids[r.RunID] = r.Run == "taken"
	}
	if len(ids) != 2 || ids[""] {
		t.Errorf("the log has %v", ids)
	}
	for id := range ids {
		h.Says(h.Jail("audit", "query", "--run", id, "--type", "run.started"), 0,
			"core-utils/touch")
	}
	if o := other("audit", "query", "--json", "--run", "taken"); strings.Contains(o.Out,
		`"uid":0`) || !strings.Contains(o.Out, `"run_id"`) {
		t.Errorf("%+v", o)
	}
	h.Wants(other("discard", "taken"), 0, "")
	h.Says(h.Jail("diff", "taken"), 0, "A roots")
	h.Wants(h.Jail("audit", "verify"), 0, "")
	h.Discard("taken")
	h.Wants(other("discard", "free"), 0, "")
}

// TestNamesOfThePreviousRelease: that release knew runs by the names that they were given. What it
// kept is found by its name, by its user alone, and the name is in use for that user alone.
func TestNamesOfThePreviousRelease(t *testing.T) {
	h := cmdtest.New(t)
	d := h.Daemon()
	d.Admit()
	h.Wants(h.Jail("run", "--quiet", "--id", "now", "--", "touch", "made"), 0, "")
	d.Stop()
	state := filepath.Join(h.State, "state")
	id := h.GlobalID("now")
	err := errors.Join(os.Rename(filepath.Join(state, "workspaces", id), filepath.Join(state,
		"workspaces", "old")),
		os.Rename(filepath.Join(state, "terms", id+".json"), filepath.Join(state, "terms",
			"old.json")), os.RemoveAll(filepath.Join(state, "names")))
	meta := filepath.Join(state, "workspaces", "old", "meta.json")
	text, readErr := os.ReadFile(meta)
	err = errors.Join(err, readErr,
		os.WriteFile(meta, []byte(strings.ReplaceAll(string(text), id, "old")), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	h.Daemon().Admit()
	h.Says(h.Jail("workspaces"), 0, "old ")
	h.Says(h.Jail("diff", "old"), 0, "A made")
	h.Says(h.Jail("diff", "root/old"), 0, "A made")
	h.Wants(h.Jail("run", "--id", "old", "--", "true"), 2, "run id old is in use")
	other := func(args ...string) cmdtest.Outcome { return h.Run(cmdtest.As(h.Command(args...), cmdtest.Stranger)) }
	h.Wants(other("diff", "old"), 127, "no shadow is kept")
	h.Wants(other("run", "--quiet", "--id", "old", "--no-workspace", "--", "true"), 0, "")
	h.Says(h.Jail("commit", "old"), 0, "committed 1 change of run old")
	h.Wants(h.Jail("revert", "old"), 0, "")
	h.Wants(h.Jail("discard", "old"), 0, "")
}
