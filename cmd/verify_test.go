package cmd_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/supervisor/rundir"
)

// verification asks another daemon than the run's own, as every command of root's does where none
// is shared.
func (h *host) verification(id string, code int) rundir.Verification {
	h.t.Helper()
	o := h.jail("verify", "--json", id)
	var v rundir.Verification
	if err := json.Unmarshal([]byte(o.out), &v); err != nil || o.code != code {
		h.t.Fatalf("verify: %v, exit code %d, want %d\n%s%s", err, o.code, code, o.out, o.err)
	}
	return v
}

// A live run is what its plan says, with a shadow, a read-only workspace and none; a limit that is
// lifted behind its back is found.
func TestVerify(t *testing.T) {
	h := newHost(t)
	for id, flags := range map[string][]string{"shadow": {"--discard"},
		"readonly": {"--profile", "readonly"}, "bare": {"--no-workspace"}} {
		live := h.live(id, flags...)
		v := h.verification(id, 0)
		for _, f := range v.Findings {
			if f.Answer == "differs" {
				t.Errorf("%s: %+v", id, f)
			}
		}
		if !v.OK || v.PID != live.initPID() || len(v.Findings) < 40 {
			t.Errorf("%s: %+v", id, v)
		}
		if id == "bare" {
			h.wantChangeSeen(live)
		}
		live.in.Close()
		if o := live.wait(); o.code != 0 {
			t.Errorf("%s: being looked at has changed it: %+v", id, o)
		}
		h.wants(h.jail("verify", id), 127, `no run "`+id+`" is running`)
	}
	h.wants(h.jail("verify", "never-was"), 127, `no run "never-was" is running`)
	h.wants(h.jail("verify"), 2, "ID is missing")
}

// wantChangeSeen lifts the limit of tasks of a live run.
func (h *host) wantChangeSeen(live *liveRun) {
	t := h.t
	t.Helper()
	files, err := filepath.Glob("/sys/fs/cgroup/pids/jail/" + h.globalID(live.id) + ".*/pids.max")
	unified, err2 := filepath.Glob("/sys/fs/cgroup/jail/" + h.globalID(live.id) + ".*/pids.max")
	if files = append(files, unified...); err != nil || err2 != nil || len(files) != 1 {
		t.Fatalf("the run's control group: %q, %v, %v", files, err, err2)
	}
	if err := os.WriteFile(files[0], []byte("max"), 0); err != nil {
		t.Fatal(err)
	}
	o := h.jail("verify", live.id)
	if o.code != 1 || !strings.Contains(o.out, "no limit") || strings.Count(o.out,
		"differs ") != 1 {
		t.Errorf("exit code %d, want 1 and one difference\n%s%s", o.code, o.out, o.err)
	}
}

// Whose run it is not does not learn that there is one.
func TestVerifyOfAnother(t *testing.T) {
	h := newHost(t)
	d := h.daemon()
	d.admit()
	live := h.live("roots")
	other := func(args ...string) *exec.Cmd { return as(h.command(args...), stranger) }
	h.wants(h.run(other("verify", "roots")), 127, `no run "roots" is running`)
	if v := h.verification("roots", 0); !v.OK {
		t.Errorf("%+v", v)
	}
	live.in.Close()
	live.wait()
}
