package audit

import (
	"context"
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

type indexOptions struct {
	log           logFlag
	rebuild, json bool
}

func newIndex(env *cli.Env) *cobra.Command {
	var o indexOptions
	cmd := &cobra.Command{
		Use:   "index [flags]",
		Short: "bring the search index of the log up to date",
		Long: `Update the index for searches, or begin one. Searches do this themselves for a long log; this command makes the next search fast. The index can be deleted at any
time, since it is made from the log. Verification never uses it.`,
		Example: "  jail audit index\n  jail audit index --rebuild",
		Args:    command.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runIndex(cmd.Context(), env, o)
		},
	}
	o.log.add(cmd)
	cmd.Flags().BoolVar(&o.rebuild, "rebuild", false, "make it anew")
	command.JSON(cmd, &o.json, "print an object")
	return cmd
}

func runIndex(ctx context.Context, env *cli.Env, o indexOptions) error {
	d := o.log.dir(env)
	if _, err := os.ReadDir(d); err != nil {
		return logError(d, err)
	}
	begun := time.Now()
	n, err := index.Update(ctx, d, o.rebuild)
	if err != nil {
		return exit.Failed(err, "jail audit index --rebuild makes it anew",
			"index of the audit log %s: %v", d, err)
	}
	done := indexed{Records: n, MS: time.Since(begun).Milliseconds()}
	if info, err := os.Stat(filepath.Join(d, index.File)); err == nil {
		done.Bytes = info.Size()
	}
	return env.Show(o.json, done, output.Text("%s new in the index, which takes %s\n",
		output.Count(int(n), "record is", "records are"), output.Size(done.Bytes)))
}

type indexed struct {
	Records int64 `json:"records"` // new in it
	Bytes   int64 `json:"bytes"`   // that it takes
	MS      int64 `json:"ms"`
}
