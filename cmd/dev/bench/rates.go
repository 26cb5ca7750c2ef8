package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jail-sandbox/jail/supervisor/audit"
)

const (
	runsForRate    = 200
	auditWriters   = 16
	recordsForRate = 50_000
)

// verifiedRate returns how many records of a log are verified in a second.
func verifiedRate(ctx context.Context, b *bed, progress io.Writer) (float64, error) {
	fmt.Fprintln(progress, "bench: records verified")
	log, err := audit.Open(audit.Options{Dir: b.path("audit"), KeyDir: b.path("audit-key")})
	if err != nil {
		return 0, err
	}
	_, err = rate(auditWriters, recordsForRate, func() error {
		_, err := log.Append(ctx, audit.Entry{Run: "bench", Event: audit.RunFinished{}})
		return err
	})
	if err = errors.Join(err, log.Close()); err != nil {
		return 0, err
	}
	pub, err := audit.PublicKey(b.path("audit"))
	if err != nil {
		return 0, err
	}
	start := time.Now()
	report, err := audit.Verify(b.path("audit"), pub)
	return float64(report.Records) / time.Since(start).Seconds(), err
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
