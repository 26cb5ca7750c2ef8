package tools

import "testing"

// A use is one ordinary use of a command.
type use struct {
	args  string // split at spaces; what holds spaces is in words
	words []string
	stdin string
	// prints is what the command prints where that is not what Debian's prints, or
	// where a Debian may have no such command. code is its exit code then, and
	// hostless says that Debian's is not asked at all. DIFFERENCES.md says why.
	prints   string
	code     int
	hostless bool
}

func (u use) argv() []string {
	var argv []string
	word, words := "", u.words
	for _, c := range u.args + " " {
		if c != ' ' {
			word += string(c)
			continue
		}
		if word == "%" {
			word, words = words[0], words[1:]
		}
		if word != "" {
			argv = append(argv, word)
		}
		word = ""
	}
	return argv
}

// TestAsDebian runs each use here and by Debian's tool of the same name, in equal
// folders, and wants the same output, exit code and files. Debian's are the
// independent judge of what a usual flag means.
func TestAsDebian(t *testing.T) {
	b := tools(t)
	for _, u := range uses {
		argv := u.argv()
		t.Run(u.args, func(t *testing.T) {
			here := fixture(t)
			got := b.inJail(t, here, u.stdin, argv...)
			want := outcome{stdout: u.prints, code: u.code, tree: got.tree}
			if !u.hostless {
				want = onHost(t, fixture(t), u.stdin, argv...)
			}
			if u.prints != "" || u.code != 0 {
				want.stdout, want.code = u.prints, u.code
			}
			if got.stdout != want.stdout || got.code != want.code {
				t.Errorf("%d %q, want %d %q; stderr %q", got.code, got.stdout, want.code, want.stdout, got.stderr)
			}
			if got.tree != want.tree {
				t.Errorf("files:\n%.3000s\nDebian's:\n%.3000s", got.tree, want.tree)
			}
		})
	}
}
