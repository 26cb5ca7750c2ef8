package audit

import (
	"context"
	"iter"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/message"
)

// all as a number of records means every record.
const all = -1

// tailDaemon is audit.Tail, or audit.Follow where n is all, for the records that the daemon shows
// to the caller. Without follow it ends after the last record that exists.
func tailDaemon(ctx context.Context, env *cli.Env, req message.EventsRequest, n int,
	follow bool) iter.Seq2[audit.Record, error] {
	return func(yield func(audit.Record, error) bool) {
		failed := env.WithDaemon(ctx, func(c *api.Client) error {
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
					// The slice is shortened at twice the length, so that few records are moved.
					if last = append(last, r); len(last) > 2*n {
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

type tailOptions struct {
	queryFlags
	log    logFlag
	lines  int
	follow bool
	after  uint64
	json   bool
}

func newTail(env *cli.Env) *cobra.Command {
	var o tailOptions
	cmd := &cobra.Command{
		Use:   "tail [flags]",
		Short: "show the last records, and with -f new ones",
		Long: `Show the last records that match all conditions. --follow continues with new records until it is interrupted. --after begins behind a record, so that an
interrupted reader continues where it was.

Users who may not read the log get the records of their own runs from the daemon. If the daemon ends, --follow ends, and prints the record to continue after.`,
		Example: "  jail audit tail\n  jail audit tail -f --type denied\n" +
			"  jail audit tail -f --json --after 1742",
		Args: command.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runTail(cmd.Context(), env, o, cmd.Flags().Changed("after"))
		},
	}
	o.add(cmd)
	o.log.add(cmd)
	cmd.Flags().IntVarP(&o.lines, "lines", "n", 10, "how `MANY`")
	cmd.Flags().BoolVarP(&o.follow, "follow", "f", false,
		"go on with those that are written from now on")
	cmd.Flags().Uint64Var(&o.after, "after", 0,
		"all those after the record `NUMBER`, in place of the last")
	command.JSON(cmd, &o.json, "print the records as they are, one a line")
	return cmd
}

// runTail shows the last records; where fromAfter is set, all records after o.after.
func runTail(ctx context.Context, env *cli.Env, o tailOptions, fromAfter bool) error {
	req, f, err := o.read()
	if err != nil {
		return err
	}
	if o.lines < 0 {
		return exit.Usage("", "--lines %d: want a number of records, from 0", o.lines)
	}
	if fromAfter {
		o.lines = all
	}
	dir := o.log.dir(env)
	var records iter.Seq2[audit.Record, error]
	switch {
	case o.log.askDaemon(env):
		records = tailDaemon(ctx, env, message.EventsRequest{After: &o.after,
			RecordsRequest: req}, o.lines, o.follow)
	case o.lines == all:
		records = audit.Follow(followContext(ctx, o.follow), dir, f, o.after)
	default:
		records = audit.Tail(followContext(ctx, o.follow), dir, f, o.lines)
	}
	return showRecordsTo(env, env.StreamAtOnce, dir, records, o.json)
}

// followContext returns ctx, or a cancelled one without follow, which ends audit.Follow after the
// records that exist.
func followContext(ctx context.Context, follow bool) context.Context {
	if follow {
		return ctx
	}
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}
