package cmd_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/supervisor/shadows"
)

func (h *host) shadows() (ids []string) {
	h.t.Helper()
	var all []shadows.WorkspaceInfo
	if o := h.jail("workspaces", "--json"); json.Unmarshal([]byte(o.out), &all) != nil {
		h.t.Fatalf("workspaces: %+v", o)
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
	h := newHost(t)
	h.daemon()
	h.files(map[string]string{"a": "one\n"})
	for _, id := range []string{"d1", "d2"} {
		h.wants(h.jail("run", "--id", id, "--", "sed", "-i", "s/one/"+id+"/", "a"), 0, "")
	}
	session := h.session("--id", "open")
	h.wants(h.exec(session, "--", "touch", "made"), 0, "")
	answer := func(text string, args ...string) outcome {
		cmd := h.command(append([]string{"discard"}, args...)...)
		cmd.Stdin = strings.NewReader(text)
		return h.run(cmd)
	}
	want := func(ids ...string) {
		t.Helper()
		if got := h.shadows(); !slices.Equal(got, ids) {
			t.Errorf("shadows %q, want %q", got, ids)
		}
	}
	for _, no := range []string{"", "n\n", "\n", "yes please\n"} {
		if o := answer(no, "--all"); o.code != 1 || !strings.HasPrefix(o.err,
			"Discard 2 shadows (") || !strings.HasSuffix(o.err, "nothing was discarded\n") {
			t.Errorf("answer %q: %+v", no, o)
		}
	}
	want("d1", "d2", "open")
	if o := answer("", "--older", "1d"); o.code != 0 || o.out != "discarded 0 shadows\n" {
		t.Errorf("none so old: %+v", o)
	}
	if o := answer("y\n", "--all"); o.code != 0 ||
		o.out != "discarded 2 shadows, and left 1 that is in use\n" {
		t.Errorf("all: %+v", o)
	}
	want("open")
	h.wants(h.exec(session, "--", "ls", "made"), 0, "")
	h.stopSession(session, 1)
	if o := answer("", "--older", "0s", "--yes", "--json"); o.code != 0 ||
		strings.Join(strings.Fields(o.out), "") != `{"discarded":["open"],"open":[]}` {
		t.Errorf("with --yes: %+v", o)
	}
	want()
	h.wants(answer("", "--all", "x"), 2, "too many")
	h.wants(answer("", "--older", "soon"), 2, "--older soon: want how long ago")
}
