package review

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/shadows"
)

func someChoice() choice {
	hunk := func(n int) workspace.Hunk {
		return workspace.Hunk{From: n, FromLines: 1, To: n, ToLines: 1,
			Lines: []string{"-old", "+new\\x1b[2J"}}
	}
	return choice{digest: "sha256:00", picks: []pick{
		{change: api.Change{Change: workspace.Change{Path: ".envrc", Kind: workspace.Added,
			After: file(0o644, 1), Risks: []workspace.Risk{{Class: policy.Shell,
				Why: "direnv runs it", Hold: true}}}}, taken: make([]bool, 1)},
		{change: api.Change{Change: workspace.Change{Path: "f", Kind: workspace.Modified,
			Before: file(0o644, 1), After: file(0o644, 2)}}, hunks: []workspace.Hunk{hunk(1),
			hunk(20), hunk(40)}, taken: make([]bool, 3)},
		{change: api.Change{Change: workspace.Change{Path: "pipe", Kind: workspace.Added,
			After: &workspace.Node{Type: workspace.Fifo}, Refused: "a fifo"}}, taken: make([]bool,
			1)},
		{change: api.Change{Change: workspace.Change{Path: "gone", Kind: workspace.Deleted,
			Before: file(0o644, 1)}}, taken: make([]bool, 1)},
	}}
}

func TestAsk(t *testing.T) {
	cases := map[string]struct {
		says  string
		paths []string
		hunks []int
	}{
		"all":          {"y\ny\ny\ny\ny\n", []string{".envrc", "f", "gone"}, nil},
		"none":         {"n\nn\nn\nn\nn\n", nil, nil},
		"some hunks":   {"n\ny\nn\ny\nn\n", nil, []int{0, 2}},
		"a":            {"n\nn\na\ny\n", []string{"gone"}, []int{1, 2}},
		"d":            {"n\ny\nd\ny\n", []string{"gone"}, []int{0}},
		"q":            {"n\ny\nq\n", nil, []int{0}},
		"end of input": {"y\ny\n", []string{".envrc"}, []int{0}},
		"no answer":    {"", nil, nil},
		"nonsense":     {"yes\n?\n\ny\nq\n", []string{".envrc"}, nil},
		"no last \\n":  {"n\ny\nn\nn\ny", []string{"gone"}, []int{0}},
		// A is no answer where there are no hunks.
		"only a letter": {"a\ny\nq\n", []string{".envrc"}, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			ch := someChoice()
			if err := ask(&cli.Env{Stdin: strings.NewReader(c.says), Stdout: &out},
				ch); err != nil {
				t.Fatal(err)
			}
			req, ok := ch.request()
			want := shadows.CommitRequest{Digest: "sha256:00", Exact: true, IncludeProtected: true,
				Paths: c.paths, Hunks: map[string][]int{}}
			if c.hunks != nil {
				want.Hunks["f"] = c.hunks
			}
			if diff := cmp.Diff(want, req); diff != "" {
				t.Error(diff)
			}
			if ok != (c.paths != nil || c.hunks != nil) {
				t.Errorf("anything to commit: %v", ok)
			}
			if strings.ContainsAny(out.String(), "\x1b") {
				t.Errorf("a control character of the content: %q", out.String())
			}
		})
	}
}
