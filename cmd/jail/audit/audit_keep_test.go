package audit_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

func auditSettings(h *cmdtest.Host, text string) {
	h.T.Helper()
	if err := os.WriteFile(filepath.Join(h.State, "audit.toml"), []byte(text), 0o600); err != nil {
		h.T.Fatal(err)
	}
}

// TestAnchorsOfDaemon: root, who has the key, makes the log anew. It verifies, and not with the
// heads that the daemon sent away before.
func TestAnchorsOfDaemon(t *testing.T) {
	h := cmdtest.New(t)
	kept := filepath.Join(h.Root, "kept")
	auditSettings(h, "[[anchor]]\nname = \"kept\"\nto = \""+kept+"\"\nevery = \"1s\"\n")
	runs := func() {
		d := h.Daemon()
		for range 3 {
			h.Wants(h.Jail("run", "--no-workspace", "--", h.Probe), 0, "")
		}
		d.Stop()
	}
	runs()
	h.Says(h.Jail("audit", "verify", "--anchor", kept), 0, "it fits ")
	log := filepath.Join(h.State, "audit")
	if err := errors.Join(os.RemoveAll(log),
		os.Remove(filepath.Join(h.State, "state", "keys", "audit.head"))); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(kept, kept+".old"); err != nil {
		t.Fatal(err)
	}
	runs()
	h.Wants(h.Jail("audit", "verify"), 0, "") // the control
	h.Wants(h.Jail("audit", "verify", "--anchor", kept), 0, "")
	h.Wants(h.Jail("audit", "verify", "--anchor", kept+".old"), 1, "another history|the log ends")
	h.Wants(h.Jail("audit", "verify", "--anchor", filepath.Join(h.Root, "none")), 127, "none")
}

// TestAnchorFails: an anchor that cannot be reached stops no run; the log, jail doctor and jail
// audit anchor report it.
func TestAnchorFails(t *testing.T) {
	h := cmdtest.New(t)
	auditSettings(h,
		"[[anchor]]\nname = \"away\"\nto = \"/no/such/directory/kept\"\nevery = \"1s\"\n")
	d := h.Daemon()
	h.Wants(h.Jail("run", "--no-workspace", "--", h.Probe), 0, "")
	h.Says(h.Jail("audit", "anchor"), 1, "no such file")
	h.Says(h.Jail("doctor"), 1, "anchor away")
	d.Stop()
	if n := len(h.Records("", "anchor")); n != 1 {
		t.Errorf("%d records of it", n)
	}
	auditSettings(h, "[[anchor]]\nname = \"away\"\n")
	h.Wants(h.Jail("run", "--no-workspace", "--", h.Probe), 125, "audit.toml")
	auditSettings(h, "")
}

// TestRetentionByDaemon: a daemon takes old segments away as the operator says, and what is left
// verifies.
func TestRetentionByDaemon(t *testing.T) {
	h := cmdtest.New(t)
	auditSettings(h, "[log]\nsegment_size = \"64KiB\"\n[keep]\nsize = \"1MiB\"\n")
	script := "i=0; while [ $i -lt 3000 ]; do : > /tmp/a-name-that-is-long-enough-to-fill-the-log-soon-$i; i=$((i+1)); done"
	// The second daemon prunes when it starts.
	for range 2 {
		d := h.Daemon()
		h.Wants(h.Jail("run", "--discard", "--quiet", "--policy",
			watchedPolicy(h, "build", "changes"), "--", "/bin/sh", "-c", script), 0, "")
		d.Stop()
	}
	d := h.Daemon()
	d.Stop()
	o := h.Jail("audit", "verify", "--json")
	var v struct {
		OK     bool
		Pruned int
	}
	if err := json.Unmarshal([]byte(o.Out), &v); err != nil || !v.OK || v.Pruned == 0 {
		t.Errorf("%s%s %v", o.Out, o.Err, err)
	}
}

// TestCompressionByDaemon: a daemon packs the segments that are done with, as the operator says;
// every reader reads them, and what is there is what was written.
func TestCompressionByDaemon(t *testing.T) {
	h := cmdtest.New(t)
	settings := "[log]\nsegment_size = \"64KiB\"\n"
	auditSettings(h, settings)
	script := "i=0; while [ $i -lt 1500 ]; do : > /tmp/a-name-that-is-long-enough-to-fill-the-log-soon-$i; i=$((i+1)); done"
	h.Wants(h.Jail("run", "--discard", "--quiet", "--id", "r", "--policy",
		watchedPolicy(h, "build", "changes"), "--", "/bin/sh", "-c", script), 0, "")
	before := h.Jail("audit", "query", "--run", "r", "--json").Out
	packed := func() int {
		list, err := filepath.Glob(filepath.Join(h.State, "audit", "*.jsonl.gz"))
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	d := h.Daemon()
	d.Stop()
	if n := packed(); n != 0 { // the control
		t.Errorf("%d segments are packed, and nobody asked for it", n)
	}
	auditSettings(h, settings+"compress = true\n")
	d = h.Daemon()
	cmdtest.Eventually(t, "segments are packed", func() bool { return packed() > 0 })
	d.Stop()
	h.Wants(h.Jail("audit", "verify"), 0, "")
	if after := h.Jail("audit", "query", "--run", "r", "--json").Out; after != before ||
		strings.Count(before, "\n") < 1500 {
		t.Errorf("%d bytes of records before, %d after", len(before), len(after))
	}
	h.Says(h.Jail("audit", "prove", "2"), 0, "c2sp.org/tlog-proof")
	if o := h.Jail("audit", "export", "--run", "r"); o.Code != 0 || o.Out != before {
		t.Errorf("export: %d bytes, %s", len(o.Out), o.Err)
	}
	auditSettings(h, "[log]\ncompress = \"yes\"\n")
	h.Wants(h.Jail("run", "--no-workspace", "--", h.Probe), 125, "audit.toml.*compress")
}

// TestIndex: a search finds the same records with the index as without, for users who may only read
// the index and for those who may write it. A damaged index is reported and built again.
func TestIndex(t *testing.T) {
	h := cmdtest.New(t)
	h.Wants(h.Jail("run", "--id", "first", "--no-workspace", "--", h.Probe), 0, "")
	log := filepath.Join(h.Root, "copy")
	take := func() {
		t.Helper()
		if err := os.CopyFS(log, os.DirFS(filepath.Join(h.State, "audit"))); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(log, 0o755); err != nil {
			t.Fatal(err)
		}
		all, err := filepath.Glob(filepath.Join(log, "*"))
		for _, path := range all {
			err = errors.Join(err, os.Chmod(path, 0o644))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	take()
	h.Says(h.Jail("audit", "index", "--log", log), 0, "new in the index")
	h.Says(h.Jail("audit", "index", "--log", log), 0, "0 records are new")
	index := filepath.Join(log, "index.sqlite")
	kept, err := os.ReadFile(index)
	if err != nil {
		t.Fatal(err)
	}
	// The log goes on, and the index does not.
	if err := os.RemoveAll(log); err != nil {
		t.Fatal(err)
	}
	h.Wants(h.Jail("run", "--id", "second", "--no-workspace", "--", h.Probe), 0, "")
	take()
	if err := os.WriteFile(index, kept, 0o644); err != nil {
		t.Fatal(err)
	}
	same := func(who string, run func(args ...string) cmdtest.Outcome, warning string) {
		t.Helper()
		for _, id := range []string{"first", "second", "none"} {
			without := run("audit", "query", "--log", log, "--json", "--run", id, "--no-index")
			with := run("audit", "query", "--log", log, "--json", "--run", id)
			if with.Code != 0 || with.Out != without.Out || (with.Out == "") != (id == "none") ||
				warning == "" && with.Err != "" {
				t.Errorf("%s, %s: %+v, without the index %+v", who, id, with, without)
			}
			if warning != "" && !strings.Contains(with.Err, warning) {
				t.Errorf("%s, %s: it said %q", who, id, with.Err)
			}
			if warning == "made anew" {
				warning = ""
			}
		}
	}
	reader := func(args ...string) cmdtest.Outcome { return h.Run(cmdtest.As(h.Command(args...), cmdtest.Stranger)) }
	same("a reader", reader, "")
	h.Wants(reader("audit", "index", "--log", log, "--rebuild"), 125, "permission denied")
	same("the owner", h.Jail, "")
	if err := os.WriteFile(index, []byte(strings.Repeat("damaged ", 1000)), 0o644); err != nil {
		t.Fatal(err)
	}
	same("a reader of a damaged one", reader, "not used")
	same("the owner of a damaged one", h.Jail, "made anew")
	h.Says(h.Jail("audit", "index", "--log", log, "--rebuild"), 0, "new in the index")
	h.Wants(h.Jail("audit", "verify", "--log", log), 0, "")
}

// TestExport: what is exported is what query finds, and a cursor goes on where the last export was.
func TestExport(t *testing.T) {
	h := cmdtest.New(t)
	h.Wants(h.Jail("run", "--no-workspace", "--", h.Probe), 0, "")
	cursor := filepath.Join(h.Root, "cursor")
	for range 2 {
		found := h.Jail("audit", "query", "--json").Out
		first := h.Jail("audit", "export", "--cursor", cursor)
		h.Wants(first, 0, "")
		if !strings.HasSuffix(found, first.Out) || first.Out == "" {
			t.Errorf("exported %q of %q", first.Out, found)
		}
		if again := h.Jail("audit", "export", "--cursor", cursor); again.Out != "" ||
			again.Err != "" {
			t.Errorf("again: %+v", again)
		}
		h.Wants(h.Jail("run", "--no-workspace", "--", h.Probe), 0, "")
	}
	h.Wants(h.Jail("audit", "export", "--format", "xml"), 2, "there are jsonl, ocsf")
	h.Wants(h.Jail("audit", "export", "--format", "csv"), 2, "was removed in 0.8: use jsonl")
	h.Wants(h.Jail("audit", "export", "--format", "syslog", "--to", "udp://x:1"), 2,
		"was removed in 0.8: use journald, or jsonl")
	h.Wants(h.Jail("audit", "export", "--format", "ocsf", "--to", "udp://x:1"), 2,
		"ocsf does not go to")
	h.Wants(h.Jail("audit", "export", "--format", "otlp", "--to", "http://127.0.0.1:1", "--tries",
		"1"), 125, "connection refused")
	h.Wants(h.Jail("audit", "export", "--log", filepath.Join(h.Root, "none")), 127, "")
}
