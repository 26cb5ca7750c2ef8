package session_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// A ceiling with engine = "own" refuses a session that asks for a shared engine, and narrows a
// profile that has one.
func TestSharedEngineCeiling(t *testing.T) {
	for _, c := range []struct {
		name, ceiling string
		asked, shared bool
	}{
		{"none", "policy = 1\n", true, true},
		{"own", "policy = 1\n[session]\nengine = \"own\"\n", false, false},
		{"request", "policy = 1\n[session]\nengine = \"request\"\n", true, false},
		{"shared", "policy = 1\n[session]\nengine = \"shared\"\n", true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := cmdtest.NewPolicyHost(t, map[string]string{"ceiling": c.ceiling})
			h.Listens()
			runs := func(name string, shared bool, flags ...string) {
				t.Helper()
				id := h.Session(flags...)
				h.Wants(h.Exec(id, "--id", name, "--", h.Probe, "exit", "0"), 0, "")
				if all := h.Sessions(); len(all) != 1 || all[0].SharedEngine != shared ||
					(h.EngineOf(name) != "") != shared {
					t.Errorf("%s: engine %q, sessions %+v", name, h.EngineOf(name), all)
				}
				h.StopSession(id, 0)
			}
			if c.asked {
				runs("asked", true, "--shared-engine")
			} else {
				h.Wants(h.Jail("session", "start", "--shared-engine"), 126,
					`a shared engine is not permitted: ceiling says session.engine = "own"`)
				if all := h.Sessions(); len(all) != 0 {
					t.Errorf("sessions %+v", all)
				}
			}
			runs("unasked", false)
			runs("profile", c.shared, "--policy",
				profileWith(h.Host, "shared", "[session]\nengine = \"shared\""))
		})
	}
}

// With workspace.target = "same" the modules of a shared engine find the workspace at the
// directory's own path, and at /workspace where that path lies in a mount of the policy.
func TestSharedEngineTarget(t *testing.T) {
	h := cmdtest.NewForEngines(t)
	h.Daemon()
	_, modules := cmdtest.TargetPolicies(h)
	outside := cmdtest.OutsideMounts(t)
	for _, c := range []struct{ dir, path string }{{outside, outside}, {h.Work, "/workspace"}} {
		docs := filepath.Join(c.dir, "docs")
		if err := errors.Join(os.Mkdir(docs, 0o755),
			os.WriteFile(filepath.Join(docs, "here"), []byte("below\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
		id := h.Session("--policy", modules, "--workspace", c.dir, "--shared-engine")
		engines := map[string]bool{}
		for i, step := range []struct {
			args []string
			out  string
		}{
			{[]string{"pwd"}, c.path + "/docs\n"},
			{[]string{"cat", "here"}, "below\n"},
			{[]string{"cat", c.path + "/docs/here"}, "below\n"},
			{[]string{"cp", "here", c.path + "/made"}, ""},
			{[]string{"cat", "../made"}, "below\n"},
			{[]string{"find", c.path, "-name", "made"}, c.path + "/made\n"},
		} {
			name := fmt.Sprintf("step%d", i)
			o := h.From(docs, append([]string{"session", "exec", id, "--id", name, "--"},
				step.args...)...)
			if o.Code != 0 || o.Out != step.out {
				t.Errorf("%s: %q: %+v, want %q", c.dir, step.args, o, step.out)
			}
			engines[h.EngineOf(name)] = true
		}
		// Each command is one of the same module.
		if len(engines) != 1 || engines[""] {
			t.Errorf("%s: engines %v", c.dir, engines)
		}
		h.StopSession(id, 1)
		if o := h.Jail("diff", id); !strings.Contains(o.Out, "A made") {
			t.Errorf("%s: %+v", c.dir, o)
		}
		h.Discard(id)
	}
}
