package policy_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/jail/asuser"
	"github.com/jail-sandbox/jail/supervisor/bundle"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// TestWhoDecides: who may not run tools looks at what is their own and does nothing else;
// administrators decide on the runs of others, with their own rights, and what is root's stays
// root's: by every verb.
func TestWhoDecides(t *testing.T) {
	const owner, looker, admin, other = cmdtest.Stranger, 12347, 12348, 12349
	h := cmdtest.NewPolicyHost(t, map[string]string{"ceiling": "policy = 1\n"})
	h.Listens()
	by := func(uid uint32, args ...string) cmdtest.Outcome {
		t.Helper()
		return h.Run(cmdtest.AsMember(h.Command(args...), uid, nil))
	}
	say := func(uid uint32, line string) cmdtest.Outcome {
		t.Helper()
		return by(uid, strings.Fields(line)...)
	}
	dirs := map[string]string{}
	for name, uid := range map[string]uint32{"o": owner, "l": looker, "a": admin, "r": 0} {
		dir := filepath.Join(h.Root, name)
		dirs[name] = dir
		if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "seed"),
			[]byte("a\n"), 0o644), os.Chown(dir, int(uid), int(uid))); err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{
			"run --quiet --detach --id NAME-kept --workspace DIR --keep -- cp -v seed made",
			"wait NAME-kept",
			"run --quiet --detach --input --id NAME-alive --no-workspace --policy PATIENT -- cat",
			"session start --id NAME-opened --workspace DIR",
		} {
			h.Wants(say(uid, strings.NewReplacer("NAME", name, "DIR", dir, "PATIENT",
				cmdtest.Patient(h.Host)).Replace(line)), 0, "")
		}
	}
	h.Write("ceiling",
		"policy = 1\n[permissions.run]\nusers = [\"12345\", \"nosuchuser\"]\n[permissions.administer]\nusers = [\"12348\"]\ngroups = [\"12399\", \"nosuchgroup\"]\n")

	verbs := func(name string, more ...string) []string {
		out := append([]string{"attach ID-alive", "kill ID-alive", "session exec ID-opened -- true",
			"session stop ID-opened", "kill ID-opened", "commit ID-kept", "discard ID-kept",
			"revert ID-kept"}, more...)
		for i := range out {
			out[i] = strings.ReplaceAll(out[i], "ID", name)
		}
		return out
	}
	looks := func(name string) []string {
		return []string{"logs " + name + "-alive", "logs " + name + "-kept", "wait " + name +
			"-kept", "diff " + name + "-kept", "inspect " + name + "-alive", "verify " + name +
			"-alive"}
	}
	const none, mayNot = "no (run|shadow|session|record)", "may not run tools(.|\n)*permissions.run"
	begins := []string{"run --no-workspace -- true", "run --detach --no-workspace -- true",
		"plan --no-workspace -- true", "sh --no-workspace -c true", "session start --no-workspace"}
	for _, uid := range []uint32{looker, other, admin} {
		for _, line := range begins {
			h.Wants(say(uid, line), 126, mayNot)
		}
	}
	h.Wants(say(owner, "run --no-workspace -- true"), 0, "")
	h.Wants(say(0, "run --no-workspace -- true"), 0, "")
	// Their own need what everybody's do.
	for _, line := range verbs("a") {
		h.Wants(say(admin, line), 126, mayNot)
	}
	for _, line := range verbs("l") {
		h.Wants(say(looker, line), 126, mayNot)
		h.Wants(say(other, line), 127, none)
	}
	for _, line := range looks("l") {
		h.Wants(say(looker, line), 0, "")
		h.Wants(say(admin, line), 0, "")
		h.Wants(say(other, line), 127, none)
	}
	for _, line := range append(verbs("r"), looks("r")...) {
		h.Wants(say(admin, line), 127, none)
		h.Wants(say(looker, line), 127, none)
	}
	for uid, want := range map[uint32]string{looker: "l", admin: "aol", owner: "o", other: "",
		0: "aolr"} {
		for _, list := range []string{"ps --json", "session list --json", "workspaces --json"} {
			o, got := say(uid, list), ""
			for _, name := range []string{"a", "o", "l", "r"} {
				if strings.Contains(o.Out, `"`+name+"-") {
					got += name
				}
			}
			if got != want || o.Code != 0 {
				t.Errorf("%s by %d: %q, want %q: %+v", list, uid, got, want, o)
			}
		}
	}
	// An administrator does what does not need the user's rights.
	for _, line := range []string{"attach o-alive", "session exec o-opened -- true",
		"session stop --commit o-opened"} {
		h.Wants(say(admin, line), 126, "")
	}
	for _, line := range []string{"commit o-kept", "commit l-kept"} {
		h.Wants(say(admin, line), 126, "a commit is made with your own rights")
	}
	for _, name := range []string{"o", "l"} {
		if _, err := os.Stat(filepath.Join(dirs[name], "made")); err == nil {
			t.Errorf("an administrator wrote to %s", dirs[name])
		}
	}
	for _, line := range []string{"kill l-alive", "discard l-kept", "session stop l-opened"} {
		h.Wants(say(admin, line), 0, "")
	}
	// By group.
	if o := h.Run(cmdtest.AsMember(h.Command("kill", "o-alive"), other, []uint32{12399})); o.Code != 0 {
		t.Errorf("%+v", o)
	}
	// Of bundles, what is signed by whom root believes; whom to believe is root's to say.
	for _, uid := range []uint32{owner, looker, admin} {
		c := caller.Caller{Caller: asuser.Caller{UID: uid, GID: uid}, PID: os.Getpid(), Exe: "test"}
		var rights []bool
		allowed := func(err error) {
			var e *problem.Error
			if err == nil || !errors.As(err, &e) {
				t.Errorf("%v", err)
				return
			}
			rights = append(rights, !strings.Contains(e.Message, "only root may"))
		}
		_, err := h.S.Tools().Install(t.Context(), c, bundle.Offer{Source: "x"}, strings.NewReader(""))
		allowed(err)
		_, err = h.S.Tools().Remove(t.Context(), c, "none", false)
		allowed(err)
		_, err = h.S.Tools().Remove(t.Context(), c, "none", true)
		allowed(err)
		allowed(h.S.Tools().SetRing(t.Context(), c, "none", "", true))
		allowed(h.S.Tools().RemoveRing(t.Context(), c, "none"))
		if want := []bool{uid == admin, uid == admin, false, false, false}; !slices.Equal(rights,
			want) {
			t.Errorf("uid %d may %v, want %v", uid, rights, want)
		}
	}
	// It counts from the next question on.
	h.Write("ceiling", "policy = 1\n")
	h.Wants(say(admin, "diff o-kept"), 127, none)
	for _, line := range []string{"discard o-kept", "session stop o-opened"} {
		h.Wants(say(owner, line), 0, "")
	}
	for _, line := range []string{"kill a-alive", "discard a-kept", "session stop a-opened"} {
		h.Wants(say(admin, line), 0, "")
	}
	for _, line := range []string{"kill r-alive", "discard r-kept", "session stop r-opened"} {
		h.Wants(say(0, line), 0, "")
	}
	h.Wants(say(looker, "run --no-workspace -- true"), 0, "")
}
