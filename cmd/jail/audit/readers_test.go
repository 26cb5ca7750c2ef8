package audit_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// TestWhoSeesWhat (T-505): one rule for all that shows something of a run: its user, root and whom
// the ceiling names see it, and to everybody else it is not there. Who may only look changes
// nothing, and is told so.
func TestWhoSeesWhat(t *testing.T) {
	const owner, reader, other = cmdtest.Stranger, 12346, 12347
	h := cmdtest.NewPolicyHost(t,
		map[string]string{"ceiling": "policy = 1\n[permissions.read]\nusers = [\"12346\"]\n"})
	h.Listens()
	own := filepath.Join(h.Root, "own")
	if err := os.Mkdir(own, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(own, owner, owner); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(own, "seed"), []byte("a\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	by := func(uid uint32, args ...string) cmdtest.Outcome {
		t.Helper()
		return h.Run(cmdtest.AsMember(h.Command(args...), uid, nil))
	}
	// One run that has ended and left a shadow and what it wrote, one that waits for its input, and
	// a session.
	h.Wants(by(owner, "run", "--quiet", "--detach", "--id", "ended", "--workspace", own, "--keep",
		"--", "cp", "-v", "seed", "made"), 0, "")
	h.Wants(by(owner, "wait", "ended"), 0, "")
	h.Wants(by(owner, "run", "--quiet", "--detach", "--input", "--id", "alive", "--policy",
		cmdtest.Patient(h.Host), "--no-workspace", "--", "cat"), 0, "")
	h.Wants(by(owner, "session", "start", "--id", "opened", "--no-workspace"), 0, "")
	const none = "no (run|shadow|session|record)"
	type answer struct {
		code int
		// On standard output, or a pattern of the error where the code is one of ours.
		text string
	}
	sees := func(text string) map[uint32]answer {
		return map[uint32]answer{owner: {0, text}, reader: {0, text}, 0: {0, text}}
	}
	with := func(all map[uint32]answer, a answer) map[uint32]answer {
		all[other] = a
		return all
	}
	absent := answer{127, none}
	for _, c := range []struct {
		verb string
		who  map[uint32]answer
	}{
		{"ps", with(sees("alive"), answer{0, ""})},
		{"ps --json", with(sees(`"alive"`), answer{0, "[]"})},
		{"session list", with(sees("opened"), answer{0, ""})},
		{"workspaces", with(sees("ended"), answer{0, ""})},
		{"inspect alive", with(sees("alive"), absent)},
		{"inspect ended", with(sees("run.finished"), absent)},
		{"logs alive", with(sees(""), absent)},
		{"logs ended", with(sees("cp 'seed'"), absent)},
		{"wait ended", with(sees(""), absent)},
		{"wait --json ended", with(sees(`"exit_code"`), absent)},
		{"diff ended", with(sees("made"), absent)},
		{"verify alive", with(sees(""), absent)},
		{"audit query --run ended", with(sees("run.finished"), answer{0, ""})},
		{"audit query --json --run alive", with(sees("run.started"), answer{0, ""})},
		{"audit show --run ended", with(sees("run.finished"), answer{0, ""})},
		{"audit show --json --run ended --type run.started",
			with(sees("run.started"), answer{0, ""})},
		{"audit tail --run ended", with(sees("run.finished"), answer{0, ""})},
		{"audit report ended", with(sees("ended"), absent)},
		// What changes something is for its user and root alone; the reader knows that it is there.
		{"attach alive", map[uint32]answer{reader: {126, "(?s)another user's.*jail logs -f alive"},
			other: absent}},
		{"attach ended", map[uint32]answer{reader: {126, "another user's"}, other: absent,
			owner: {0, "cp 'seed'"}, 0: {0, "cp 'seed'"}}},
		{"kill alive", map[uint32]answer{reader: {126, "another user's"}, other: absent}},
		{"commit ended", map[uint32]answer{reader: {126, "another user's"}, other: absent}},
		{"discard ended", map[uint32]answer{reader: {126, "another user's"}, other: absent}},
		{"revert ended", map[uint32]answer{reader: {126, "another user's"}, other: absent}},
		{"session exec opened -- true",
			map[uint32]answer{reader: {126, "another user's"}, other: absent}},
		{"session stop opened", map[uint32]answer{reader: {126, "another user's"}, other: absent}},
		{"kill opened", map[uint32]answer{reader: {126, "another user's"}, other: absent}},
	} {
		for uid, want := range c.who {
			o := by(uid, strings.Fields(c.verb)...)
			if want.code != 0 {
				h.Wants(o, want.code, want.text)
				continue
			}
			if o.Code != 0 || !strings.Contains(o.Out, want.text) {
				t.Errorf("%s by %d: %+v, want %q", c.verb, uid, o, want.text)
			}
			if uid == other && (strings.Contains(o.Out+o.Err, "alive") ||
				strings.Contains(o.Out+o.Err, "ended") || strings.Contains(o.Out+o.Err, "opened")) {
				t.Errorf("%s tells a stranger: %+v", c.verb, o)
			}
		}
	}
	// Nothing was changed by who may only look: all three are as they were, and their user does
	// with them what they like.
	h.Wants(by(owner, "diff", "ended"), 0, "")
	if o := by(owner, "ps"); !strings.Contains(o.Out, "alive") {
		t.Errorf("%+v", o)
	}
	if _, err := os.Stat(filepath.Join(own, "made")); err == nil {
		t.Error("something was committed")
	}
	for _, verb := range []string{"audit verify", "audit export --format jsonl"} {
		h.Wants(by(reader, strings.Fields(verb)...), 126, "permission denied\n.*audit query")
	}
	// Root ends one; its user reads of that, as the one whose run it is, by either way.
	h.Wants(h.Jail("discard", "ended"), 0, "")
	for _, args := range [][]string{{"inspect", "ended"}, {"audit", "query", "--run", "ended"}} {
		if o := by(owner, args...); !strings.Contains(o.Out, "workspace.discarded") {
			t.Errorf("%v: %+v", args, o)
		}
	}
	// Who is taken out of the ceiling sees nothing from the next question on.
	h.Write("ceiling", "policy = 1\n")
	h.Wants(by(reader, "inspect", "ended"), 127, none)
	h.Wants(by(reader, "logs", "alive"), 127, none)
	if o := by(reader, "ps"); strings.Contains(o.Out, "alive") {
		t.Errorf("%+v", o)
	}
	h.Wants(by(owner, "kill", "alive"), 0, "")
	h.Wants(by(owner, "session", "stop", "opened"), 0, "")
}
