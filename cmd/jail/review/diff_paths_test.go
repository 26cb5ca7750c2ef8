package review_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// A diff of some paths shows these and what is beneath them. Its digest names the whole change set,
// so that a commit of a part can be bound to it.
func TestDiffPaths(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	h.Wants(h.Jail("run", "--quiet", "--profile", "build", "--id", "parts", "--", "sh", "-c",
		"mkdir -p src/deep docs; "+
			"for f in src/a.c src/deep/b.c docs/a.md top; do echo $f > $f; done"), 0, "")
	whole := h.Jail("diff", "parts").Out
	digest := whole[strings.LastIndex(whole, "digest "):]
	for _, c := range []struct{ paths, names []string }{
		{[]string{"src"}, []string{"src", "src/a.c", "src/deep", "src/deep/b.c"}},
		{[]string{"src/deep/"}, []string{"src/deep", "src/deep/b.c"}},
		{[]string{"**/*.c"}, []string{"src/a.c", "src/deep/b.c"}},
		{[]string{"top", "docs/*.md"}, []string{"docs/a.md", "top"}},
	} {
		o := h.Jail(append([]string{"diff", "--name-only", "parts"}, c.paths...)...)
		if got := strings.Fields(o.Out); o.Code != 0 || !slices.Equal(got, c.names) {
			t.Errorf("%q: %+v, want %q", c.paths, o, c.names)
		}
		o = h.Jail(append([]string{"diff", "parts"}, c.paths...)...)
		for _, name := range []string{"src/a.c", "src/deep/b.c", "docs/a.md", "top"} {
			if shown := strings.Contains(o.Out, "+"+name+"\n"); shown != slices.Contains(c.names,
				name) {
				t.Errorf("%q: the text of %s is shown: %v", c.paths, name, shown)
			}
		}
		if !strings.HasSuffix(o.Out, digest) {
			t.Errorf("%q: another digest: %s", c.paths, o.Out)
		}
	}
	h.Wants(h.Jail("diff", "parts", "src", "nowhere"), 127, "nowhere: no change has that path")
	h.Wants(h.Jail("diff", "parts", "a["), 2, "a [[] has no ] after it")
	h.Discard("parts")
}
