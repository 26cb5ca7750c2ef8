package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/supervisor/audit"
)

// logOptions are those of the daemon's own log: who changes it needs the key, and so the rights of the daemon.
func (a *app) logOptions() audit.Options {
	return audit.Options{Dir: a.config.LogDir, KeyDir: filepath.Join(a.config.StateDir, "keys")}
}

func (a *app) auditRotateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "give the log a new signing key",
		Long: `Give the log a new signing key and forget the old one. A record that both keys sign hands over; behind it only the new key counts, so that who has stolen the old
one can sign nothing any more. Daemons go on with the new key at their next record. Prints the new public key, to be kept beside the old ones.`,
		Example: "  jail audit rotate >> audit.pub",
		Args:    exactly(),
	}
	cmd.RunE = func(*cobra.Command, []string) error {
		if err := a.needLog(); err != nil {
			return err
		}
		pub, err := audit.Rotate(a.logOptions())
		if err != nil {
			return failed(err, "", "audit log %s: %v", a.config.LogDir, err)
		}
		return a.print(func(w io.Writer) error {
			_, err := fmt.Fprintln(w, pub)
			return err
		})
	}
	return cmd
}

func (a *app) auditPruneCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "prune [flags]",
		Short: "take old segments out of the log, on record",
		Long: `Take whole segments from the beginning of the log, never the one in use, until the rest is no larger than --keep and no record of a segment is older than --older-than
wants. A record says which went, and a signed cut where the log begins, so that the rest verifies as before. Copy them away first if they are still wanted.`,
		Example: "  jail audit prune --keep 10GiB\n  jail audit prune --older-than 2160h",
		Args:    exactly(),
	}
	keep := cmd.Flags().String("keep", "", "take segments away until the rest is at most `SIZE`")
	older := cmd.Flags().Duration("older-than", 0, "take segments away whose last record is `TIME` old")
	asJSON := jsonFlag(cmd, "print an object")
	cmd.RunE = func(*cobra.Command, []string) error {
		k := audit.Keep{For: *older}
		if *keep != "" {
			n, err := policy.Bytes.Parse(*keep)
			if err != nil {
				return usage("", "--keep: %v", err)
			}
			k.Bytes = n
		}
		if k.Bytes <= 0 && k.For <= 0 {
			return usage("jail audit prune --keep 10GiB", "jail audit prune: say what to keep, by --keep or --older-than")
		}
		if err := a.needLog(); err != nil {
			return err
		}
		p, err := audit.Prune(a.logOptions(), k)
		if err != nil {
			return failed(err, "", "audit log %s: %v", a.config.LogDir, err)
		}
		return a.show(*asJSON, pruned(p), func(w io.Writer) error {
			if p.Segments == 0 {
				fmt.Fprintln(w, "nothing to take away")
				return nil
			}
			fmt.Fprintf(w, "took %s away: records %d to %d, %s\n", count(p.Segments, "segment", "segments"), p.First, p.Last, size(p.Bytes))
			return nil
		})
	}
	return cmd
}

type pruned struct {
	Segments int    `json:"segments"`
	Bytes    int64  `json:"bytes"`
	First    uint64 `json:"first"`
	Last     uint64 `json:"last"`
}

// needLog refuses to begin a log by the way.
func (a *app) needLog() error {
	if _, err := os.ReadDir(a.config.LogDir); err != nil {
		return logError(a.config.LogDir, err)
	}
	return nil
}
