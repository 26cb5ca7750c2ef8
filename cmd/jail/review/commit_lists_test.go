package review_test

import (
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// Of many paths a commit and a revert list the first 20, or all; in a pipe they show no progress.
func TestCommitListsSome(t *testing.T) {
	h := cmdtest.New(t)
	for _, id := range []string{"some", "all"} {
		h.Wants(h.Jail("run", "--profile", "build", "--id", id, "--quiet", "--", "sh", "-c",
			"for i in $(seq 25); do echo x >f$i; done"), 0, "")
	}
	for _, c := range []struct {
		args []string
		want int
	}{
		{[]string{"commit", "some"}, 20}, {[]string{"revert", "some"}, 20},
		{[]string{"commit", "-v", "all"}, 25}, {[]string{"revert", "--verbose", "all"}, 25},
	} {
		o := h.Jail(c.args...)
		listed, more := 0, false
		for line := range strings.Lines(o.Out) {
			if strings.Contains(line, " f") && !strings.Contains(line, "of run") {
				listed++
			}
			more = more || line == "... and 5 more: --verbose lists all\n"
		}
		if o.Code != 0 || listed != c.want || more != (c.want == 20) || o.Err != "" {
			t.Errorf("%v: %d paths; %+v", c.args, listed, o)
		}
	}
	h.Wants(h.Jail("discard", "all"), 0, "")
}
