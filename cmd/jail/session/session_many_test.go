package session_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/message"
)

// Fifty invocations of one session at one time have each their own streams and exit code, in jails
// of their own and in a shared engine. A tool answers each line on both outputs.
func TestSessionFiftyAtOnce(t *testing.T) {
	const (
		limits = "[limits]\npids = 1000\nmemory = \"8GiB\"\nwall = \"20m\"\n"
		script = `while read l; do echo out $l; echo err $l >&2; done; exit $0`
	)
	for name, c := range map[string]struct {
		policy func(*cmdtest.Host, string, string) string
		tool   func(*cmdtest.Host) []string
		flags  []string
	}{
		"native": {policy: buildWith,
			tool: func(*cmdtest.Host) []string { return []string{"sh", "-c", script} }},
		"WASI": {policy: profileWith,
			tool: func(h *cmdtest.Host) []string { return []string{h.Probe, "twice"} }},
		"shared engine": {policy: profileWith, flags: []string{"--shared-engine"},
			tool: func(h *cmdtest.Host) []string { return []string{h.Probe, "twice"} }},
	} {
		t.Run(name, func(t *testing.T) {
			h := cmdtest.NewForEngines(t)
			h.Daemon()
			id := h.Session(append(c.flags, "--policy", c.policy(h, "many", limits))...)
			// A module is compiled once, which is not what is tested.
			h.Wants(h.Exec(id, append(append([]string{"--"}, c.tool(h)...), "0")...), 0, "")
			client, err := api.Dial(t.Context(), filepath.Join(h.State, "jail.sock"))
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			talkToMany(t, h, client, id, c.tool(h))
			h.StopSession(id, 0)
		})
	}
}

// talkToMany starts fifty invocations of a tool, talks to all of them in rounds while all run, and
// ends them with different exit codes.
func talkToMany(t *testing.T, h *cmdtest.Host, c *api.Client, session string, tool []string) {
	t.Helper()
	const rounds = 5
	// An emulated processor makes no more than nine jails for sure until a start is overdue.
	many := 50 / min(cmdtest.Slower(), 7)
	ctx, cancel := context.WithTimeout(t.Context(), cmdtest.Bound)
	defer cancel()
	var talks, all sync.WaitGroup
	talks.Add(many)
	done := make(chan struct{})
	for i := range many {
		in, input := io.Pipe()
		output, out := io.Pipe()
		var errOut bytes.Buffer
		ended := make(chan error, 1)
		go func() {
			res, err := c.Exec(ctx, session, message.ExecRequest{Tool: tool[0], Dir: h.Work,
				Args: append(append([]string{}, tool[1:]...), fmt.Sprint(i+1))}, in, out, &errOut,
				nil)
			if err == nil && (res.ExitCode != i+1 || res.Error != nil) {
				err = fmt.Errorf("ended with %+v, %v", res, res.Error)
			}
			err = errors.Join(err, in.Close(), out.Close())
			ended <- err
		}()
		all.Go(func() {
			lines, want := bufio.NewReader(output), ""
			var talk error
			say := func(round int) {
				word := fmt.Sprintf("token-%d-%d", i, round)
				_, err := fmt.Fprintln(input, word)
				line, readErr := lines.ReadString('\n')
				if talk == nil && line != "out "+word+"\n" {
					talk = fmt.Errorf("to %q it said %q: %w", word, line, errors.Join(err, readErr))
				}
				want += "err " + word + "\n"
			}
			say(0)
			talks.Done()
			<-done
			for round := 1; round < rounds; round++ {
				say(round)
			}
			input.Close()
			rest, err := io.ReadAll(lines)
			if err := errors.Join(talk, err, <-ended); err != nil || len(rest) > 0 ||
				errOut.String() != want {
				t.Errorf("invocation %d: %v; it also said %q, and on standard error %q", i, err,
					rest, errOut.String())
			}
		})
	}
	talks.Wait()
	if n := h.Sessions()[0].Running; n != many {
		t.Errorf("%d run at one time", n)
	}
	close(done)
	all.Wait()
}
