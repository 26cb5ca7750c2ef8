package review_test

import (
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
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
