package workspace

import (
	"fmt"
	"strings"
	"testing"
)

// TestTheLimitCanBeWritten: of a layer with a limit the tool can write all of it, whatever its
// tables take, and a tool that asks for more, in pieces of any size, leaves no room, which says
// that it met the limit.
func TestTheLimitCanBeWritten(t *testing.T) {
	f := newFixture(t)
	for i, c := range []struct{ bytes, inodes int64 }{
		{minBytes, 10}, {minBytes, 10000}, {8 << 20, 100}, {64 << 20, 100000}, {130 << 20, 10000},
	} {
		w := f.prepareAs(fmt.Sprintf("all%d", i), Caller{}, c.bytes, c.inodes)
		a := f.run(w,
			order{Script: fmt.Sprintf("head -c %d /dev/zero >all && stat -c %%s all", c.bytes)})
		free, _, err := w.Room()
		if a.Out != fmt.Sprintln(c.bytes) || err != nil || free == 0 {
			t.Errorf("%d bytes, %d files: the tool saw %q, and there is room for %d bytes, %v",
				c.bytes, c.inodes, a.Out, free, err)
		}
		must(t, w.Discard())
		for _, piece := range []string{"4k", "1M"} {
			w := f.prepareAs("more"+piece+fmt.Sprint(i), Caller{}, c.bytes, c.inodes)
			a := f.run(w, order{Script: "dd if=/dev/zero of=more bs=" + piece + " 2>&1 | head -1"})
			free, _, err := w.Room()
			if !strings.Contains(a.Out, "No space left on device") || err != nil || free != 0 {
				t.Errorf("%d bytes, pieces of %s: the tool saw %q, and there is room for %d "+
					"bytes, %v", c.bytes, piece, a.Out, free, err)
			}
			must(t, w.Discard())
		}
	}
}
