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
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/records"
)

// queryFlags are the conditions of a search.
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

// read returns the conditions as the daemon takes them, and as a filter.
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
		Long: `Show the records that match all conditions, the oldest first. Nothing is verified: use jail audit verify.
--count shows the number of records of each type.

An index beside the log speeds up searches; a search updates it, and begins one for a long log. Records are read from the log itself, but a user who can write
the index could hide records from a search: --no-index reads the whole log.

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
	return showRecords(env, dir, found, o.json)
}

// countRecords shows how many records of each type there are.
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

// lastOf keeps as many in memory as are wanted.
func lastOf(records iter.Seq2[audit.Record, error], n int) iter.Seq2[audit.Record, error] {
	return func(yield func(audit.Record, error) bool) {
		type item struct {
			r   audit.Record
			err error
		}
		var ring []item
		next := 0
		for r, err := range records {
			if len(ring) < n {
				ring = append(ring, item{r, err})
				continue
			}
			ring[next] = item{r, err}
			next = (next + 1) % n
		}
		for i := range ring {
			it := ring[(next+i)%len(ring)]
			if !yield(it.r, it.err) {
				return
			}
		}
	}
}
