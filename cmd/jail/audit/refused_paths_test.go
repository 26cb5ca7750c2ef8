package audit_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/jail/jailtest"
	"github.com/jail-sandbox/jail/runners"
)

// TestRefusedPathsAreSeen: the paths that Landlock refuses to programs of the host are in the
// result and in the log, each with its right and its exact count, where the host's audit is on and
// its operator wants that; whatever the kernel drops of a flood is in the counts. The control is
// the same program where the operator says nothing: it is refused the same, and nothing tells of
// it. That without Landlock the paths are open is in docs/walls.md.
func TestRefusedPathsAreSeen(t *testing.T) {
	h := cmdtest.New(t)
	jailtest.NeedAudit(t)
	policy := filepath.Join(h.Root, "told.toml")
	if err := os.WriteFile(policy,
		[]byte("policy = 1\ninclude = [\"build\"]\n[[mount]]\ntarget = \"/da ta/x\"\naccess = \"tmpfs\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(id string, code int, script string, flags ...string) (list []runners.Denial) {
		t.Helper()
		o := h.Jail(append(append([]string{"run", "--json", "--id", id, "--discard", "--policy",
			policy}, flags...), "--", "sh", "-c", script)...)
		var result struct {
			Denied   []runners.Denial
			Warnings []string
			Error    any
		}
		if err := json.Unmarshal([]byte(o.Out), &result); err != nil || o.Code != code ||
			len(result.Warnings) > 0 || result.Error != nil {
			t.Fatalf("%s: %v: %+v", id, err, o)
		}
		recorded := map[string]int{}
		for _, r := range cmdtest.DeniedRecords(t, h, id) {
			if r.Layer == "landlock" {
				recorded[r.What+"|"+r.Rule] += max(r.Count, 1)
			}
		}
		for _, d := range result.Denied {
			if d.Layer != "landlock" || d.Count < 1 || d.Rule == "" {
				t.Errorf("%s: %+v", id, d)
			}
			if recorded[d.What+"|"+d.Rule] != d.Count {
				t.Errorf("%s: %+v: on record are %v", id, d, recorded)
			}
		}
		if len(recorded) != len(result.Denied) {
			t.Errorf("%s: %+v; on record are %v", id, result.Denied, recorded)
		}
		return result.Denied
	}
	wants := func(id string, got []runners.Denial, want map[string]int) {
		t.Helper()
		left := map[string]int{}
		for _, d := range got {
			left[d.What] += d.Count
		}
		for what, n := range want {
			if left[what] != n {
				t.Errorf("%s: %q was refused %d times, %d are told: %+v", id, what, n, left[what],
					got)
			}
			delete(left, what)
		}
		if len(left) > 0 {
			t.Errorf("%s: told, and not asked for: %v", id, left)
		}
	}
	const few = `ls /; ls /; ls "/da ta"; ls /run; echo >/proc/x; cat /usr/none; cat /etc/none; echo >/usr/new; true`
	const flood = 600
	many := fmt.Sprintf(`i=0; while [ $i -lt %d ]; do true </; i=$((i+1)); done 2>/dev/null; true`,
		flood)

	wants("control", run("control", 0, few+"; test ! -r /etc/none"), map[string]int{})

	h.Pool(0)
	settings := filepath.Join(h.State, "jaild.toml")
	text := cmdtest.Must(os.ReadFile(settings))(t)
	if err := os.WriteFile(settings, append(text, "[denied]\nlandlock = true\n"...),
		0o600); err != nil {
		t.Fatal(err)
	}
	wants("clean", run("clean", 0, "ls /usr; echo x >/tmp/x"), map[string]int{})
	got := run("few", 0, few)
	wants("few", got, map[string]int{"read_dir /": 2, "read_dir /da ta": 1, "read_dir /run": 1,
		"make_reg /proc": 1})
	for _, d := range got {
		want := map[bool]string{true: "/proc is granted for: read",
			false: "nothing is granted there"}[d.What == "make_reg /proc"]
		if d.Rule != want {
			t.Errorf("%+v: want %q", d, want)
		}
	}
	for _, r := range cmdtest.DeniedRecords(t, h, "few") {
		if r.What == "read_dir /" && (r.First.IsZero() || r.Last.Before(r.First)) {
			t.Errorf("record: %+v", r)
		}
	}
	sum := 0
	for _, d := range run("many", 0, many) {
		if sum += d.Count; d.What != "read_dir /" && !strings.HasPrefix(d.What, "further") {
			t.Errorf("%+v", d)
		}
	}
	if sum != flood {
		t.Errorf("%d refusals are told, want %d", sum, flood)
	}
	wants("killed", run("killed", 137, "ls /; kill -9 $$; true"), map[string]int{"read_dir /": 1})
}
