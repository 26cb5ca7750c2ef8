package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os/user"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/supervisor"
	"github.com/jail-sandbox/jail/supervisor/audit"
)

// queryFlags are the conditions of a search.
type queryFlags struct {
	run, session, user, tool, decision, layer, host, path, policy, since, until string
	types                                                                       []string
}

func (q *queryFlags) add(cmd *cobra.Command) {
	set := cmd.Flags()
	set.SortFlags = false
	set.StringVar(&q.run, "run", "", "only of the run `ID`")
	set.StringVar(&q.session, "session", "", "only of the session `ID`")
	set.StringVar(&q.user, "user", "", "only asked for by the user `NAME` or number")
	set.StringVar(&q.tool, "tool", "", "only of runs of `TOOL`, such as grep or core-utils/grep")
	set.StringSliceVar(&q.types, "type", nil, "only of `TYPE`, such as denied or run.finished (repeatable)")
	set.StringVar(&q.decision, "decision", "", "only what was `allowed` or denied")
	set.StringVar(&q.layer, "layer", "", "only what `LAYER` refused, such as wasi or seccomp")
	set.StringVar(&q.host, "host", "", "only fetches from `HOST`, such as example.com or *.example.com")
	set.StringVar(&q.path, "path", "", "only what names a path that the pattern `GLOB` matches, such as '/etc/**' or 'src/*.go'")
	set.StringVar(&q.policy, "policy", "", "only under the effective policy with that `DIGEST`, or its beginning")
	set.StringVar(&q.since, "since", "", "only from `TIME` on: how long ago, as 90m, or a time, as 2006-01-02T15:04:05Z")
	set.StringVar(&q.until, "until", "", "only before `TIME`")
}

func (q *queryFlags) filter(now time.Time) (f audit.Filter, err error) {
	f = audit.Filter{Run: q.run, Session: q.session, Tool: q.tool, Layer: q.layer, Host: q.host, Decision: q.decision, Policy: q.policy}
	if f.Policy != "" && !strings.HasPrefix(f.Policy, "sha256:") {
		f.Policy = "sha256:" + f.Policy
	}
	if f.Types, err = parseTypes(q.types); err != nil {
		return f, err
	}
	if f.Since, err = parseTime("since", q.since, now); err != nil {
		return f, err
	}
	if f.Until, err = parseTime("until", q.until, now); err != nil {
		return f, err
	}
	if f.UID, err = parseUser(q.user); err != nil {
		return f, err
	}
	if d := q.decision; d != "" && d != audit.DecisionAllowed && d != audit.DecisionDenied {
		return f, usage("", "--decision %s: want allowed or denied", d)
	}
	if q.path != "" {
		g, err := policy.ParseGlob(q.path)
		if err != nil {
			return f, usage("", "--path: %v", err)
		}
		f.Path = g.Match
	}
	return f, nil
}

// request is the filter as the daemon takes it.
func (q *queryFlags) request(f audit.Filter) supervisor.RecordsRequest {
	return supervisor.RecordsRequest{Run: f.Run, Session: f.Session, Types: q.types, Since: f.Since, Until: f.Until, UID: f.UID, Policy: f.Policy, Tool: f.Tool,
		Decision: f.Decision, Layer: f.Layer, Host: f.Host, Path: q.path}
}

func parseUser(text string) (*uint32, error) {
	if text == "" {
		return nil, nil
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		u, lookupErr := user.Lookup(text)
		if lookupErr != nil {
			return nil, usage("", "--user %s: this host knows no user of that name", text)
		}
		n, err = strconv.ParseUint(u.Uid, 10, 32)
	}
	uid := uint32(n)
	return &uid, err
}

func (a *app) auditQueryCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "query [flags]",
		Short: "search the records",
		Long: `Show the records that all of the conditions want, the oldest first. Nothing is verified: that is for jail audit verify.
With --count it says how many there are of each type.

An index beside the log says where to look; it is brought up to date by the way, and begun where the log is long. What is shown is read from the log itself. Who can
write the index could have it leave something out: --no-index reads all.

Who may not read the log is shown the records of their own runs, by the daemon.`,
		Example: "  jail audit query --tool sed --decision denied --since 24h\n  jail audit query --host '*.example.com' --json\n  jail audit query --path '/etc/**' --count",
		Args:    exactly(),
	}
	var q queryFlags
	q.add(cmd)
	dir := a.logFlag(cmd)
	last := cmd.Flags().Int("last", 0, "only the last `N` that were found")
	noIndex := cmd.Flags().Bool("no-index", false, "read all of the log, and no index beside it")
	countOnly := cmd.Flags().Bool("count", false, "how many of each type, in place of them")
	asJSON := jsonFlag(cmd, "print the records as they are, one a line")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		f, err := q.filter(time.Now())
		if err != nil {
			return err
		}
		if *last < 0 {
			return usage("", "--last %d: want a number of records, from 1", *last)
		}
		var records iter.Seq2[audit.Record, error]
		if *dir == "" && a.mayNotRead() {
			records = a.askDaemon(cmd.Context(), q.request(f))
		} else {
			search := a.search(a.logDir(*dir))
			search.No = *noIndex
			records = search.Scan(cmd.Context(), f)
		}
		if *countOnly {
			return a.countRecords(a.logDir(*dir), records, *asJSON)
		}
		if *last > 0 {
			records = lastOf(records, *last)
		}
		return a.showRecords(a.logDir(*dir), records, *asJSON)
	}
	return cmd
}

func (a *app) countRecords(dir string, records iter.Seq2[audit.Record, error], asJSON bool) error {
	counts := map[string]int{}
	for r, err := range records {
		if told := (*supervisor.Error)(nil); errors.As(err, &told) {
			return err
		}
		if err != nil && r.Line == nil {
			return logError(dir, err)
		}
		counts[string(r.Type)]++
	}
	return a.show(asJSON, counts, func(w io.Writer) error {
		for _, t := range recordTypes {
			if n := counts[string(t)]; n > 0 {
				fmt.Fprintf(w, "%9d  %s\n", n, t)
			}
		}
		return nil
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

func (a *app) auditTailCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tail [flags]",
		Short: "show the last records, and with -f those to come",
		Long: `Show the last records that all of the conditions want. With --follow it goes on with those that are written from then on, until it is interrupted; --after says from
which record on instead, so that a reader that was cut off goes on where it was.

Who may not read the log is shown the records of their own runs, by the daemon. With its end --follow ends, and says from where on to go on.`,
		Example: "  jail audit tail\n  jail audit tail -f --type denied\n  jail audit tail -f --json --after 1742",
		Args:    exactly(),
	}
	var q queryFlags
	q.add(cmd)
	dir := a.logFlag(cmd)
	n := cmd.Flags().IntP("lines", "n", 10, "how `MANY`")
	follow := cmd.Flags().BoolP("follow", "f", false, "go on with those that are written from now on")
	after := cmd.Flags().Uint64("after", 0, "all those after the record `NUMBER`, in place of the last")
	asJSON := jsonFlag(cmd, "print the records as they are, one a line")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		f, err := q.filter(time.Now())
		if err != nil {
			return err
		}
		if *n < 0 {
			return usage("", "--lines %d: want a number of records, from 0", *n)
		}
		if cmd.Flags().Changed("after") {
			*n = all
		}
		d, ctx := a.logDir(*dir), followContext(cmd.Context(), *follow)
		var records iter.Seq2[audit.Record, error]
		switch {
		case *dir == "" && a.mayNotRead():
			records = a.tailDaemon(cmd.Context(), supervisor.EventsRequest{After: after, RecordsRequest: q.request(f)}, *n, *follow)
		case *n == all:
			records = audit.Follow(ctx, d, f, *after)
		default:
			records = audit.Tail(ctx, d, f, *n)
		}
		return a.showRecordsTo(a.printAtOnce, d, records, *asJSON)
	}
	return cmd
}

// followContext ends at once where nobody wants to wait: then what is there is all.
func followContext(ctx context.Context, follow bool) context.Context {
	if follow {
		return ctx
	}
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}
