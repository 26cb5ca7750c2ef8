package audit

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

func BenchmarkAppendDurable(b *testing.B) {
	for _, writers := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			p := newPlace(b)
			l := p.open(b)
			defer l.Close()
			share := make(chan struct{}, b.N)
			for range b.N {
				share <- struct{}{}
			}
			close(share)
			var wg sync.WaitGroup
			b.ResetTimer()
			for range writers {
				wg.Go(func() {
					for range share {
						if _, err := l.Append(context.Background(),
							denied("open /etc/shadow")); err != nil {
							b.Error(err)
						}
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
		})
	}
}

// BenchmarkPlainDurable is the peer: the same line by one writer, flushed, with no chain and no
// signature.
func BenchmarkPlainDurable(b *testing.B) {
	f, err := os.Create(filepath.Join(b.TempDir(), "plain"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	line := append(denied("open /etc/shadow").body(), '\n')
	for b.Loop() {
		f.Write(line)
		f.Sync()
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
}

// BenchmarkOpen is what a client without a daemon pays for a log of 50,000 records.
func BenchmarkOpen(b *testing.B) {
	p := bigLog(b, 50_000)
	for b.Loop() {
		l, err := Open(p.options())
		if err != nil {
			b.Fatal(err)
		}
		l.Close()
	}
}

func BenchmarkVerify(b *testing.B) {
	const n = 200_000
	p := bigLog(b, n)
	pub := p.pub(b)
	info, err := os.Stat(p.segment(1))
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(info.Size())
	for b.Loop() {
		if _, err := Verify(p.log, pub); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "records/s")
}

func BenchmarkScan(b *testing.B) {
	const n = 50_000
	p := bigLog(b, n)
	for b.Loop() {
		for _, err := range Scan(p.log, Filter{Run: "none"}) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "records/s")
}

func bigLog(b *testing.B, n int) place {
	p := newPlace(b)
	l := p.open(b)
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			for range n / 200 {
				l.Append(context.Background(), denied("open /etc/shadow"))
			}
		})
	}
	wg.Wait()
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
	return p
}
