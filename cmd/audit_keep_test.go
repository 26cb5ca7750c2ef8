package cmd_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func (h *host) auditSettings(text string) {
	h.t.Helper()
	if err := os.WriteFile(filepath.Join(h.state, "audit.toml"), []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

// says checks what a command answers on standard output.
func (h *host) says(o outcome, code int, text string) {
	h.t.Helper()
	if o.code != code || !strings.Contains(o.out, text) {
		h.t.Errorf("exit code %d, want %d and %q in\n%s%s", o.code, code, text, o.out, o.err)
	}
}

// TestAnchorsOfDaemon: root, who has the key, makes the log anew. It verifies, and not with the
// heads that the daemon sent away before.
func TestAnchorsOfDaemon(t *testing.T) {
	h := newHost(t)
	kept := filepath.Join(h.root, "kept")
	h.auditSettings("[[anchor]]\nname = \"kept\"\nto = \"" + kept + "\"\nevery = \"1s\"\n")
	runs := func() {
		d := h.daemon()
		for range 3 {
			h.wants(h.jail("run", "--no-workspace", "--", h.probe), 0, "")
		}
		d.stop()
	}
	runs()
	h.says(h.jail("audit", "verify", "--anchor", kept), 0, "it fits ")
	log := filepath.Join(h.state, "audit")
	if err := errors.Join(os.RemoveAll(log),
		os.Remove(filepath.Join(h.state, "state", "keys", "audit.head"))); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(kept, kept+".old"); err != nil {
		t.Fatal(err)
	}
	runs()
	h.wants(h.jail("audit", "verify"), 0, "") // the control
	h.wants(h.jail("audit", "verify", "--anchor", kept), 0, "")
	h.wants(h.jail("audit", "verify", "--anchor", kept+".old"), 1, "another history|the log ends")
	h.wants(h.jail("audit", "verify", "--anchor", filepath.Join(h.root, "none")), 127, "none")
}

// TestAnchorFails: an anchor that cannot be reached stops no run; the log, jail doctor and jail audit
// anchor report it.
func TestAnchorFails(t *testing.T) {
	h := newHost(t)
	h.auditSettings(
		"[[anchor]]\nname = \"away\"\nto = \"/no/such/directory/kept\"\nevery = \"1s\"\n")
	d := h.daemon()
	h.wants(h.jail("run", "--no-workspace", "--", h.probe), 0, "")
	h.says(h.jail("audit", "anchor"), 1, "no such file")
	h.says(h.jail("doctor"), 1, "anchor away")
	d.stop()
	if n := len(h.records("", "anchor")); n != 1 {
		t.Errorf("%d records of it", n)
	}
	h.auditSettings("[[anchor]]\nname = \"away\"\n")
	h.wants(h.jail("run", "--no-workspace", "--", h.probe), 125, "audit.toml")
	h.auditSettings("")
}

// TestRetentionByDaemon: a daemon takes old segments away as the operator says, and what is left
// verifies.
func TestRetentionByDaemon(t *testing.T) {
	h := newHost(t)
	h.auditSettings("[log]\nsegment_size = \"64KiB\"\n[keep]\nsize = \"1MiB\"\n")
	script := "i=0; while [ $i -lt 3000 ]; do : > /tmp/a-name-that-is-long-enough-to-fill-the-log-soon-$i; i=$((i+1)); done"
	// The second daemon prunes when it starts.
	for range 2 {
		d := h.daemon()
		h.wants(h.jail("run", "--discard", "--quiet", "--policy",
			h.watchedPolicy("build", "changes"), "--", "/bin/sh", "-c", script), 0, "")
		d.stop()
	}
	d := h.daemon()
	d.stop()
	o := h.jail("audit", "verify", "--json")
	var v struct {
		OK     bool
		Pruned int
	}
	if err := json.Unmarshal([]byte(o.out), &v); err != nil || !v.OK || v.Pruned == 0 {
		t.Errorf("%s%s %v", o.out, o.err, err)
	}
}

// TestCompressionByDaemon: a daemon packs the segments that are done with, as the operator says;
// every reader reads them, and what is there is what was written.
func TestCompressionByDaemon(t *testing.T) {
	h := newHost(t)
	settings := "[log]\nsegment_size = \"64KiB\"\n"
	h.auditSettings(settings)
	script := "i=0; while [ $i -lt 1500 ]; do : > /tmp/a-name-that-is-long-enough-to-fill-the-log-soon-$i; i=$((i+1)); done"
	h.wants(h.jail("run", "--discard", "--quiet", "--id", "r", "--policy",
		h.watchedPolicy("build", "changes"), "--", "/bin/sh", "-c", script), 0, "")
	before := h.jail("audit", "query", "--run", "r", "--json").out
	packed := func() int {
		list, err := filepath.Glob(filepath.Join(h.state, "audit", "*.jsonl.gz"))
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	d := h.daemon()
	d.stop()
	if n := packed(); n != 0 { // the control
		t.Errorf("%d segments are packed, and nobody asked for it", n)
	}
	h.auditSettings(settings + "compress = true\n")
	d = h.daemon()
	eventually(t, "segments are packed", func() bool { return packed() > 0 })
	d.stop()
	h.wants(h.jail("audit", "verify"), 0, "")
	if after := h.jail("audit", "query", "--run", "r", "--json").out; after != before ||
		strings.Count(before, "\n") < 1500 {
		t.Errorf("%d bytes of records before, %d after", len(before), len(after))
	}
	h.says(h.jail("audit", "prove", "2"), 0, "c2sp.org/tlog-proof")
	if o := h.jail("audit", "export", "--run", "r"); o.code != 0 || o.out != before {
		t.Errorf("export: %d bytes, %s", len(o.out), o.err)
	}
	h.auditSettings("[log]\ncompress = \"yes\"\n")
	h.wants(h.jail("run", "--no-workspace", "--", h.probe), 125, "audit.toml.*compress")
}

// TestIndex: a search finds the same records with the index as without, for users who may only read
// the index and for those who may write it. A damaged index is reported and built again.
func TestIndex(t *testing.T) {
	h := newHost(t)
	h.wants(h.jail("run", "--id", "first", "--no-workspace", "--", h.probe), 0, "")
	log := filepath.Join(h.root, "copy")
	take := func() {
		t.Helper()
		if err := os.CopyFS(log, os.DirFS(filepath.Join(h.state, "audit"))); err != nil {
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
	h.says(h.jail("audit", "index", "--log", log), 0, "new in the index")
	h.says(h.jail("audit", "index", "--log", log), 0, "0 records are new")
	index := filepath.Join(log, "index.sqlite")
	kept, err := os.ReadFile(index)
	if err != nil {
		t.Fatal(err)
	}
	// The log goes on, and the index does not.
	if err := os.RemoveAll(log); err != nil {
		t.Fatal(err)
	}
	h.wants(h.jail("run", "--id", "second", "--no-workspace", "--", h.probe), 0, "")
	take()
	if err := os.WriteFile(index, kept, 0o644); err != nil {
		t.Fatal(err)
	}
	same := func(who string, run func(args ...string) outcome, warning string) {
		t.Helper()
		for _, id := range []string{"first", "second", "none"} {
			without := run("audit", "query", "--log", log, "--json", "--run", id, "--no-index")
			with := run("audit", "query", "--log", log, "--json", "--run", id)
			if with.code != 0 || with.out != without.out || (with.out == "") != (id == "none") ||
				warning == "" && with.err != "" {
				t.Errorf("%s, %s: %+v, without the index %+v", who, id, with, without)
			}
			if warning != "" && !strings.Contains(with.err, warning) {
				t.Errorf("%s, %s: it said %q", who, id, with.err)
			}
			if warning == "made anew" {
				warning = ""
			}
		}
	}
	reader := func(args ...string) outcome { return h.run(as(h.command(args...), stranger)) }
	same("a reader", reader, "")
	h.wants(reader("audit", "index", "--log", log, "--rebuild"), 125, "permission denied")
	same("the owner", h.jail, "")
	if err := os.WriteFile(index, []byte(strings.Repeat("damaged ", 1000)), 0o644); err != nil {
		t.Fatal(err)
	}
	same("a reader of a damaged one", reader, "not used")
	same("the owner of a damaged one", h.jail, "made anew")
	h.says(h.jail("audit", "index", "--log", log, "--rebuild"), 0, "new in the index")
	h.wants(h.jail("audit", "verify", "--log", log), 0, "")
}

// TestExport: what is exported is what query finds, and a cursor goes on where the last export was.
func TestExport(t *testing.T) {
	h := newHost(t)
	h.wants(h.jail("run", "--no-workspace", "--", h.probe), 0, "")
	cursor := filepath.Join(h.root, "cursor")
	for range 2 {
		found := h.jail("audit", "query", "--json").out
		first := h.jail("audit", "export", "--cursor", cursor)
		h.wants(first, 0, "")
		if !strings.HasSuffix(found, first.out) || first.out == "" {
			t.Errorf("exported %q of %q", first.out, found)
		}
		if again := h.jail("audit", "export", "--cursor", cursor); again.out != "" ||
			again.err != "" {
			t.Errorf("again: %+v", again)
		}
		h.wants(h.jail("run", "--no-workspace", "--", h.probe), 0, "")
	}
	h.wants(h.jail("audit", "export", "--format", "xml"), 2, "there are \\[jsonl ocsf")
	h.wants(h.jail("audit", "export", "--format", "csv"), 2, "was removed in 0.8: use jsonl")
	h.wants(h.jail("audit", "export", "--format", "syslog", "--to", "udp://x:1"), 2,
		"was removed in 0.8: use journald, or jsonl")
	h.wants(h.jail("audit", "export", "--format", "ocsf", "--to", "udp://x:1"), 2,
		"ocsf does not go to")
	h.wants(h.jail("audit", "export", "--format", "otlp", "--to", "http://127.0.0.1:1", "--tries",
		"1"), 125, "connection refused")
	h.wants(h.jail("audit", "export", "--log", filepath.Join(h.root, "none")), 127, "")
}
