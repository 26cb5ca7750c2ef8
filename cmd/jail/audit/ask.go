package audit

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"os"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/message"
)

// mayNotRead reports whether the caller lacks the permission to read the daemon's log.
func mayNotRead(env *cli.Env) bool {
	d, err := os.Open(env.Config.LogDir)
	if err == nil {
		d.Close()
	}
	return errors.Is(err, fs.ErrPermission)
}

// askDaemon returns records that the daemon reads for the caller: those of the caller's own runs.
func askDaemon(ctx context.Context, env *cli.Env,
	req message.RecordsRequest) iter.Seq2[audit.Record, error] {
	return func(yield func(audit.Record, error) bool) {
		failed := env.WithDaemon(ctx, func(c *api.Client) error {
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
