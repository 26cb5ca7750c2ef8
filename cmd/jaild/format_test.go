package main_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// A state directory carries the number of its format. One without a number is that of an earlier
// release, and one with a number that this release does not know is left alone.
func TestStateFormat(t *testing.T) {
	h := cmdtest.New(t)
	state := filepath.Join(h.State, "state")
	file := filepath.Join(state, "format")
	h.Wants(h.Jail("run", "--", "true"), 0, "")
	has := func(want string) {
		t.Helper()
		if text, err := os.ReadFile(file); string(text) != want {
			t.Errorf("the format is %q, %v, want %q", text, err, want)
		}
	}
	has("1\n")
	h.Wants(h.Jail("run", "--", "true"), 0, "")
	for _, text := range []string{"2\n", "99", "", "one\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		want := "state directory " + state + ": its format is "
		const hint = "hint: start the version of jail that wrote it, or name another directory"
		for _, o := range []cmdtest.Outcome{h.Run(jaild(h)), h.Jail("run", "--", "true")} {
			if o.Code != 125 || !strings.Contains(o.Err, want) || !strings.Contains(o.Err, hint) {
				t.Errorf("%q: %+v", text, o)
			}
		}
		has(text)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	h.Wants(h.Jail("run", "--", "true"), 0, "")
	has("1\n")
}
