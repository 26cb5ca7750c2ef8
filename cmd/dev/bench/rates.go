package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jail-sandbox/jail/supervisor/audit"
)

// rates are what is measured by how much is done at once, after the rounds: it would disturb
// everything else.
type rates struct {
	runs, appends, verified float64 // a second
}

const (
	runsForRate    = 200
	auditWriters   = 16
	recordsForRate = 50_000
)

func measureRates(ctx context.Context, b *bed, progress io.Writer) (r rates, err error) {
	fmt.Fprintln(progress, "bench: rates")
	once := b.run(b.request(b.path("trivial.wasm"), nil, "small"))
	r.runs, err = rate(runtime.NumCPU(), runsForRate, func() error {
		_, err := once(ctx)
		return err
	})
	if err != nil {
		return r, err
	}
	log, err := audit.Open(audit.Options{Dir: b.path("audit"), KeyDir: b.path("audit-key")})
	if err != nil {
		return r, err
	}
	r.appends, err = rate(auditWriters, recordsForRate, func() error {
		_, err := log.Append(ctx, audit.Entry{Run: "bench", Event: audit.RunFinished{}})
		return err
	})
	if err = errors.Join(err, log.Close()); err != nil {
		return r, err
	}
	pub, err := audit.PublicKey(b.path("audit"))
	if err != nil {
		return r, err
	}
	start := time.Now()
	report, err := audit.Verify(b.path("audit"), pub)
	r.verified = float64(report.Records) / time.Since(start).Seconds()
	return r, err
}

// rate returns how often f can be called in a second by so many callers at once, over total calls.
func rate(callers, total int, f func() error) (float64, error) {
	var left atomic.Int64
	left.Store(int64(total))
	errs := make([]error, callers)
	var all sync.WaitGroup
	start := time.Now()
	for i := range callers {
		all.Go(func() {
			for left.Add(-1) >= 0 && errs[i] == nil {
				errs[i] = f()
			}
		})
	}
	all.Wait()
	return float64(total) / time.Since(start).Seconds(), errors.Join(errs...)
}
