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
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/audit/index"
	"github.com/jail-sandbox/jail/supervisor/message"
)

// search returns the records of the log that f matches, by the index unless noIndex is set. The
// daemon searches by request where the caller may not read the log.
func (l logFlag) search(ctx context.Context, env *cli.Env, f audit.Filter,
	request message.RecordsRequest, noIndex bool) iter.Seq2[audit.Record, error] {
	if l.askDaemon(env) {
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
		Long: `Update the index for searches, or begin one. Searches do this themselves for a long log; this command makes the next search fast. The index can be deleted at any
time, since it is made from the log. Verification never uses it.`,
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
	Records int64 `json:"records"` // new in it
	Bytes   int64 `json:"bytes"`   // that it takes
	MS      int64 `json:"ms"`
}
