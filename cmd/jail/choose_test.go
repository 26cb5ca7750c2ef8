package main

import (
	"bufio"
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/supervisor"
	"github.com/jail-sandbox/jail/supervisor/api"
)

func someChoice() choice {
	hunk := func(n int) workspace.Hunk {
		return workspace.Hunk{From: n, FromLines: 1, To: n, ToLines: 1, Lines: []string{"-old", "+new\\x1b[2J"}}
	}
	return choice{digest: "sha256:00", picks: []pick{
		{change: api.Change{Change: workspace.Change{Path: ".envrc", Kind: workspace.Added, After: file(0o644, 1), Risks: []workspace.Risk{{Class: policy.Shell, Why: "direnv runs it", Hold: true}}}}, taken: make([]bool, 1)},
		{change: api.Change{Change: workspace.Change{Path: "f", Kind: workspace.Modified, Before: file(0o644, 1), After: file(0o644, 2)}}, hunks: []workspace.Hunk{hunk(1), hunk(20), hunk(40)}, taken: make([]bool, 3)},
		{change: api.Change{Change: workspace.Change{Path: "pipe", Kind: workspace.Added, After: &workspace.Node{Type: workspace.Fifo}, Refused: "a fifo"}}, taken: make([]bool, 1)},
		{change: api.Change{Change: workspace.Change{Path: "gone", Kind: workspace.Deleted, Before: file(0o644, 1)}}, taken: make([]bool, 1)},
	}}
}

func TestAsk(t *testing.T) {
	cases := map[string]struct {
		says  string
		paths []string
		hunks []int
	}{
		"all":           {"y\ny\ny\ny\ny\n", []string{".envrc", "f", "gone"}, nil},
		"none":          {"n\nn\nn\nn\nn\n", nil, nil},
		"some hunks":    {"n\ny\nn\ny\nn\n", nil, []int{0, 2}},
		"a":             {"n\nn\na\ny\n", []string{"gone"}, []int{1, 2}},
		"d":             {"n\ny\nd\ny\n", []string{"gone"}, []int{0}},
		"q":             {"n\ny\nq\n", nil, []int{0}},
		"end of input":  {"y\ny\n", []string{".envrc"}, []int{0}},
		"no answer":     {"", nil, nil},
		"nonsense":      {"yes\n?\n\ny\nq\n", []string{".envrc"}, nil},
		"no last \\n":   {"n\ny\nn\nn\ny", []string{"gone"}, []int{0}},
		"only a letter": {"a\ny\nq\n", []string{".envrc"}, nil}, // a is no answer where there are no hunks
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			ch := someChoice()
			if err := (&app{stdout: &out}).ask(strings.NewReader(c.says), ch); err != nil {
				t.Fatal(err)
			}
			req, ok := ch.request()
			want := supervisor.CommitRequest{Digest: "sha256:00", Exact: true, IncludeProtected: true, Paths: c.paths, Hunks: map[string][]int{}}
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

func TestScreen(t *testing.T) {
	press := func(keys string) (*screen, outcome) {
		s := &screen{choice: someChoice(), in: -1, rows: 12, columns: 60}
		r := bufio.NewReader(strings.NewReader(keys))
		for {
			s.draw()
			key, err := readKey(r)
			if err != nil {
				return s, stay
			}
			if o := s.press(key); o != stay {
				return s, o
			}
		}
	}
	const down, left = "\x1b[B", "\x1b[D"
	s, o := press(down + "\r" + " " + down + down + " " + left + down + down + " c")
	req, _ := s.choice.request()
	want := supervisor.CommitRequest{Digest: "sha256:00", Exact: true, IncludeProtected: true, Paths: []string{"gone"}, Hunks: map[string][]int{"f": {0, 2}}}
	if diff := cmp.Diff(want, req); o != commitIt || diff != "" {
		t.Errorf("outcome %v, %s", o, diff)
	}
	if s, o = press("aq"); o != leave {
		t.Errorf("q: %v", o)
	}
	if req, _ = s.choice.request(); !cmp.Equal(req.Paths, []string{"f", "gone"}) {
		t.Errorf("a marks %q: what is protected must be marked by itself", req.Paths)
	}
	if s, _ = press("a "); s.choice.picks[0].count() != 1 {
		t.Error("the space does not mark what is protected")
	}
	if s, _ = press(down + down + " "); s.choice.picks[2].count() != 0 {
		t.Error("what is refused was marked")
	}
	s.rows, s.columns = 10, 40
	for _, line := range strings.Split(s.draw(), "\r\n") {
		if plain := strings.TrimPrefix(line, "\x1b[H\x1b[2J"); len([]rune(plain)) > 40 {
			t.Errorf("a line is longer than the screen: %q", plain)
		}
	}
	for _, keys := range []string{"\x1b", "\x1b[", "\x1b[200~", "\x00\xff", "\x1b[<0;1;1M", strings.Repeat(down, 50) + strings.Repeat("\r", 50)} {
		press(keys)
	}
}

func TestSpill(t *testing.T) {
	for _, n := range []int{0, 1, 10, 100000} {
		var s spill
		var want, got bytes.Buffer
		for i := range n {
			line := strings.Repeat(string(rune('a'+i%26)), 30) + "\n"
			want.WriteString(line)
			if _, err := s.Write([]byte(line)); err != nil {
				t.Fatal(err)
			}
			if len(s.buf) > maxSpill+len(line) {
				t.Fatal("it holds more in memory than it should")
			}
		}
		if (s.file != nil) != (n == 100000) {
			t.Errorf("%d lines: a file is used: %v", n, s.file != nil)
		}
		if err := s.copyTo(&got); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), want.Bytes()) {
			t.Errorf("%d lines came back as %d bytes of %d", n, got.Len(), want.Len())
		}
	}
}
