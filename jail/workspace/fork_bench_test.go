package workspace

import (
	"fmt"
	"testing"
)

// BenchmarkFork forks a shadow of a directory with so many files, of which the shadow has changed
// some. The time of a fork must not depend on either.
func BenchmarkFork(b *testing.B) {
	for _, files := range []int{1000, 100_000} {
		b.Run(fmt.Sprintf("files=%d", files), func(b *testing.B) {
			f := newFixture(b)
			f.bigTree(files)
			m := newFamily(f, "for i in $(seq 500); do echo $i >new$i; done")
			n := 0
			for b.Loop() {
				m.fork("p", fmt.Sprintf("b%d", n))
				b.StopTimer()
				must(b, m.store.discard(fmt.Sprintf("b%d", n)))
				m.in("p", "echo more >>new1")
				n++
				b.StartTimer()
			}
		})
	}
}
