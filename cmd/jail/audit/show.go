package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/records"
)

type showOptions struct {
	queryFlags
	log  logFlag
	json bool
}

func newShow(env *cli.Env) *cobra.Command {
	var o showOptions
	cmd := &cobra.Command{
		Use:   "show [flags]",
		Short: "show records",
		Long: `Show records of the log, the oldest first. Control characters are shown as escapes.
Nothing is verified: use jail audit verify. Users who may not read the log get the records of
their own runs from the daemon, as with jail audit query.`,
		Example: "  jail audit show --since 1h\n" +
			"  jail audit show --run 3w5e11264sg0c8v5a9b7k2m4qd --type denied --json",
		Args: command.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runShow(cmd.Context(), env, o)
		},
	}
	o.log.add(cmd)
	o.set = cmd.Flags()
	o.text("run", "only of the run `ID`")
	o.addTypes()
	o.addSince()
	command.JSON(cmd, &o.json, "print the records as they are, one a line")
	return cmd
}

func runShow(ctx context.Context, env *cli.Env, o showOptions) error {
	req, filter, err := o.read()
	if err != nil {
		return err
	}
	dir := o.log.dir(env)
	records := audit.Scan(dir, filter)
	if o.log.needsDaemon(env) {
		records = askDaemon(ctx, env, req)
	}
	return showRecords(env, env.Stream, dir, records, o.json)
}

// showRecords prints records of the log in dir by print, which is env.Stream or env.StreamAtOnce.
// It warns of each line that is no record, and then returns an error at the end.
func showRecords(env *cli.Env, print func(write func(io.Writer) error) error, dir string,
	records iter.Seq2[audit.Record, error], asJSON bool) error {
	bad := 0
	err := print(func(w io.Writer) error {
		header := !asJSON
		for r, err := range records {
			if _, ok := errors.AsType[*problem.Error](err); ok {
				// The daemon explains why it does not serve the records.
				return err
			}
			if err != nil && r.Line == nil && bad == 0 && exit.Cause(err) != err {
				// The log itself cannot be read.
				return logError(dir, err)
			}
			if err != nil {
				bad++
				output.Say(env.Stderr, "warning", err.Error())
				continue
			}
			if header {
				header = false
				fmt.Fprintln(w, audit.Header)
			}
			render := audit.Render
			if asJSON {
				render = audit.RenderJSON
			}
			if err := render(w, r); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && bad > 0 {
		err = exit.Failed(nil, "jail audit verify", "audit log %s: %s cannot be read", dir,
			output.Count(bad, "line", "lines"))
	}
	return err
}

// queryFlags are the flags for the conditions of a search.
type queryFlags struct {
	set   *pflag.FlagSet
	types []string
}

func (q *queryFlags) add(cmd *cobra.Command) {
	q.set = cmd.Flags()
	q.set.SortFlags = false
	q.text("run", "only of the run `ID`")
	q.text("session", "only of the session `ID`")
	q.text("user", "only asked for by the user `NAME` or number")
	q.text("tool", "only of runs of `TOOL`, such as grep or core-utils/grep")
	q.addTypes()
	q.text("decision", "only what was `allowed` or denied")
	q.text("layer", "only what `LAYER` refused, such as wasi or seccomp")
	q.text("host", "only fetches from `HOST`, such as example.com or *.example.com")
	q.text("path",
		"only what names a path that the pattern `GLOB` matches, such as '/etc/**' or 'src/*.go'")
	q.text("policy", "only under the effective policy with that `DIGEST`, or its beginning")
	q.addSince()
	q.text("until", "only before `TIME`")
}

func (q *queryFlags) text(name, usage string) { q.set.String(name, "", usage) }

func (q *queryFlags) addTypes() {
	q.set.StringSliceVar(&q.types, "type", nil,
		"only of `TYPE`, such as denied or run.finished (repeatable)")
}

func (q *queryFlags) addSince() {
	q.text("since", "only from `TIME` on: how long ago, as 90m, or a time, as 2006-01-02T15:04:05Z")
}

// read returns the conditions as a request to the daemon, and as a filter for reading the log.
func (q *queryFlags) read() (message.RecordsRequest, audit.Filter, error) {
	if err := checkTypes(q.types); err != nil {
		return message.RecordsRequest{}, audit.Filter{}, err
	}
	req, f, err := records.Conditions(func(name string) string {
		if flag := q.set.Lookup(name); flag != nil {
			return flag.Value.String()
		}
		return ""
	}, q.types, time.Now())
	if w, ok := errors.AsType[*records.WrongCondition](err); ok {
		err = exit.Usage("", "--%s %s: %s", w.Name, w.Value, w.Why)
	}
	return req, f, err
}

type queryOptions struct {
	queryFlags
	log            logFlag
	last           int
	noIndex, count bool
	json           bool
}

func newQuery(env *cli.Env) *cobra.Command {
	var o queryOptions
	cmd := &cobra.Command{
		Use:   "query [flags]",
		Short: "search the records",
		Long: `Show the records that match all conditions, the oldest first. Nothing is verified:
use jail audit verify. --count shows the number of records of each type.

An index beside the log speeds up searches; a search updates it, and begins one for a long log.
Records are read from the log itself, but a user who can write the index could hide records from a
search: --no-index reads the whole log.

Users who may not read the log get the records of their own runs from the daemon.`,
		Example: "  jail audit query --tool sed --decision denied --since 24h\n" +
			"  jail audit query --host '*.example.com' --json\n" +
			"  jail audit query --path '/etc/**' --count",
		Args: command.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runQuery(cmd.Context(), env, o)
		},
	}
	o.add(cmd)
	o.log.add(cmd)
	cmd.Flags().IntVar(&o.last, "last", 0, "only the last `N` that were found")
	cmd.Flags().BoolVar(&o.noIndex, "no-index", false,
		"read all of the log, and no index beside it")
	cmd.Flags().BoolVar(&o.count, "count", false, "how many of each type, in place of them")
	command.JSON(cmd, &o.json, "print the records as they are, one a line")
	return cmd
}

func runQuery(ctx context.Context, env *cli.Env, o queryOptions) error {
	req, f, err := o.read()
	if err != nil {
		return err
	}
	if o.last < 0 {
		return exit.Usage("", "--last %d: want a number of records, from 1", o.last)
	}
	dir := o.log.dir(env)
	found := o.log.search(ctx, env, f, req, o.noIndex)
	if o.count {
		return countRecords(env, dir, found, o.json)
	}
	if o.last > 0 {
		found = lastOf(found, o.last)
	}
	return showRecords(env, env.Stream, dir, found, o.json)
}

// countRecords prints the number of records of each type.
func countRecords(env *cli.Env, dir string, records iter.Seq2[audit.Record, error],
	asJSON bool) error {
	counts := map[string]int{}
	for r, err := range records {
		if _, ok := errors.AsType[*problem.Error](err); ok {
			return err
		}
		if err != nil && r.Line == nil {
			return logError(dir, err)
		}
		counts[string(r.Type)]++
	}
	return env.Show(asJSON, counts, func(w io.Writer) {
		for _, t := range recordTypes {
			if n := counts[string(t)]; n > 0 {
				fmt.Fprintf(w, "%9d  %s\n", n, t)
			}
		}
	})
}

// lastOf yields the last n records, after it has read all of them.
func lastOf(records iter.Seq2[audit.Record, error], n int) iter.Seq2[audit.Record, error] {
	return func(yield func(audit.Record, error) bool) {
		type item struct {
			r   audit.Record
			err error
		}
		var last []item
		for r, err := range records {
			last = audit.KeepLast(append(last, item{r, err}), n)
		}
		for _, it := range last[max(0, len(last)-n):] {
			if !yield(it.r, it.err) {
				return
			}
		}
	}
}

// all stands for every record, where a number of records is expected.
const all = -1

// tailDaemon requests records from the daemon and yields the last n of them, or every one if n is
// all. With follow it then waits for new records.
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
					last = audit.KeepLast(append(last, r), n)
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
		Long: `Show the last records that match all conditions. --follow continues with new
records until it is interrupted. --after begins behind a record, so that an interrupted reader
continues where it was.

Users who may not read the log get the records of their own runs from the daemon. If the daemon
ends, --follow ends, and prints the record to continue after.`,
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

// runTail prints the last records, or all records after number o.after if fromAfter is set.
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
	case o.log.needsDaemon(env):
		records = tailDaemon(ctx, env, message.EventsRequest{After: &o.after,
			RecordsRequest: req}, o.lines, o.follow)
	case o.lines == all:
		records = audit.Follow(followContext(ctx, o.follow), dir, f, o.after)
	default:
		records = audit.Tail(followContext(ctx, o.follow), dir, f, o.lines)
	}
	return showRecords(env, env.StreamAtOnce, dir, records, o.json)
}

// followContext returns ctx if follow is set, else a cancelled context, with which audit.Follow
// ends after the existing records.
func followContext(ctx context.Context, follow bool) context.Context {
	if follow {
		return ctx
	}
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}
