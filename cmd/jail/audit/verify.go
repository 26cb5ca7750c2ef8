package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/supervisor/audit"
)

// A verdict is what verify found, as --json shows it.
type verdict struct {
	OK          bool   `json:"ok"`
	Log         string `json:"log"`
	Records     uint64 `json:"records"`
	Checkpoints uint64 `json:"checkpoints"`
	Gaps        uint64 `json:"gaps"`
	// Records at the beginning that were taken away, as the signed cut says.
	Pruned uint64 `json:"pruned,omitempty"`
	// Times that the signing key was changed.
	Keys   uint64 `json:"keys,omitempty"`
	Origin string `json:"origin,omitempty"`
	// Heads kept elsewhere that it fits.
	Anchors int `json:"anchors,omitempty"`
	// Of records that were pruned since.
	OldAnchors int `json:"old_anchors,omitempty"`
	// The newest of the anchors that each has cosigned.
	Witnesses []audit.Witnessed `json:"witnesses,omitempty"`
	Fault     *fault            `json:"fault,omitempty"`
}

// A fault is the first record that is wrong.
type fault struct {
	Record uint64 `json:"record"`
	// Altered, missing, out of order or unsigned.
	Kind string `json:"kind"`
	Why  string `json:"why"`
}

type verifyOptions struct {
	log                logFlag
	key, proof         string
	anchors, witnesses []string
	json               bool
}

func newVerify(env *cli.Env) *cobra.Command {
	var o verifyOptions
	cmd := &cobra.Command{
		Use:   "verify [flags]",
		Short: "check that no record of the log was changed or removed",
		Long: `Check that no record of the log was changed, removed, inserted or moved, and that all records are signed. Only the files are read.
The exit code is 0 for a sound log and 1 for any other; then the first bad record is named.

The key beside the log is a convenience: an attacker who can rewrite the log can replace the key, too. --key takes a copy that was kept elsewhere.
With --proof the command checks a proof of jail audit prove, that one record is in the log; it needs only the key.

--anchor takes signed heads that were kept off the host: a file with one head after the other, a directory of such files, a git repository with one head in each
commit, or the lines of a syslog collector. The log is compared with each head. This finds a log that root, or another holder of the key, has rewritten, rolled back or truncated.

--witness takes the public key of a witness, which must have cosigned one of the anchors.`,
		Example: "  jail audit verify\n  jail audit verify --log /mnt/copy --key audit.pub\n" +
			"  jail audit verify --proof incident.tlog-proof --key audit.pub\n" +
			"  jail audit verify --key audit.pub --anchor /mnt/anchors\n" +
			"  jail audit verify --key audit.pub --anchor seen.note --witness witness.pub",
		Args: command.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.proof != "" {
				return verifyProof(env, o.proof, o.key, o.json)
			}
			return runVerify(cmd.Context(), env, o)
		},
	}
	o.log.add(cmd)
	cmd.Flags().StringVar(&o.key, "key", "",
		"`FILE` with the public key (default audit.pub beside the log)")
	cmd.Flags().StringVar(&o.proof, "proof", "",
		"`FILE` that jail audit prove printed, to be checked in place of a log")
	cmd.Flags().StringArrayVar(&o.anchors, "anchor", nil,
		"`FILE`, directory or git repository of heads that were kept elsewhere (repeatable)")
	cmd.Flags().StringArrayVar(&o.witnesses, "witness", nil,
		"`FILE` with the public key of a witness that must have cosigned an anchor (repeatable)")
	command.JSON(cmd, &o.json, "print an object")
	return cmd
}

// runVerify holds the log against the anchors, and the anchors against the keys of the witnesses.
func runVerify(ctx context.Context, env *cli.Env, o verifyOptions) error {
	if len(o.witnesses) > 0 && len(o.anchors) == 0 {
		return exit.Usage(
			"--anchor FILE, the newest note of this log that the witness has cosigned",
			"--witness needs --anchor: the head that the witness has cosigned")
	}
	anchors, err := readAnchors(ctx, o.anchors)
	if err != nil {
		return err
	}
	witnesses, err := witnessKeys(o.witnesses)
	if err != nil {
		return err
	}
	dir := o.log.dir(env)
	if _, err := os.ReadDir(dir); err != nil {
		return logError(dir, err)
	}
	pub, err := publicKey(env, dir, o.key)
	if err != nil {
		return err
	}
	report, err := audit.Verify(dir, pub, anchors...)
	v := verdict{OK: err == nil, Log: dir, Records: report.Records, Checkpoints: report.Checkpoints,
		Gaps: report.Gaps, Pruned: report.Pruned,
		Keys: report.Keys, Origin: report.Origin, Anchors: report.Anchors, OldAnchors: report.Old}
	if err == nil && witnesses != "" {
		v.Witnesses, err = audit.CheckWitnesses(anchors, witnesses)
		v.OK = err == nil
	}
	var wrong *audit.Fault
	switch {
	case errors.Is(err, audit.ErrKey):
		e := exit.About(err, "audit log %s: the key %s", dir, cmp.Or(o.key, "beside it"))
		e.Hint = "name a copy that was kept with --key"
		env.Complain(e)
		return exit.No
	case errors.As(err, &wrong):
		v.Fault = &fault{wrong.Seq, string(wrong.Kind), wrong.Why}
	case err != nil:
		return logError(dir, err)
	}
	err = env.Show(o.json, v, func(w io.Writer) {
		if wrong != nil {
			output.Say(env.Stderr, "error", fmt.Sprintf("audit log %s: %v", dir, wrong))
			return
		}
		fmt.Fprintln(w, report)
		if report.Pruned > 0 {
			fmt.Fprintf(w,
				"it begins with record %d: the signed cut says that those before it were pruned\n",
				report.Pruned+1)
		}
		if report.Anchors > 0 {
			fmt.Fprintf(w, "it fits %s\n", output.Count(report.Anchors, "anchor", "anchors"))
		}
		for _, by := range v.Witnesses {
			fmt.Fprintf(w, "the witness %s has seen %d records of it, at %s\n", by.Name,
				by.Size, by.Time.Format(time.RFC3339))
		}
		if report.Old > 0 {
			fmt.Fprintf(w,
				"%s of records that were pruned since: nothing can be held against them\n",
				output.Count(report.Old, "anchor is", "anchors are"))
		}
		if report.Gaps > 0 {
			fmt.Fprintf(w, "%s what is not on record: jail audit show --type gap\n",
				output.Count(int(report.Gaps), "record says", "records say"))
		}
	})
	if err == nil && wrong != nil {
		return exit.No
	}
	return err
}

// publicKey reads the public key from file, or beside the log where file is "". A log without a key
// beside it fails the check.
func publicKey(env *cli.Env, dir, file string) (string, error) {
	if file == "" {
		pub, err := audit.PublicKey(dir)
		if err != nil {
			e := exit.About(err, "audit log %s: no public key can be read beside it", dir)
			e.Hint = "name a copy that was kept with --key"
			env.Complain(e)
			return "", exit.No
		}
		return pub, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", exit.About(err, "key %s", file)
	}
	return string(text), nil
}

// witnessKeys reads the public keys of witnesses.
func witnessKeys(files []string) (string, error) {
	var all string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err == nil {
			err = audit.CheckWitnessKeys(string(text))
		}
		if err != nil {
			return "", exit.About(err, "--witness %s", file)
		}
		all += string(text) + "\n"
	}
	return all, nil
}
