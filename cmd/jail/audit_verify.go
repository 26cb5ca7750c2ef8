package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/supervisor/audit"
)

// A verdict is what verify found, as --json shows it.
type verdict struct {
	OK          bool              `json:"ok"`
	Log         string            `json:"log"`
	Records     uint64            `json:"records"`
	Checkpoints uint64            `json:"checkpoints"`
	Gaps        uint64            `json:"gaps"`
	Pruned      uint64            `json:"pruned,omitempty"` // records at the beginning that were taken away, as the signed cut says
	Keys        uint64            `json:"keys,omitempty"`   // times that the signing key was changed
	Origin      string            `json:"origin,omitempty"`
	Anchors     int               `json:"anchors,omitempty"`     // heads kept elsewhere that it fits
	OldAnchors  int               `json:"old_anchors,omitempty"` // of records that were pruned since
	Witnesses   []audit.Witnessed `json:"witnesses,omitempty"`   // the newest of the anchors that each has cosigned
	Fault       *fault            `json:"fault,omitempty"`
}

// A fault is the first record that is wrong.
type fault struct {
	Record uint64 `json:"record"`
	Kind   string `json:"kind"` // altered, missing, out of order or unsigned
	Why    string `json:"why"`
}

func (a *app) auditVerifyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify [flags]",
		Short: "check that nothing in the log was altered or taken out",
		Long: `Check that nothing in the log was altered, taken out, put in or moved, and that all of it is signed. Only the files are read.
Exits with 0 if all is in order, and with 1 if not; then it names the first record that is wrong.

The key beside the log is a convenience: who could rewrite the log could replace it. --key takes a copy that was kept elsewhere. With --proof it checks what
jail audit prove printed: that one record is in the log, with the key alone.

--anchor takes signed heads that were kept off the host: a file that holds them one behind the other, a directory of such files, a git repository with one in each
commit, or the lines of a collector of syslog. The log is held against each, so that one that was rebuilt, put back or cut by whoever has its key, root included, is found.

--witness takes the public key of a witness: then one of the anchors must be cosigned by it.`,
		Example: "  jail audit verify\n  jail audit verify --log /mnt/copy --key audit.pub\n  jail audit verify --proof incident.tlog-proof --key audit.pub\n  jail audit verify --key audit.pub --anchor /mnt/anchors\n  jail audit verify --key audit.pub --anchor seen.note --witness witness.pub",
		Args:    exactly(),
	}
	dir := a.logFlag(cmd)
	key := cmd.Flags().String("key", "", "`FILE` with the public key (default audit.pub beside the log)")
	proof := cmd.Flags().String("proof", "", "`FILE` that jail audit prove printed, to be checked in place of a log")
	kept := cmd.Flags().StringArray("anchor", nil, "`FILE`, directory or git repository of heads that were kept elsewhere (repeatable)")
	witnesses := cmd.Flags().StringArray("witness", nil, "`FILE` with the public key of a witness that must have cosigned an anchor (repeatable)")
	asJSON := jsonFlag(cmd, "print an object")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *proof != "" {
			return a.verifyProof(*proof, *key, *asJSON)
		}
		if len(*witnesses) > 0 && len(*kept) == 0 {
			return usage("on the witness: jail audit witness show LOG; or curl http://WITNESS/checkpoint/LOG", "--witness needs --anchor: the head that the witness has cosigned")
		}
		anchors, err := readAnchors(cmd.Context(), *kept)
		if err != nil {
			return err
		}
		keys, err := witnessKeys(*witnesses)
		if err != nil {
			return err
		}
		return a.verify(a.logDir(*dir), *key, anchors, keys, *asJSON)
	}
	return cmd
}

// verify holds a log against anchors, and those against the keys of witnesses, of which there may be none.
func (a *app) verify(dir, keyFile string, anchors []audit.Anchor, witnesses string, asJSON bool) error {
	if _, err := os.ReadDir(dir); err != nil {
		return logError(dir, err)
	}
	pub, err := a.publicKey(dir, keyFile)
	if err != nil {
		return err
	}
	report, err := audit.Verify(dir, pub, anchors...)
	v := verdict{OK: err == nil, Log: dir, Records: report.Records, Checkpoints: report.Checkpoints, Gaps: report.Gaps, Pruned: report.Pruned,
		Keys: report.Keys, Origin: report.Origin, Anchors: report.Anchors, OldAnchors: report.Old}
	if err == nil && witnesses != "" {
		v.Witnesses, err = audit.CheckWitnesses(anchors, witnesses)
		v.OK = err == nil
	}
	var wrong *audit.Fault
	switch {
	case errors.As(err, &wrong):
		v.Fault = &fault{wrong.Seq, string(wrong.Kind), wrong.Why}
	case err != nil:
		return logError(dir, err)
	}
	err = a.show(asJSON, v, func(w io.Writer) error {
		if wrong != nil {
			say(a.stderr, "error", fmt.Sprintf("audit log %s: %v", dir, wrong))
			return nil
		}
		fmt.Fprintln(w, report)
		if report.Pruned > 0 {
			fmt.Fprintf(w, "it begins with record %d: the signed cut says that those before it were pruned\n", report.Pruned+1)
		}
		if report.Anchors > 0 {
			fmt.Fprintf(w, "it fits %s\n", count(report.Anchors, "anchor", "anchors"))
		}
		for _, by := range v.Witnesses {
			fmt.Fprintf(w, "the witness %s has seen %d records of it, at %s\n", by.Name, by.Size, by.Time.Format(time.RFC3339))
		}
		if report.Old > 0 {
			fmt.Fprintf(w, "%s of records that were pruned since: nothing can be held against them\n", count(report.Old, "anchor is", "anchors are"))
		}
		if report.Gaps > 0 {
			fmt.Fprintf(w, "%s what is not on record: jail audit show --type gap\n", count(int(report.Gaps), "record says", "records say"))
		}
		return nil
	})
	if err == nil && wrong != nil {
		return exitNo
	}
	return err
}

// publicKey reads the key. A log without one beside it cannot be verified, and that is a finding, not a failure.
func (a *app) publicKey(dir, file string) (string, error) {
	if file == "" {
		pub, err := audit.PublicKey(dir)
		if err != nil {
			e := describe(err)
			e.Message = fmt.Sprintf("audit log %s: no public key can be read beside it: %v", dir, cause(err))
			e.Hint = "name a copy that was kept with --key"
			a.complain(e)
			return "", exitNo
		}
		return pub, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		e := describe(err)
		e.Message = fmt.Sprintf("key %s: %v", file, cause(err))
		return "", e
	}
	return string(text), nil
}
