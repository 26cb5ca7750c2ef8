package agent_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/runners/agent"
)

// watcher is the heartbeat agent of the documentation: it proposes what it would mend in a directory
// that it can only read, publishes a fix when that is approved, and looks only at what has changed.
func watcher(t *testing.T, h *cmdtest.PolicyHost) {
	cmdtest.Have(t, "/usr/bin/patch")
	a := exampleDir(t, "watcher")
	site := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		path := filepath.Join(site, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put("a.txt", "one  \ntwo")
	put("sub/b.txt", "x\t\n")
	put("fine.txt", "fine\n")
	put("image", "\xff ")
	put(".hidden/c.txt", "x ")
	if err := os.Symlink("a.txt", filepath.Join(site, "link")); err != nil {
		t.Fatal(err)
	}
	req := requestOf(t, h, a)
	req.Policy += fmt.Sprintf("[[mount]]\nsource = %q\ntarget = \"/watched\"\naccess = \"read\"\n", site)
	r, _ := wakeWith(t, h, root, req, a.Config)
	seq := uint64(0)
	// tell sends an event and returns what became of it, each effect as a text.
	tell := func(kind string, data any) (all []string, patches []string) {
		t.Helper()
		seq++
		text, _ := json.Marshal(data)
		r.order(agent.Order{Event: &agent.Event{Seq: seq, ID: fmt.Sprint(seq), Source: "host",
			Type: kind, Kind: agent.KindNew, Attempt: 1, Data: text}})
		rep := r.report()
		if rep == nil || rep.Done == nil {
			t.Fatalf("%+v\n%s", rep, r.output())
		}
		for _, e := range rep.Done.Effects {
			var p struct{ Type, Resource, Patch string }
			switch {
			case e.Op == agent.OpPropose:
				if err := json.Unmarshal(e.Data, &p); err != nil || p.Type != "patch" {
					t.Errorf("%s: %v", e.Data, err)
				}
				all = append(all, fmt.Sprintf("propose %d/%d %s", seq, e.N, p.Resource))
			case e.Type == "patch":
				_ = json.Unmarshal(e.Data, &p.Patch)
				patches = append(patches, p.Patch)
			case e.Op == agent.OpState:
				all = append(all, string(e.Data))
			}
		}
		return all, patches
	}
	wants := func(got []string, want ...string) {
		t.Helper()
		if strings.Join(got, "|") != strings.Join(want, "|") {
			t.Fatalf("%q, want %q\n%s", got, want, r.output())
		}
	}
	got, _ := tell("tick", map[string]any{})
	wants(got, "propose 1/1 a.txt", "propose 1/3 sub/b.txt", `"3 files, 2 to mend"`)
	// What was proposed and not decided is there after a sleep.
	r.sleep()
	r, _ = wakeWith(t, h, root, req, a.Config)
	decide := func(id, decision string) (patches []string) {
		t.Helper()
		_, patches = tell("approval", map[string]string{"id": "agent:root:test/" + id,
			"decision": decision})
		return patches
	}
	wants(decide("1/3", "rejected"))
	wants(decide("9/9", "approved"))
	patches := decide("1/1", "approved")
	if len(patches) != 1 {
		t.Fatalf("%q", patches)
	}
	wants(decide("1/1", "approved"))
	cmd := exec.Command("patch", "-p1", "-d", site)
	cmd.Stdin = strings.NewReader(patches[0])
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if text, err := os.ReadFile(filepath.Join(site, "a.txt")); err != nil || string(text) != "one\ntwo\n" {
		t.Errorf("the mended file is %q, %v", text, err)
	}
	got, _ = tell("tick", map[string]any{})
	wants(got, `"3 files, 0 to mend"`)
	put("fine.txt", "not any more")
	got, _ = tell("tick", map[string]any{})
	wants(got, "propose 7/1 fine.txt", `"3 files, 1 to mend"`)
	r.sleep()
}
