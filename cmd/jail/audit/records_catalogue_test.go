package audit_test

import (
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// T-538: whatever starts, changes or ends something is on record, also where it was refused.
// TestReloadInForce has that of policies.
func TestChangesAreOnRecord(t *testing.T) {
	h := cmdtest.New(t)
	d := h.Daemon()
	wants := func(run string, types ...string) {
		t.Helper()
		for _, kind := range types {
			if len(h.Records(run, kind)) == 0 {
				t.Errorf("run %q: no record of type %s", run, kind)
			}
		}
	}
	h.Wants(h.Jail("run", "--id", "refused", "--workspace", "/", "--", "true"), 126,
		"root of the host")
	wants("", "daemon.started")
	wants("refused", "run.finished")
	h.Wants(h.Jail("run", "--id", "unknown", "--", "no-such-tool"), 127, "no-such-tool")
	wants("unknown", "run.finished")

	live := h.Live("killed")
	h.Wants(h.Jail("kill", "killed"), 0, "")
	if o := live.Wait(); o.Code != 137 {
		t.Errorf("%+v", o)
	}
	wants("killed", "run.started", "run.finished")
	h.Jail("run", "--id", "limited", "--discard", "--limit", "output=1KiB", "--", "seq", "10000")
	wants("limited", "run.started", "limit", "run.finished")

	for _, id := range []string{"one", "two"} {
		h.Wants(h.Jail("run", "--quiet", "--id", id, "--keep", "--", "touch", id), 0, "")
		wants(id, "run.started", "workspace.changed", "run.finished")
	}
	h.Wants(h.Jail("commit", "one"), 0, "")
	wants("one", "workspace.committed")
	h.Wants(h.Jail("revert", "one"), 0, "")
	wants("one", "workspace.reverted")
	h.Discard("two")
	wants("two", "workspace.discarded")

	h.Session("--id", "held", "--no-workspace")
	wants("held", "run.started")
	h.Wants(h.Exec("held", "--id", "call", "--", "true"), 0, "")
	wants("call", "run.started", "run.finished")
	h.StopSession("held", 0)
	wants("held", "run.finished")

	// What is kept of it.
	h.Discard("one")
	d.Stop()
	wants("", "daemon.stopped")
}
