package audit_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// A live run is what its plan says, with a shadow, a read-only workspace and none; a limit that is
// lifted behind its back is found.
func TestVerify(t *testing.T) {
	h := cmdtest.New(t)
	for id, flags := range map[string][]string{"shadow": {"--discard"},
		"readonly": {"--profile", "readonly"}, "bare": {"--no-workspace"}} {
		live := h.Live(id, flags...)
		v := cmdtest.Verification(h, id, 0)
		for _, f := range v.Findings {
			if f.Answer == "differs" {
				t.Errorf("%s: %+v", id, f)
			}
		}
		if !v.OK || v.PID != live.InitPID() || len(v.Findings) < 40 {
			t.Errorf("%s: %+v", id, v)
		}
		if id == "bare" {
			wantChangeSeen(h, live)
		}
		live.In.Close()
		if o := live.Wait(); o.Code != 0 {
			t.Errorf("%s: being looked at has changed it: %+v", id, o)
		}
		h.Wants(h.Jail("verify", id), 127, `no run "`+id+`" is running`)
	}
	h.Wants(h.Jail("verify", "never-was"), 127, `no run "never-was" is running`)
	h.Wants(h.Jail("verify"), 2, "ID is missing")
}

// wantChangeSeen lifts the limit of tasks of a live run.
func wantChangeSeen(h *cmdtest.Host, live *cmdtest.LiveRun) {
	t := h.T
	t.Helper()
	files, err := filepath.Glob("/sys/fs/cgroup/pids/jail/" + h.GlobalID(live.ID) + ".*/pids.max")
	unified, err2 := filepath.Glob("/sys/fs/cgroup/jail/" + h.GlobalID(live.ID) + ".*/pids.max")
	if files = append(files, unified...); err != nil || err2 != nil || len(files) != 1 {
		t.Fatalf("the run's control group: %q, %v, %v", files, err, err2)
	}
	if err := os.WriteFile(files[0], []byte("max"), 0); err != nil {
		t.Fatal(err)
	}
	o := h.Jail("verify", live.ID)
	if o.Code != 1 || !strings.Contains(o.Out, "no limit") || strings.Count(o.Out,
		"differs ") != 1 {
		t.Errorf("exit code %d, want 1 and one difference\n%s%s", o.Code, o.Out, o.Err)
	}
}

// Whose run it is not does not learn that there is one.
func TestVerifyOfAnother(t *testing.T) {
	h := cmdtest.New(t)
	d := h.Daemon()
	d.Admit()
	live := h.Live("roots")
	other := func(args ...string) *exec.Cmd { return cmdtest.As(h.Command(args...), cmdtest.Stranger) }
	h.Wants(h.Run(other("verify", "roots")), 127, `no run "roots" is running`)
	if v := cmdtest.Verification(h, "roots", 0); !v.OK {
		t.Errorf("%+v", v)
	}
	live.In.Close()
	live.Wait()
}
