package workspace

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// bigTree makes a real directory of n files, 200 in each of its directories.
func (f *fixture) bigTree(n int) {
	for i := range n {
		dir := filepath.Join(f.real, fmt.Sprintf("d%d", i/200))
		if i%200 == 0 {
			must(f.t, os.Mkdir(dir, 0o755))
		}
		must(f.t, os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), []byte("some text\n"), 0o644))
	}
}

var treeSizes = []int{1000, 100000}

func BenchmarkPrepare(b *testing.B) {
	for _, n := range treeSizes {
		b.Run(fmt.Sprintf("files=%d", n), func(b *testing.B) {
			f := newFixture(b)
			f.bigTree(n)
			source, err := os.Open(f.real)
			must(b, err)
			defer source.Close()
			i := 0
			for b.Loop() {
				i++
				w, err := f.store.Prepare(Spec{ID: fmt.Sprintf("p%d", i), Source: source,
					Bytes: 512 << 20, Inodes: 10000})
				must(b, err)
				b.StopTimer()
				must(b, w.Discard())
				b.StartTimer()
			}
		})
	}
}

// BenchmarkRun10 reports each part of a run that changes ten files.
func BenchmarkRun10(b *testing.B) {
	for _, n := range treeSizes {
		b.Run(fmt.Sprintf("files=%d", n), func(b *testing.B) {
			f := newFixture(b)
			f.bigTree(n)
			var ops []toolOp
			for i := range 10 {
				ops = append(ops,
					toolOp{Do: "append", Path: fmt.Sprintf("d0/%d", i), Arg: "more\n"})
			}
			var attach, freeze, changes, commit, discard time.Duration
			i := 0
			for b.Loop() {
				i++
				w := f.prepareAs(fmt.Sprintf("p%d", i), Caller{}, 512<<20, 10000)
				attach += f.run(w, order{Ops: ops, Quiet: true}).Attach
				freeze += timed(func() { must(b, w.Freeze()) })
				changes += timed(func() {
					sum, _, err := w.Review(b.Context())
					must(b, err)
					if sum.Modified != 10 {
						b.Fatalf("%+v", sum)
					}
				})
				commit += timed(func() {
					_, err := w.Commit(b.Context(), CommitOptions{})
					must(b, err)
				})
				discard += timed(func() { must(b, w.Discard()) })
			}
			for name, d := range map[string]time.Duration{"attach": attach, "freeze": freeze,
				"changes": changes, "commit": commit, "discard": discard} {
				b.ReportMetric(float64(d.Microseconds())/float64(i), name+"-µs/op")
			}
		})
	}
}

func timed(f func()) time.Duration {
	start := time.Now()
	f()
	return time.Since(start)
}

func BenchmarkNewUserNS(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("mapping ids needs root")
	}
	ids := []sys.IDMap{{Inside: 0, Host: testBase, Size: 65536}}
	for b.Loop() {
		ns, err := sys.NewUserNS(sys.UserNS{UIDs: ids, GIDs: ids})
		must(b, err)
		ns.Close()
	}
}
