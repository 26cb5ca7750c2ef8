package main

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"os"

	"github.com/jail-sandbox/jail/supervisor"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/audit"
)

// mayNotRead reports whether the log of the daemon is there for others than the user.
func (a *app) mayNotRead() bool {
	d, err := os.Open(a.config.LogDir)
	if err == nil {
		d.Close()
	}
	return errors.Is(err, fs.ErrPermission)
}

// askDaemon has the daemon read its log: it shows the user what is of the user's own runs.
func (a *app) askDaemon(ctx context.Context, req supervisor.RecordsRequest) iter.Seq2[audit.Record, error] {
	return func(yield func(audit.Record, error) bool) {
		failed := a.withDaemon(ctx, func(c *api.Client) error {
			for r, err := range c.AuditRecords(ctx, req) {
				if err != nil {
					return err
				}
				if !yield(r, nil) {
					return nil
				}
			}
			return nil
		})
		if failed != nil {
			yield(audit.Record{}, failed)
		}
	}
}
