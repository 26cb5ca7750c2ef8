package cmd_test

import "testing"

// T-538: whatever starts, changes or ends something is on record, also where it was refused.
// TestReloadInForce has that of policies.
func TestChangesAreOnRecord(t *testing.T) {
	h := newHost(t)
	d := h.daemon()
	wants := func(run string, types ...string) {
		t.Helper()
		for _, kind := range types {
			if len(h.records(run, kind)) == 0 {
				t.Errorf("run %q: no record of type %s", run, kind)
			}
		}
	}
	h.wants(h.jail("run", "--id", "refused", "--workspace", "/", "--", "true"), 126,
		"root of the host")
	wants("", "daemon.started")
	wants("refused", "run.finished")
	h.wants(h.jail("run", "--id", "unknown", "--", "no-such-tool"), 127, "no-such-tool")
	wants("unknown", "run.finished")

	live := h.live("killed")
	h.wants(h.jail("kill", "killed"), 0, "")
	if o := live.wait(); o.code != 137 {
		t.Errorf("%+v", o)
	}
	wants("killed", "run.started", "run.finished")
	h.jail("run", "--id", "limited", "--discard", "--limit", "output=1KiB", "--", "seq", "10000")
	wants("limited", "run.started", "limit", "run.finished")

	for _, id := range []string{"one", "two"} {
		h.wants(h.jail("run", "--quiet", "--id", id, "--keep", "--", "touch", id), 0, "")
		wants(id, "run.started", "workspace.changed", "run.finished")
	}
	h.wants(h.jail("commit", "one"), 0, "")
	wants("one", "workspace.committed")
	h.wants(h.jail("revert", "one"), 0, "")
	wants("one", "workspace.reverted")
	h.discard("two")
	wants("two", "workspace.discarded")

	h.session("--id", "held", "--no-workspace")
	wants("held", "run.started")
	h.wants(h.exec("held", "--id", "call", "--", "true"), 0, "")
	wants("call", "run.started", "run.finished")
	h.stopSession("held", 0)
	wants("held", "run.finished")

	// What is kept of it.
	h.discard("one")
	d.stop()
	wants("", "daemon.stopped")
}
