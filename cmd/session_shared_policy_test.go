package cmd_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
			h := newPolicyHost(t, map[string]string{"ceiling": c.ceiling})
			h.listens()
			runs := func(name string, shared bool, flags ...string) {
				t.Helper()
				id := h.session(flags...)
				h.wants(h.exec(id, "--id", name, "--", h.probe, "exit", "0"), 0, "")
				if all := h.sessions(); len(all) != 1 || all[0].SharedEngine != shared ||
					(h.engineOf(name) != "") != shared {
					t.Errorf("%s: engine %q, sessions %+v", name, h.engineOf(name), all)
				}
				h.stopSession(id, 0)
			}
			if c.asked {
				runs("asked", true, "--shared-engine")
			} else {
				h.wants(h.jail("session", "start", "--shared-engine"), 126,
					`a shared engine is not permitted: ceiling says session.engine = "own"`)
				if all := h.sessions(); len(all) != 0 {
					t.Errorf("sessions %+v", all)
				}
			}
			runs("unasked", false)
			runs("profile", c.shared, "--policy",
				h.profileWith("shared", "[session]\nengine = \"shared\""))
		})
	}
}

// With workspace.target = "same" the modules of a shared engine find the workspace at the
// directory's own path, and at /workspace where that path lies in a mount of the policy.
func TestSharedEngineTarget(t *testing.T) {
	h := newHost(t)
	h.daemon()
	_, modules := h.targetPolicies()
	outside := outsideMounts(t)
	for _, c := range []struct{ dir, path string }{{outside, outside}, {h.work, "/workspace"}} {
		docs := filepath.Join(c.dir, "docs")
		if err := errors.Join(os.Mkdir(docs, 0o755),
			os.WriteFile(filepath.Join(docs, "here"), []byte("below\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
		id := h.session("--policy", modules, "--workspace", c.dir, "--shared-engine")
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
			o := h.from(docs, append([]string{"session", "exec", id, "--id", name, "--"},
				step.args...)...)
			if o.code != 0 || o.out != step.out {
				t.Errorf("%s: %q: %+v, want %q", c.dir, step.args, o, step.out)
			}
			engines[h.engineOf(name)] = true
		}
		// Each command is one of the same module.
		if len(engines) != 1 || engines[""] {
			t.Errorf("%s: engines %v", c.dir, engines)
		}
		h.stopSession(id, 1)
		if o := h.jail("diff", id); !strings.Contains(o.out, "A made") {
			t.Errorf("%s: %+v", c.dir, o)
		}
		h.discard(id)
	}
}
