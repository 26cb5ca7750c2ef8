package execute

import (
	"bytes"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/shadows"
)

func TestTell(t *testing.T) {
	var many []runners.Denial
	for range 12 {
		many = append(many,
			runners.Denial{Layer: "wasi", What: "read /x", Rule: "no grant", Count: 1})
	}
	cases := map[string]struct {
		res  message.Result
		want string
	}{
		"nothing": {message.Result{Workspace: "discarded"}, ""},
		"three files": {message.Result{ID: "r1", Changes: shadows.Changes{Added: 2, Modified: 1},
			Workspace: "kept"},
			"jail: run r1 changed 3 files (+2 ~1 -0): jail diff r1\n"},
		"one, committed": {message.Result{ID: "r1", Changes: shadows.Changes{Deleted: 1},
			Workspace: "committed"},
			"jail: run r1 changed 1 file (+0 ~0 -1): committed\n"},
		"kept for nothing": {message.Result{ID: "r1", Workspace: "kept"},
			"jail: run r1 changed nothing; its shadow is kept: jail discard r1\n"},
		"a limit": {message.Result{Limit: &message.LimitHit{Name: "memory", Limit: 256 << 20,
			Peak: 256 << 20}},
			"jail: limit: memory: 256 MiB reached (peak 256 MiB)\n"},
		"a denial": {message.Result{Denied: []runners.Denial{{Layer: "wasi",
			What: "read /etc/shadow", Rule: "no grant", Count: 3}}},
			"jail: denied: read /etc/shadow (no grant), 3 times\n"},
		"hostile": {message.Result{Denied: []runners.Denial{{What: "read \x1b[2J\nx",
			Rule: "no grant", Count: 1}}},
			"jail: denied: read \\x1b[2J\njail: denied: x (no grant)\n"},
		"many": {message.Result{ID: "r1", Denied: many},
			strings.Repeat("jail: denied: read /x (no grant)\n", 10) +
				"jail: denied: and 2 more: jail audit show --run r1\n"},
		"a warning": {message.Result{Warnings: []string{"report"},
			Denied: []runners.Denial{{What: "x", Rule: "y", Count: 1}}},
			"jail: warning: report\njail: denied: x (y)\n"},
		"refused whole": {message.Result{Denied: many,
			Error: &problem.Error{Code: problem.Refused}}, ""},
		"a trap": {message.Result{Trap: &runners.Trap{Class: "memory",
			Sentence: "out of bounds"}}, "jail: trap: out of bounds\n"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			Tell(&cli.Env{Stderr: &out}, c.res, false)
			equal(t, out.String(), c.want)
		})
	}
}

// After a run that failed the command that says more of a limit or a refusal is named, with the
// policy of the run.
func TestNextAfter(t *testing.T) {
	denied := []runners.Denial{{What: "read /etc/shadow", Rule: "no grant"}}
	for _, c := range []struct {
		res  message.Result
		want string
	}{
		{message.Result{Limit: &message.LimitHit{Name: "wall"}, Denied: denied},
			"jail policy explain --profile build --why limit:wall says"},
		{message.Result{Denied: denied},
			"jail policy explain --profile build --why read:/etc/shadow says"},
		{message.Result{Limit: &message.LimitHit{Name: "idle"}}, ""},
		{message.Result{Denied: []runners.Denial{{What: "read /a b; rm"}}}, ""},
		{message.Result{Denied: []runners.Denial{{What: "import x"}}}, ""},
		{message.Result{}, ""},
	} {
		if got := nextAfter(c.res, "--profile build "); !strings.HasPrefix(got, c.want) ||
			c.want == "" && got != "" {
			t.Errorf("%+v: %q, want %q", c.res, got, c.want)
		}
	}
}
