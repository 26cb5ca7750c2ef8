package review_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// A shadow that was committed as a whole and reverted has nothing left, and says so.
func TestDiffOfAReverted(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	if o := h.Jail("run", "--id", "r", "--", "touch", "n"); o.Code != 0 {
		t.Fatalf("%+v", o)
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"commit", "r"}, 0, "A n"},
		{[]string{"diff", "r"}, 0, "# 0 changes"},
		{[]string{"revert", "r"}, 0, "D n"},
		{[]string{"diff", "r"}, 0, "# 0 changes"},
		{[]string{"diff", "--json", "r"}, 0, `{"summary":{"added":0,`},
		{[]string{"diff", "r", "n"}, 127, "n: no change has that path"},
		{[]string{"commit", "r"}, 126, "it is reverted"},
		{[]string{"discard", "r", "n"}, 126, "it is reverted"},
		{[]string{"discard", "r"}, 0, "discarded r"},
	} {
		if o := h.Jail(c.args...); o.Code != c.code || !strings.Contains(o.Out+o.Err, c.want) {
			t.Errorf("%q: %+v", c.args, o)
		}
	}
}

// With --json a conflict is an object, too.
func TestConflictJSON(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	file := filepath.Join(h.Work, "f")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("1\n")
	h.Wants(h.Jail("sh", "--quiet", "--id", "r", "-c", "echo 2 > f"), 0, "")
	write("three\n")
	o := h.Jail("commit", "--json", "r")
	var answer api.Problem
	if err := json.Unmarshal([]byte(o.Out), &answer); err != nil || o.Code != 126 ||
		answer.Error.Code != problem.Conflict || len(answer.Error.Conflicts) != 1 ||
		answer.Error.Conflicts[0].Path != "f" {
		t.Errorf("%v: %+v", err, o)
	}
	if o := h.Jail("commit", "r"); o.Code != 126 || !strings.HasPrefix(o.Out, "conflict: f: ") {
		t.Errorf("%+v", o)
	}
	h.Wants(h.Jail("commit", "--theirs", "r"), 0, "")
	write("four\n")
	if o := h.Jail("revert", "--json", "r"); o.Code != 126 || !strings.HasPrefix(o.Out, "{") {
		t.Errorf("%+v", o)
	}
	h.Wants(h.Jail("discard", "r"), 0, "")
}
