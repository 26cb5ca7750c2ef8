package audit

import (
	"context"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/audit/index"
	"github.com/jail-sandbox/jail/supervisor/message"
)

// logOptions returns the options for changing the daemon's log. A change needs the log's private
// key, which only the daemon's user can read.
func logOptions(env *cli.Env) audit.Options {
	return audit.Options{Dir: env.Config.LogDir, KeyDir: filepath.Join(env.Config.StateDir, "keys")}
}

func newRotate(env *cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rotate [flags]",
		Short: "give the log a new signing key",
		Long: `Give the log a new signing key and delete the old one. Both keys sign the record of
the change; later records need the new key, so a stolen old key can sign no more records. Daemons
use the new key from their next record on. Prints the new public key: keep it with the old ones.`,
		Example: "  jail audit rotate >> audit.pub",
		Args:    command.Exactly(),
	}
	type rotated struct {
		Key string `json:"key"`
	}
	return command.Print(env, cmd, "print an object with the key",
		func(*cobra.Command, []string) (to rotated, err error) {
			if err := needLog(env); err != nil {
				return to, err
			}
			if to.Key, err = audit.Rotate(logOptions(env)); err != nil {
				err = exit.Failed(err, "", "audit log %s: %v", env.Config.LogDir, err)
			}
			return to, err
		}, func(w io.Writer, to rotated) { fmt.Fprintln(w, to.Key) })
}

func newPrune(env *cli.Env) *cobra.Command {
	var keep string
	var k audit.Keep
	cmd := &cobra.Command{
		Use:   "prune [flags]",
		Short: "remove old segments of the log, with a record of it",
		Long: `Remove whole segments from the beginning of the log, but not the one in use, until
the rest is no larger than --keep and has no records older than --older-than. A record lists the
removed segments, and a signed cut states where the log begins, so the rest still verifies. Copy
the segments first if you need them.`,
		Example: "  jail audit prune --keep 10GiB\n  jail audit prune --older-than 2160h",
		Args:    command.Exactly(),
	}
	cmd.Flags().StringVar(&keep, "keep", "",
		"take segments away until the rest is at most `SIZE`")
	cmd.Flags().DurationVar(&k.For, "older-than", 0,
		"take segments away whose last record is `TIME` old")
	return command.Print(env, cmd, "print an object",
		func(*cobra.Command, []string) (audit.Pruning, error) { return prune(env, keep, k) },
		func(w io.Writer, p audit.Pruning) {
			if p.Segments == 0 {
				fmt.Fprintln(w, "nothing to take away")
				return
			}
			fmt.Fprintf(w, "took %s away: records %d to %d, %s\n",
				output.Count(p.Segments, "segment", "segments"), p.First, p.Last, output.Size(p.Bytes))
		})
}

func prune(env *cli.Env, keep string, k audit.Keep) (p audit.Pruning, err error) {
	if keep != "" {
		if k.Bytes, err = policy.Bytes.Parse(keep); err != nil {
			return p, exit.Usage("", "--keep: %v", err)
		}
	}
	if k.Bytes <= 0 && k.For <= 0 {
		return p, exit.Usage("jail audit prune --keep 10GiB",
			"jail audit prune: say what to keep, by --keep or --older-than")
	}
	if err := needLog(env); err != nil {
		return p, err
	}
	if p, err = audit.Prune(logOptions(env), k); err != nil {
		err = exit.Failed(err, "", "audit log %s: %v", env.Config.LogDir, err)
	}
	return p, err
}

// needLog returns an error if the log does not exist, so that the command does not create one.
func needLog(env *cli.Env) error {
	if _, err := os.ReadDir(env.Config.LogDir); err != nil {
		return logError(env.Config.LogDir, err)
	}
	return nil
}

// search returns the records that f matches. It uses the index unless noIndex is set. If only the
// daemon may read the log, search sends request to the daemon, and f is not used.
func (l logFlag) search(ctx context.Context, env *cli.Env, f audit.Filter,
	request message.RecordsRequest, noIndex bool) iter.Seq2[audit.Record, error] {
	if l.needsDaemon(env) {
		return askDaemon(ctx, env, request)
	}
	dir := l.dir(env)
	say := func(text string) { output.Say(env.Stderr, "hint", "audit log "+dir+": "+text) }
	return index.Search{Dir: dir, Say: say, No: noIndex}.Scan(ctx, f)
}

func newIndex(env *cli.Env) *cobra.Command {
	var log logFlag
	var rebuild bool
	cmd := &cobra.Command{
		Use:   "index [flags]",
		Short: "bring the search index of the log up to date",
		Long: `Update the index for searches, or begin one. Searches do this themselves for a long
log; this command makes the next search fast. The index can be deleted at any time, since it is
made from the log. Verification never uses it.`,
		Example: "  jail audit index\n  jail audit index --rebuild",
		Args:    command.Exactly(),
	}
	log.add(cmd)
	cmd.Flags().BoolVar(&rebuild, "rebuild", false, "make it anew")
	return command.Print(env, cmd, "print an object",
		func(cmd *cobra.Command, _ []string) (indexed, error) {
			return updateIndex(cmd.Context(), log.dir(env), rebuild)
		}, func(w io.Writer, done indexed) {
			fmt.Fprintf(w, "%s new in the index, which takes %s\n",
				output.Count(int(done.Records), "record is", "records are"), output.Size(done.Bytes))
		})
}

func updateIndex(ctx context.Context, dir string, rebuild bool) (done indexed, err error) {
	if _, err := os.ReadDir(dir); err != nil {
		return done, logError(dir, err)
	}
	begun := time.Now()
	if done.Records, err = index.Update(ctx, dir, rebuild); err != nil {
		return done, exit.Failed(err, "jail audit index --rebuild makes it anew",
			"index of the audit log %s: %v", dir, err)
	}
	done.MS = time.Since(begun).Milliseconds()
	if info, err := os.Stat(filepath.Join(dir, index.File)); err == nil {
		done.Bytes = info.Size()
	}
	return done, nil
}

type indexed struct {
	Records int64 `json:"records"` // newly indexed
	Bytes   int64 `json:"bytes"`   // size of the index
	MS      int64 `json:"ms"`
}
