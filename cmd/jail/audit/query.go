package audit

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

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
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
	set.StringSliceVar(&q.types, "type", nil,
		"only of `TYPE`, such as denied or run.finished (repeatable)")
	set.StringVar(&q.decision, "decision", "", "only what was `allowed` or denied")
	set.StringVar(&q.layer, "layer", "", "only what `LAYER` refused, such as wasi or seccomp")
	set.StringVar(&q.host, "host", "",
		"only fetches from `HOST`, such as example.com or *.example.com")
	set.StringVar(&q.path, "path", "",
		"only what names a path that the pattern `GLOB` matches, such as '/etc/**' or 'src/*.go'")
	set.StringVar(&q.policy, "policy", "",
		"only under the effective policy with that `DIGEST`, or its beginning")
	set.StringVar(&q.since, "since", "",
		"only from `TIME` on: how long ago, as 90m, or a time, as 2006-01-02T15:04:05Z")
	set.StringVar(&q.until, "until", "", "only before `TIME`")
}

func (q *queryFlags) filter(now time.Time) (f audit.Filter, err error) {
	f = audit.Filter{Run: q.run, Session: q.session, Tool: q.tool, Layer: q.layer, Host: q.host,
		Decision: q.decision, Policy: q.policy}
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
		return f, exit.Usage("", "--decision %s: want allowed or denied", d)
	}
	if q.path != "" {
		g, err := policy.ParseGlob(q.path)
		if err != nil {
			return f, exit.Usage("", "--path: %v", err)
		}
		f.Path = g.Match
	}
	return f, nil
}

// request is the filter as the daemon takes it.
func (q *queryFlags) request(f audit.Filter) message.RecordsRequest {
	return message.RecordsRequest{Run: f.Run, Session: f.Session, Types: q.types, Since: f.Since,
		Until: f.Until, UID: f.UID, Policy: f.Policy, Tool: f.Tool,
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
			return nil, exit.Usage("", "--user %s: this host knows no user of that name", text)
		}
		n, err = strconv.ParseUint(u.Uid, 10, 32)
	}
	uid := uint32(n)
	return &uid, err
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
	f, err := o.filter(time.Now())
	if err != nil {
		return err
	}
	if o.last < 0 {
		return exit.Usage("", "--last %d: want a number of records, from 1", o.last)
	}
	dir := o.log.dir(env)
	records := o.log.search(ctx, env, f, o.request(f), o.noIndex)
	if o.count {
		return countRecords(env, dir, records, o.json)
	}
	if o.last > 0 {
		records = lastOf(records, o.last)
	}
	return showRecords(env, dir, records, o.json)
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
	return env.Show(asJSON, counts, func(w io.Writer) error {
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
