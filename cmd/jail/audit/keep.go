package audit

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/supervisor/audit"
)

// logOptions returns the options of the daemon's own log. A change of the log needs its key, which
// only the daemon's user can read.
func logOptions(env *cli.Env) audit.Options {
	return audit.Options{Dir: env.Config.LogDir, KeyDir: filepath.Join(env.Config.StateDir, "keys")}
}

func newRotate(env *cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rotate [flags]",
		Short: "give the log a new signing key",
		Long: `Give the log a new signing key and delete the old one. Both keys sign the record of the change; later records need the new key, so a stolen old key can sign
no more records. Daemons use the new key from their next record on. Prints the new public key: keep it with the old ones.`,
		Example: "  jail audit rotate >> audit.pub",
		Args:    command.Exactly(),
	}
	var asJSON bool
	command.JSON(cmd, &asJSON, "print an object with the key")
	cmd.RunE = func(*cobra.Command, []string) error {
		if err := needLog(env); err != nil {
			return err
		}
		pub, err := audit.Rotate(logOptions(env))
		if err != nil {
			return exit.Failed(err, "", "audit log %s: %v", env.Config.LogDir, err)
		}
		return env.Show(asJSON, struct {
			Key string `json:"key"`
		}{pub}, output.Text("%s\n", pub))
	}
	return cmd
}

func newPrune(env *cli.Env) *cobra.Command {
	var keep string
	var k audit.Keep
	cmd := &cobra.Command{
		Use:   "prune [flags]",
		Short: "remove old segments of the log, with a record of it",
		Long: `Remove whole segments from the beginning of the log, but not the one in use, until the rest is no larger than --keep and has no records older than
--older-than. A record lists the removed segments, and a signed cut states where the log begins, so the rest still verifies. Copy the segments first if you
need them.`,
		Example: "  jail audit prune --keep 10GiB\n  jail audit prune --older-than 2160h",
		Args:    command.Exactly(),
	}
	cmd.Flags().StringVar(&keep, "keep", "",
		"take segments away until the rest is at most `SIZE`")
	cmd.Flags().DurationVar(&k.For, "older-than", 0,
		"take segments away whose last record is `TIME` old")
	return command.Print(env, cmd, "print an object",
		func(*cobra.Command, []string) (pruned, error) { return prune(env, keep, k) },
		func(w io.Writer, p pruned) {
			if p.Segments == 0 {
				fmt.Fprintln(w, "nothing to take away")
				return
			}
			fmt.Fprintf(w, "took %s away: records %d to %d, %s\n",
				output.Count(p.Segments, "segment", "segments"), p.First, p.Last, output.Size(p.Bytes))
		})
}

func prune(env *cli.Env, keep string, k audit.Keep) (p pruned, err error) {
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
	done, err := audit.Prune(logOptions(env), k)
	if err != nil {
		return p, exit.Failed(err, "", "audit log %s: %v", env.Config.LogDir, err)
	}
	return pruned(done), nil
}

type pruned struct {
	Segments int    `json:"segments"`
	Bytes    int64  `json:"bytes"`
	First    uint64 `json:"first"`
	Last     uint64 `json:"last"`
}

// needLog refuses to begin a log by the way.
func needLog(env *cli.Env) error {
	if _, err := os.ReadDir(env.Config.LogDir); err != nil {
		return logError(env.Config.LogDir, err)
	}
	return nil
}
