package cmd_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/supervisor/message"
)

// detached starts a run that goes on by itself.
func (h *host) detached(args ...string) string {
	h.t.Helper()
	o := h.jail(append([]string{"run", "--detach"}, args...)...)
	id := strings.TrimSpace(o.out)
	if o.code != 0 || id == "" {
		h.t.Fatalf("run --detach %q: %+v", args, o)
	}
	return id
}

// A detached run goes on without its client; its output and its end can be had while it runs and
// after it, by any client of its owner's.
func TestDetached(t *testing.T) {
	h := newHost(t)
	d := h.daemon()
	d.admit()
	id := h.detached("--id", "d1", "--", h.probe, "both")
	for range 2 {
		if o := h.jail("wait", id); o.code != 0 || o.out != "" {
			t.Errorf("wait: %+v", o)
		}
		if o := h.jail("logs", "-f", id); o.out != "to stdout\n" || o.err != "to stderr\n" {
			t.Errorf("logs: %+v", o)
		}
	}
	var logs struct {
		Stdout, Stderr string
		Result         *message.Result
	}
	if o := h.jail("logs", "--json", id); json.Unmarshal([]byte(o.out), &logs) != nil ||
		logs.Stderr != "to stderr\n" || logs.Result == nil || logs.Result.ID != id {
		t.Errorf("logs: %+v", o)
	}
	// Asked for again in the same words it is the same run; in others it is none.
	if again := h.detached("--id", "d1", "--", h.probe, "both"); again != id ||
		len(h.records(id, "run.started")) != 1 {
		t.Errorf("%q", again)
	}
	h.wants(h.jail("run", "--detach", "--id", "d1", "--", h.probe, "args"), 2,
		"run id d1 is in use, by another request")
	h.wants(h.jail("run", "--detach", "--", "no-such-tool"), 127, "no-such-tool")
	h.wants(h.jail("run", "--input", "--", "true"), 2, "--input is for --detach")
	if o := h.jail("wait", h.detached("--", h.probe, "exit", "9")); o.code != 9 {
		t.Errorf("%+v", o)
	}
	if r := h.objectOf("wait", "--json", h.detached("--limit", "wall=300ms", "--", h.probe, "sleep",
		"1h")); r.ExitCode != 124 || r.Limit == nil || r.Limit.Name != "wall" {
		t.Errorf("%+v", r)
	}
	// The output is bounded as that of any run.
	flood := h.detached("--limit", "output=64KiB", "--", h.probe, "flood", "1")
	if r := h.objectOf("wait", "--json", flood); !r.Truncated {
		t.Errorf("%+v", r)
	}
	if o := h.jail("logs", flood); len(o.out) != 64<<10 {
		t.Errorf("%d bytes of output are kept", len(o.out))
	}
	for _, args := range [][]string{{"logs", id}, {"wait", id}, {"attach", id}} {
		h.wants(h.run(as(h.command(args...), stranger)), 127,
			`no run "d1" was started with --detach`)
	}
	h.wants(h.jail("logs", "never-was"), 127, `no run "never-was" was started with --detach`)
}

// A client that attaches has the streams, and its going leaves the run alone.
func TestAttach(t *testing.T) {
	h := newHost(t)
	d := h.daemon()
	id := h.detached("--id", "typed", "--input", "--", h.probe, "lines")
	first := h.liveWith(h.command("attach", id), id)
	h.wants(h.jail("attach", id), 125, "another client is attached to run typed")
	if err := first.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	first.wait()
	eventually(t, "the place is free", func() bool {
		cmd := h.command("attach", id)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		in.Close()
		o := h.run(cmd)
		return o.code == 0 && o.out == "got hello\n"
	})
	if o := h.jail("logs", id); o.out != "got hello\n" {
		t.Errorf("%+v", o)
	}
	// It ends with the daemon; its output stays.
	id = h.detached("--id", "waits", "--input", "--", h.probe, "lines")
	live := h.liveWith(h.command("attach", id), id)
	d.stop()
	if o := live.wait(); o.code != 143 {
		t.Errorf("%+v", o)
	}
	d = h.daemon()
	if o := h.jail("logs", id); o.out != "got hello\n" {
		t.Errorf("%+v", o)
	}
	id = h.detached("--id", "killed", "--input", "--", h.probe, "lines")
	h.liveWith(h.command("attach", id), id).cmd.Process.Kill()
	d.kill()
	h.daemon()
	defer h.discard(id)
	h.wants(h.jail("wait", id), 125, "its daemon was killed while it ran")
	if o := h.jail("logs", id); o.out != "got hello\n" {
		t.Errorf("%+v", o)
	}
}
