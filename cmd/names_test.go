package cmd_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestNames: --id is an alias of its user. Two users have something of one name each, at one time,
// neither finds out about the other's, and root names both.
func TestNames(t *testing.T) {
	h := newHost(t)
	h.daemon().admit()
	own := filepath.Join(h.root, "own")
	if err := errors.Join(os.Mkdir(own, 0o755), os.Chown(own, stranger, stranger)); err != nil {
		t.Fatal(err)
	}
	other := func(args ...string) outcome {
		t.Helper()
		return h.run(as(h.command(args...), stranger))
	}
	theirsWas := other("run", "--json", "--workspace", own, "--id", "free", "--", "touch", "made")
	h.wants(h.jail("run", "--quiet", "--id", "taken", "--", "touch", "roots"), 0, "")
	theirs := other("run", "--json", "--workspace", own, "--id", "taken", "--", "touch", "made")

	// What they are told does not depend on what root has.
	unlike := func(o outcome) string {
		t.Helper()
		var res struct {
			ID        string         `json:"id"`
			GlobalID  string         `json:"global_id"`
			ExitCode  int            `json:"exit_code"`
			Changes   map[string]int `json:"changes"`
			Workspace string         `json:"workspace"`
		}
		if err := json.Unmarshal([]byte(o.out), &res); err != nil || len(res.GlobalID) != 26 {
			t.Fatalf("%v: %+v", err, o)
		}
		text, _ := json.Marshal([]any{res.ExitCode, res.Changes, res.Workspace})
		return string(text)
	}
	if was, is := unlike(theirsWas), unlike(theirs); was != is {
		t.Errorf("a name that is free gives %s, one that root has %s", was, is)
	}
	h.wants(other("run", "--workspace", own, "--id", "taken", "--", "true"), 2,
		"run id taken is in use: the shadow of that run is kept")

	// Each has their own by the name, root the other's by USER/NAME, and everybody by the id.
	h.says(h.jail("diff", "taken"), 0, "A roots")
	h.says(h.jail("diff", "0/taken"), 0, "A roots")
	h.says(h.jail("diff", "12345/taken"), 0, "A made")
	h.says(other("diff", "taken"), 0, "A made")
	h.says(other("diff", "12345/taken"), 0, "A made")
	h.wants(other("diff", "0/taken"), 127, `no shadow is kept for run "0/taken"`)
	h.wants(other("diff", "root/taken"), 127, "no shadow is kept")
	h.wants(other("diff", "root/nobodys"), 127, "no shadow is kept")
	var kept []struct {
		ID       string `json:"id"`
		GlobalID string `json:"global_id"`
		Caller   struct {
			UID int `json:"uid"`
		} `json:"caller"`
	}
	if o := h.jail("workspaces", "--json"); json.Unmarshal([]byte(o.out), &kept) != nil ||
		len(kept) != 3 {
		t.Fatalf("%+v", o)
	}
	for _, w := range kept {
		want := map[int]string{0: "A roots", stranger: "A made"}[w.Caller.UID]
		h.says(h.jail("diff", w.GlobalID), 0, want)
		if w.Caller.UID == 0 {
			for _, verb := range []string{"diff", "attach", "kill", "inspect"} {
				if o := other(verb, w.GlobalID); o.code != 127 || strings.Contains(o.err, "taken") {
					t.Errorf("%s of the id of root's: %+v", verb, o)
				}
			}
		}
	}

	// The log tells the two apart, and by its id one of them.
	ids := map[string]bool{}
	for _, r := range h.records("taken", "run.started") {
		ids[r.RunID] = r.Run == "taken"
	}
	if len(ids) != 2 || ids[""] {
		t.Errorf("the log has %v", ids)
	}
	for id := range ids {
		h.says(h.jail("audit", "query", "--run", id, "--type", "run.started"), 0,
			"core-utils/touch")
	}
	if o := other("audit", "query", "--json", "--run", "taken"); strings.Contains(o.out,
		`"uid":0`) || !strings.Contains(o.out, `"run_id"`) {
		t.Errorf("%+v", o)
	}
	h.wants(other("discard", "taken"), 0, "")
	h.says(h.jail("diff", "taken"), 0, "A roots")
	h.wants(h.jail("audit", "verify"), 0, "")
	h.discard("taken")
	h.wants(other("discard", "free"), 0, "")
}

// TestNamesOfThePreviousRelease: that release knew runs by the names that they were given. What it
// kept is found by its name, by its user alone, and the name is in use for that user alone.
func TestNamesOfThePreviousRelease(t *testing.T) {
	h := newHost(t)
	d := h.daemon()
	d.admit()
	h.wants(h.jail("run", "--quiet", "--id", "now", "--", "touch", "made"), 0, "")
	d.stop()
	state := filepath.Join(h.state, "state")
	id := h.globalID("now")
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
	h.daemon().admit()
	h.says(h.jail("workspaces"), 0, "old ")
	h.says(h.jail("diff", "old"), 0, "A made")
	h.says(h.jail("diff", "root/old"), 0, "A made")
	h.wants(h.jail("run", "--id", "old", "--", "true"), 2, "run id old is in use")
	other := func(args ...string) outcome { return h.run(as(h.command(args...), stranger)) }
	h.wants(other("diff", "old"), 127, "no shadow is kept")
	h.wants(other("run", "--quiet", "--id", "old", "--no-workspace", "--", "true"), 0, "")
	h.says(h.jail("commit", "old"), 0, "committed 1 change of run old")
	h.wants(h.jail("revert", "old"), 0, "")
	h.wants(h.jail("discard", "old"), 0, "")
}
