package session_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// Invocations that run in one engine at one time have arguments, variables and standard streams of
// their own: none sees those of another.
func TestSharedEngineApart(t *testing.T) {
	h := cmdtest.NewForEngines(t)
	h.Daemon()
	// With fewer processes the session would let the last of them wait for the first.
	id := h.Session("--policy", profileWith(h, "apart",
		"[env]\nallow = [\"*\"]\n[limits]\nwall = \"10m\"\npids = 128"), "--shared-engine")
	const invocations, lines = 4, 200
	all := make([]*cmdtest.LiveRun, invocations)
	for i := range all {
		name := fmt.Sprintf("apart%d", i)
		all[i] = h.LiveWith(h.Command("session", "exec", id, "--id", name, "--env",
			fmt.Sprintf("WORD=env-%d", i), "--", h.Probe, "self", fmt.Sprintf("arg-%d", i)), name)
		// The control: they share a process.
		if a, b := all[0].InitPID(), all[i].InitPID(); a != b {
			t.Errorf("processes %d and %d", a, b)
		}
	}
	written := make(chan error, invocations)
	for i, r := range all {
		go func() {
			for n := range lines {
				if _, err := fmt.Fprintf(r.In, "in-%d-%d\n", i, n); err != nil {
					written <- err
					return
				}
			}
			written <- r.In.Close()
		}()
	}
	for i, r := range all {
		var want strings.Builder
		for n := range lines {
			fmt.Fprintf(&want, "got in-%d-%d\n", i, n)
		}
		o := r.Wait()
		rest, found := strings.CutPrefix(o.Out, want.String())
		own := fmt.Sprintf("\"WORD=env-%d\"", i)
		if o.Code != 0 || o.Err != "" || !found || strings.Count(rest, "\n") != 1 ||
			!strings.HasPrefix(rest, fmt.Sprintf("[\"arg-%d\"] [", i)) ||
			strings.Count(rest, own) != 1 || strings.Count(rest, "env-") != 1 ||
			strings.Count(rest, "arg-") != 1 {
			t.Errorf("invocation %d: %+v", i, o)
		}
	}
	for range all {
		if err := <-written; err != nil {
			t.Error(err)
		}
	}
	h.StopSession(id, 0)
}
