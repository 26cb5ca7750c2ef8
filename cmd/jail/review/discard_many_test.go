package review_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/supervisor/shadows"
)

func shadowsOf(h *cmdtest.Host) (ids []string) {
	h.T.Helper()
	var all []shadows.WorkspaceInfo
	if o := h.Jail("workspaces", "--json"); json.Unmarshal([]byte(o.Out), &all) != nil {
		h.T.Fatalf("workspaces: %+v", o)
	}
	for _, w := range all {
		ids = append(ids, w.ID)
	}
	slices.Sort(ids)
	return ids
}

// jail discard --all and --older ask once, take the shadows that nothing uses, and leave those of
// open sessions and live runs alone.
func TestDiscardMany(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	h.Files(map[string]string{"a": "one\n"})
	for _, id := range []string{"d1", "d2"} {
		h.Wants(h.Jail("run", "--id", id, "--", "sed", "-i", "s/one/"+id+"/", "a"), 0, "")
	}
	session := h.Session("--id", "open")
	h.Wants(h.Exec(session, "--", "touch", "made"), 0, "")
	answer := func(text string, args ...string) cmdtest.Outcome {
		cmd := h.Command(append([]string{"discard"}, args...)...)
		cmd.Stdin = strings.NewReader(text)
		return h.Run(cmd)
	}
	want := func(ids ...string) {
		t.Helper()
		if got := shadowsOf(h); !slices.Equal(got, ids) {
			t.Errorf("shadows %q, want %q", got, ids)
		}
	}
	for _, no := range []string{"", "n\n", "\n", "yes please\n"} {
		if o := answer(no, "--all"); o.Code != 1 || !strings.HasPrefix(o.Err,
			"Discard 2 shadows (") || !strings.HasSuffix(o.Err, "nothing was discarded\n") {
			t.Errorf("answer %q: %+v", no, o)
		}
	}
	want("d1", "d2", "open")
	if o := answer("", "--older", "1d"); o.Code != 0 || o.Out != "discarded 0 shadows\n" {
		t.Errorf("none so old: %+v", o)
	}
	if o := answer("y\n", "--all"); o.Code != 0 ||
		o.Out != "discarded 2 shadows, and left 1 that is in use\n" {
		t.Errorf("all: %+v", o)
	}
	want("open")
	h.Wants(h.Exec(session, "--", "ls", "made"), 0, "")
	h.StopSession(session, 1)
	if o := answer("", "--older", "0s", "--yes", "--json"); o.Code != 0 ||
		strings.Join(strings.Fields(o.Out), "") != `{"discarded":["open"],"open":[]}` {
		t.Errorf("with --yes: %+v", o)
	}
	want()
	h.Wants(answer("", "--all", "x"), 2, "too many")
	h.Wants(answer("", "--older", "soon"), 2, "--older soon: want how long ago")
}
