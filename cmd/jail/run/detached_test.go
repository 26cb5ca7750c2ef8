package run_test

import (
	"encoding/json"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/supervisor/message"
)

// A detached run goes on without its client; its output and its end can be had while it runs and
// after it, by any client of its owner's.
func TestDetached(t *testing.T) {
	h := cmdtest.New(t)
	d := h.Daemon()
	d.Admit()
	id := cmdtest.Detached(h, "--id", "d1", "--", h.Probe, "both")
	for range 2 {
		if o := h.Jail("wait", id); o.Code != 0 || o.Out != "" {
			t.Errorf("wait: %+v", o)
		}
		if o := h.Jail("logs", "-f", id); o.Out != "to stdout\n" || o.Err != "to stderr\n" {
			t.Errorf("logs: %+v", o)
		}
	}
	var logs struct {
		Stdout, Stderr string
		Result         *message.Result
	}
	if o := h.Jail("logs", "--json", id); json.Unmarshal([]byte(o.Out), &logs) != nil ||
		logs.Stderr != "to stderr\n" || logs.Result == nil || logs.Result.ID != id {
		t.Errorf("logs: %+v", o)
	}
	// Asked for again in the same words it is the same run; in others it is none.
	if again := cmdtest.Detached(h, "--id", "d1", "--", h.Probe, "both"); again != id ||
		len(h.Records(id, "run.started")) != 1 {
		t.Errorf("%q", again)
	}
	h.Wants(h.Jail("run", "--detach", "--id", "d1", "--", h.Probe, "args"), 2,
		"run id d1 is in use, by another request")
	h.Wants(h.Jail("run", "--detach", "--", "no-such-tool"), 127, "no-such-tool")
	h.Wants(h.Jail("run", "--input", "--", "true"), 2, "--input is for --detach")
	if o := h.Jail("wait", cmdtest.Detached(h, "--", h.Probe, "exit", "9")); o.Code != 9 {
		t.Errorf("%+v", o)
	}
	if r := h.ObjectOf("wait", "--json", cmdtest.Detached(h, "--limit", "wall=300ms", "--", h.Probe, "sleep",
		"1h")); r.ExitCode != 124 || r.Limit == nil || r.Limit.Name != "wall" {
		t.Errorf("%+v", r)
	}
	// The output is bounded as that of any run.
	flood := cmdtest.Detached(h, "--limit", "output=64KiB", "--", h.Probe, "flood", "1")
	if r := h.ObjectOf("wait", "--json", flood); !r.Truncated {
		t.Errorf("%+v", r)
	}
	if o := h.Jail("logs", flood); len(o.Out) != 64<<10 {
		t.Errorf("%d bytes of output are kept", len(o.Out))
	}
	for _, args := range [][]string{{"logs", id}, {"wait", id}, {"attach", id}} {
		h.Wants(h.Run(cmdtest.As(h.Command(args...), cmdtest.Stranger)), 127,
			`no run "d1" was started with --detach`)
	}
	h.Wants(h.Jail("logs", "never-was"), 127, `no run "never-was" was started with --detach`)
}

// A client that attaches has the streams, and its going leaves the run alone.
func TestAttach(t *testing.T) {
	h := cmdtest.New(t)
	d := h.Daemon()
	id := cmdtest.Detached(h, "--id", "typed", "--input", "--", h.Probe, "lines")
	first := h.LiveWith(h.Command("attach", id), id)
	h.Wants(h.Jail("attach", id), 125, "another client is attached to run typed")
	if err := first.Cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	first.Wait()
	cmdtest.Eventually(t, "the place is free", func() bool {
		cmd := h.Command("attach", id)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		in.Close()
		o := h.Run(cmd)
		return o.Code == 0 && o.Out == "got hello\n"
	})
	if o := h.Jail("logs", id); o.Out != "got hello\n" {
		t.Errorf("%+v", o)
	}
	// It ends with the daemon; its output stays.
	id = cmdtest.Detached(h, "--id", "waits", "--input", "--", h.Probe, "lines")
	live := h.LiveWith(h.Command("attach", id), id)
	d.Stop()
	if o := live.Wait(); o.Code != 143 {
		t.Errorf("%+v", o)
	}
	d = h.Daemon()
	if o := h.Jail("logs", id); o.Out != "got hello\n" {
		t.Errorf("%+v", o)
	}
	id = cmdtest.Detached(h, "--id", "killed", "--input", "--", h.Probe, "lines")
	h.LiveWith(h.Command("attach", id), id).Cmd.Process.Kill()
	d.Kill()
	h.Daemon()
	defer h.Discard(id)
	h.Wants(h.Jail("wait", id), 125, "its daemon was killed while it ran")
	if o := h.Jail("logs", id); o.Out != "got hello\n" {
		t.Errorf("%+v", o)
	}
}
