package session_test

import (
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// With --keep-env the exports, the unsets and the directory that a shell leaves are there for the
// next invocation of that session, and for no other.
func TestSessionKeepsEnvironment(t *testing.T) {
	h := cmdtest.NewNative(t)
	h.Daemon()
	id := h.Session("--profile", "build", "--env", "GONE=1", "--env", "KEPT=start")
	const show = `pwd | sed 's,.*/,,'; echo "$A:$B:${GONE-none}:$KEPT"`
	want := func(what, session, text string, args ...string) {
		t.Helper()
		args = append(args, "--", "sh", "-c", show)
		if o := h.Exec(session, args...); o.Code != 0 || !strings.HasSuffix(o.Out, text+"\n") {
			t.Errorf("%s: %+v, want %q", what, o, text)
		}
	}
	keep := func(shell, script string, code int) cmdtest.Outcome {
		t.Helper()
		o := h.Exec(id, "--keep-env", "--", shell, "-c", script)
		if o.Code != code {
			t.Errorf("%s: %+v", script, o)
		}
		return o
	}
	h.Exec(id, "--", "sh", "-c", "export A=lost")
	want("without the flag", id, "::1:start")
	keep("bash", "mkdir -p one/two; cd one\nexport A=\"s3cret $((4 + 5))\"; unset GONE; KEPT=end; exit 3", 3)
	want("after bash", id, "one\ns3cret 9::none:end")
	want("with variables of its own", id, "one\ngiven::none:end", "--env", "A=given")
	want("with a directory of its own", id, "two\ns3cret 9::none:end", "--cwd", "one/two")
	keep("sh", "cd two; export B=b GONE=again PATH=/nowhere", 0)
	keep("bash", "export PATH=/usr/bin:/bin; cd /tmp", 0)
	want("after sh, outside of the workspace", id, "two\ns3cret 9:b:again:end")
	other := h.Session("--profile", "build")
	want("another session", other, "::none:")
	records := h.Jail("audit", "query", "--json", "--session", id).Out
	if strings.Contains(records, "s3cret 9") || !strings.Contains(records, `"kept_env":["A","KEPT"]`) ||
		!strings.Contains(records, `"unset_env":["GONE"]`) {
		t.Errorf("records:\n%s", records)
	}
	h.Wants(h.Jail("run", "--keep-env", "--", "true"), 2, "keep-env")
	h.StopSession(other, 0)
	h.StopSession(id, 2, "--discard")
}

// What a tool leaves is data: its size is bounded, and a policy says which names a caller may set.
func TestSessionKeepsWhatPolicyAllows(t *testing.T) {
	h := cmdtest.NewNative(t)
	h.Daemon()
	id := h.Session("--policy", buildWith(h, "narrow", "[env]\nallow = [\"A\"]\n[without.env]\nallow = [\"*\"]"))
	keep := func(script string) cmdtest.Outcome {
		return h.Exec(id, "--keep-env", "--", "bash", "-c", script)
	}
	keep("export A=1 B=2 HOME=/tmp LD_PRELOAD=x; unset TMPDIR")
	const show = `echo "$A:$B:$HOME:$LD_PRELOAD:$TMPDIR"`
	if o := h.Exec(id, "--", "bash", "-c", show); o.Out != "1::/home/tool::/tmp\n" {
		t.Errorf("%+v", o)
	}
	o := keep(`export A=$(head -c 70000 /dev/zero | tr '\0' a)`)
	if o.Code != 0 || !strings.Contains(o.Err, "nothing of this invocation's was kept") {
		t.Errorf("too much: %+v", o)
	}
	// Whoever has the descriptor may write what it likes.
	keep(`printf '/etc\0A=2\0\0\0A' >&29; exec true`)
	if o := h.Exec(id, "--", "bash", "-c", show); o.Out != "1::/home/tool::/tmp\n" {
		t.Errorf("after what is no report: %+v", o)
	}
	keep(`printf '/etc\0A=2\0=3\0A/B=4\0B=5\0\0' >&29; exec true`)
	if o := h.Exec(id, "--", "bash", "-c", show); o.Out != "2::/home/tool::/tmp\n" {
		t.Errorf("after a report of its own: %+v", o)
	}
	if o := h.Exec(id, "--", "pwd"); strings.Contains(o.Out, "etc") {
		t.Errorf("it starts in a directory that is not the workspace's: %+v", o)
	}
	h.StopSession(id, 0)
}
