package run_test

import (
	"errors"
	"strconv"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// T-419: keys that make signals end the run, which is on record with the signal's name.
func TestTerminalKeys(t *testing.T) {
	for _, c := range []struct {
		keys, signal string
		code         int
	}{{cmdtest.CtrlC, "SIGINT", 130}, {cmdtest.CtrlBackslash, "SIGQUIT", 131}, {cmdtest.CtrlC + cmdtest.CtrlC, "SIGINT", 130},
		{cmdtest.CtrlD, "", 0}} {
		t.Run(strconv.QuoteToASCII(c.keys), func(t *testing.T) {
			h, x := cmdtest.New(t), cmdtest.NewTerminal(t)
			cmd := h.Command("run", "--id", "victim", "--", h.Probe, "lines")
			x.Start(cmd)
			x.Types("hello\n")
			x.Shows("got hello")
			x.Types(c.keys)
			if code := h.ExitCode(cmd, cmd.Wait()); code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			cmdtest.Eventually(t, "the end is on record", func() bool {
				return len(h.Records("victim", "run.finished")) > 0
			})
			// The second may come while the first is under way, and cut the run off.
			if c.keys == cmdtest.CtrlC+cmdtest.CtrlC {
				if r := h.Finished("victim"); r.Signal != "SIGINT" && r.Signal != "SIGKILL" {
					t.Errorf("%+v", r)
				}
			} else if r := h.Finished("victim"); r.Signal != c.signal || r.ExitCode != c.code {
				t.Errorf("%+v", r)
			}
			h.WantNothingLeft()
			x.WantAsBefore()
		})
	}
}

// A shell stops the client and continues it; the run goes on as if nothing had been.
func TestTerminalStop(t *testing.T) {
	h, x := cmdtest.New(t), cmdtest.NewTerminal(t)
	shell := h.Program("/bin/bash", "--norc", "--noprofile", "--noediting", "-i")
	shell.Env = append(shell.Env, "PS1=ready> ", "PROBE="+h.Probe, "TERM=dumb")
	x.Start(shell)
	x.Shows("ready> ")
	x.Types("jail run --id victim -- $PROBE lines\n")
	x.Types("hello\n")
	x.Shows("got hello")
	for range 3 {
		x.Types(cmdtest.CtrlZ)
		x.Shows("Stopped")
		x.Shows("ready> ")
		if len(h.Records("victim", "run.finished")) > 0 {
			t.Fatal("the run ended when its client was stopped")
		}
		x.Types("fg\n")
		// The shell says what it continues.
		x.Shows("jail run")
		x.Types("again\n")
		x.Shows("got again")
	}
	x.Types(cmdtest.CtrlD)
	x.Shows("ready> ")
	x.Types("echo code=$?\n")
	x.Shows("code=0")
	x.Types("exit 5\n")
	if code := h.ExitCode(shell, shell.Wait()); code != 5 {
		t.Errorf("exit code %d of the shell", code)
	}
	if r := h.Finished("victim"); r.ExitCode != 0 || r.Signal != "" {
		t.Errorf("%+v", r)
	}
	x.WantAsBefore()
}

// The terminal goes away, as a connection does.
func TestTerminalGone(t *testing.T) {
	h, x := cmdtest.New(t), cmdtest.NewTerminal(t)
	// Which does not end when its input does.
	cmd := h.Command("run", "--id", "victim", "--", h.Probe, "hold")
	x.Start(cmd)
	x.Types("hello\n")
	x.Shows("got hello")
	if err := errors.Join(x.Slave.Close(), x.Master.Close()); err != nil {
		t.Fatal(err)
	}
	if code := h.ExitCode(cmd, cmd.Wait()); code != 129 {
		t.Errorf("exit code %d, want 129", code)
	}
	if r := h.Finished("victim"); r.Signal != "SIGHUP" {
		t.Errorf("%+v", r)
	}
}
