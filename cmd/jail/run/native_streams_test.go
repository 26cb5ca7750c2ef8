package run_test

import (
	"os"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// useStreams opens each standard stream by every name that it has, in each direction that it is
// for.
const useStreams = `. /dev/stdin; echo fd >/dev/fd/1; echo proc >>/proc/self/fd/1; echo teed | tee /dev/stderr
echo named >/dev/stderr; echo numbered >/dev/fd/2; echo kept >/tmp/kept; cat /tmp/kept >/dev/stdout`

// usedStreams are what comes of it.
const (
	streamsInput = "echo read >/dev/stdout\n"
	streamsOut   = "read\nfd\nproc\nteed\nkept\n"
	streamsErr   = "teed\nnamed\nnumbered\n"
)

// TestNativeStreamNames: a program of the host opens its streams by name, for any owner of
// the workspace, whether its jail was prewarmed, and with or without a client. The owners are root,
// an ordinary user, and one above the 64 Ki ids of a jail, who has the tmpfs of the jail as well.
func TestNativeStreamNames(t *testing.T) {
	h := cmdtest.New(t)
	h.Pool(2)
	h.Daemon()
	wants := func(name string, o cmdtest.Outcome) {
		t.Helper()
		if o.Code != 0 || o.Out != streamsOut || o.Err != streamsErr {
			t.Errorf("%s: %+v", name, o)
		}
	}
	given := func(args ...string) cmdtest.Outcome {
		cmd := h.Command(append(args, "--", "sh", "-c", useStreams)...)
		cmd.Stdin = strings.NewReader(streamsInput)
		return h.Run(cmd)
	}
	for _, owner := range []int{0, 1000, 100_000} {
		if err := os.Chown(h.Work, owner, owner); err != nil {
			t.Fatal(err)
		}
		wants("run", given("run", "--discard", "--quiet", "--profile", "build"))
	}
	wants("without a workspace", given("run", "--no-workspace", "--profile", "build"))
	id := h.Session("--discard", "--profile", "build")
	for _, want := range []string{cmdtest.StartCold, cmdtest.StartWarm} {
		wants(want, given("session", "exec", id, "--id", want))
		if got := h.StartOf(want); got != want {
			t.Errorf("%s: the call is %s", want, got)
		}
		h.Stands(1)
	}
	h.StopSession(id, 0)
	id = cmdtest.Detached(h, "--no-workspace", "--input", "--profile", "build", "--", "sh", "-c", useStreams)
	cmd := h.Command("attach", id)
	cmd.Stdin = strings.NewReader(streamsInput)
	wants("detached", h.Run(cmd))
}
