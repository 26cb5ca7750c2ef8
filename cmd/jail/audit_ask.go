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

// all records are wanted, and not the last so many.
const all = -1

// tailDaemon is what audit.Tail gives, and with all as n audit.Follow, of what the daemon shows the user. Without follow it ends where nothing more is there.
func (a *app) tailDaemon(ctx context.Context, req supervisor.EventsRequest, n int, follow bool) iter.Seq2[audit.Record, error] {
	return func(yield func(audit.Record, error) bool) {
		failed := a.withDaemon(ctx, func(c *api.Client) error {
			var last []audit.Record
			soFar := true
			for r, err := range c.Events(ctx, req) {
				switch {
				case err != nil:
					return err
				case r.Line == nil:
					for _, r := range last[max(0, len(last)-max(n, 0)):] {
						if !yield(r, nil) {
							return nil
						}
					}
					if last, soFar = nil, false; !follow {
						return nil
					}
				case soFar && n != all:
					if last = append(last, r); len(last) > 2*n { // twice, so that moving them costs nothing to speak of
						last = append(last[:0], last[len(last)-n:]...)
					}
				case !yield(r, nil):
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
