package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/audit/anchor"
)

// A verdict is the result of jail audit verify, for --json.
type verdict struct {
	OK  bool   `json:"ok"`
	Log string `json:"log"`
	audit.Report
	// Witnesses has the newest anchor that each witness has cosigned.
	Witnesses []audit.Witnessed `json:"witnesses,omitempty"`
	Fault     *audit.Fault      `json:"fault,omitempty"`
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
		Long: `Check that no record of the log was changed, removed, inserted or moved, and that
all records are signed. Only the files are read. The exit code is 0 for a sound log and 1 for any
other; then the first bad record is named.

The key beside the log is a convenience: an attacker who can rewrite the log can replace the key,
too. --key takes a copy that was kept elsewhere. With --proof the command checks a proof of jail
audit prove, that one record is in the log; it needs only the key.

--anchor takes signed heads that were kept off the host: a file with one head after the other, a
directory of such files, a git repository with one head in each commit, or the lines of a syslog
collector. The log is compared with each head. This finds a log that root, or another holder of
the key, has rewritten, rolled back or truncated.

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

// runVerify verifies the log, compares it with the anchors, and checks the witnesses' signatures.
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
	v := verdict{OK: err == nil, Log: dir, Report: report}
	if err == nil && witnesses != "" {
		v.Witnesses, err = audit.CheckWitnesses(anchors, witnesses)
		v.OK = err == nil
	}
	switch {
	case errors.Is(err, audit.ErrKey):
		e := exit.About(err, "audit log %s: the key %s", dir, cmp.Or(o.key, "beside it"))
		e.Hint = "name a copy that was kept with --key"
		env.Complain(e)
		return exit.No
	case errors.As(err, &v.Fault):
	case err != nil:
		return logError(dir, err)
	}
	err = env.Show(o.json, v, func(w io.Writer) {
		if v.Fault != nil {
			output.Say(env.Stderr, "error", fmt.Sprintf("audit log %s: %v", dir, v.Fault))
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
	if err == nil && v.Fault != nil {
		return exit.No
	}
	return err
}

// publicKey reads the log's public key from file, or from the log's directory dir if file is "". If
// dir has no key, it reports that on standard error and returns exit.No.
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

// witnessKeys returns the public keys in files, one a line. It returns an error for an invalid key.
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

func newKey(env *cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "key [flags]",
		Short: "print the public key of the log",
		Long: `Print the public keys that have signed the log, the oldest first, one a line. Keep
a copy on another machine: it verifies copies of the log and proofs of records, and it detects a
log that an attacker on this machine has signed with another key.`,
		Example: "  jail audit key > audit.pub",
		Args:    command.Exactly(),
	}
	var log logFlag
	log.add(cmd)
	var asJSON bool
	command.JSON(cmd, &asJSON, "print an object with a list of the keys")
	cmd.RunE = func(*cobra.Command, []string) error {
		pub, err := audit.PublicKey(log.dir(env))
		if err != nil {
			return logError(log.dir(env), err)
		}
		return env.Show(asJSON, struct {
			Keys []string `json:"keys"`
		}{strings.Fields(pub)}, output.Text("%s", pub))
	}
	return cmd
}

func newProve(env *cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "prove RECORD [flags]",
		Short: "prove that one record is in the log",
		Long: `Print one record and a proof (C2SP tlog-proof) that it is in the log. The proof has
a few hundred bytes for a log of any length. With the public key, jail audit verify --proof or any
program that knows the format checks it, without other records.`,
		Example: "  jail audit prove 1742 > incident.tlog-proof\n" +
			"  jail audit verify --proof incident.tlog-proof --key audit.pub",
		Args: command.Exactly("RECORD"),
	}
	var log logFlag
	log.add(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		seq, err := strconv.ParseUint(args[0], 10, 63)
		if err != nil || seq == 0 {
			return exit.Usage("jail audit show lists them",
				"RECORD %.80q: want the number of a record, from 1", args[0])
		}
		pub, err := publicKey(env, log.dir(env), "")
		if err != nil {
			return err
		}
		proof, err := audit.Prove(log.dir(env), pub, seq)
		switch {
		case errors.Is(err, audit.ErrNoRecord):
			return exit.NotFound("jail audit show lists the records",
				"audit log %s: it has no record %d", log.dir(env), seq)
		case err != nil:
			return logError(log.dir(env), err)
		}
		return env.Print(func(w io.Writer) {
			w.Write(proof.Marshal())
		})
	}
	return cmd
}

// A proven is the result of jail audit verify --proof, for --json.
type proven struct {
	OK     bool   `json:"ok"`
	Record uint64 `json:"record,omitempty"`
	Why    string `json:"why,omitempty"` // why the proof is not valid
}

// verifyProof checks the proof of one record with the public key. It reads no log.
func verifyProof(env *cli.Env, file, keyFile string, asJSON bool) error {
	if keyFile == "" {
		return exit.Usage("jail audit key prints it, on the machine of the log",
			"--proof needs --key: the log's public key, from a copy that was kept")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return exit.About(err, "proof %s", file)
	}
	pub, err := publicKey(env, "", keyFile)
	if err != nil {
		return err
	}
	proof, err := audit.ParseProof(text)
	var r audit.Record
	if err == nil {
		r, err = audit.CheckProof(proof, pub)
	}
	found := proven{OK: err == nil, Record: r.Seq}
	if err != nil {
		found.Why = err.Error()
	}
	showErr := env.Show(asJSON, found, func(w io.Writer) {
		if err != nil {
			output.Say(env.Stderr, "error", fmt.Sprintf("proof %s: %v", file, err))
			return
		}
		fmt.Fprintf(w, "verified: record %d is in the log\n", r.Seq)
		// Render returns only errors of w, which keeps them.
		_ = audit.Render(w, r)
	})
	if showErr == nil && err != nil {
		return exit.No
	}
	return showErr
}

// maxAnchorFile bounds the size of one file of anchors, in bytes.
const maxAnchorFile = 256 << 20

// readAnchors reads anchors. Each path is a file, a directory of files, or a git repository whose
// commits hold anchors.
func readAnchors(ctx context.Context, paths []string) ([]audit.Anchor, error) {
	var all []audit.Anchor
	take := func(from string, text []byte, err error) error {
		if err != nil {
			return err
		}
		some, err := audit.ParseAnchors(from, text)
		all = append(all, some...)
		return err
	}
	for _, path := range paths {
		if heads, known, err := anchor.ReadRepository(ctx, path); known {
			if err := take(path, heads, err); err != nil {
				return nil, exit.Failed(err, "", "--anchor %s: %v", path, err)
			}
			continue
		}
		files, err := anchorFiles(path)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			text, err := readBounded(file)
			if err := take(file, text, err); err != nil {
				return nil, exit.About(err, "--anchor %s", file)
			}
		}
	}
	return all, nil
}

func anchorFiles(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() {
		return []string{path}, nil
	}
	var files []string
	if err == nil {
		var entries []os.DirEntry
		entries, err = os.ReadDir(path)
		for _, e := range entries {
			if e.Type().IsRegular() {
				files = append(files, filepath.Join(path, e.Name()))
			}
		}
		if err == nil && len(files) == 0 {
			err = fmt.Errorf("%w: it has no files", audit.ErrAnchor)
		}
	}
	if err != nil {
		return nil, exit.About(err, "--anchor %s", path)
	}
	return files, nil
}

func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxAnchorFile+1))
	if err == nil && len(text) > maxAnchorFile {
		err = fmt.Errorf("%w: it is longer than %s", audit.ErrAnchor, output.Size(maxAnchorFile))
	}
	return text, err
}

func newAnchor(env *cli.Env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "anchor",
		Short: "send the signed head of the log off the host now",
		Long: `Send the signed head of the log to all anchors in ` + supervisorAudit + `, as the
daemon does regularly, and show their state. With a head that is kept out of reach of an attacker
on this host, jail audit verify --anchor later proves that no record was removed or rewritten
since. The exit code is 1 if an anchor did not take the head.`,
		Example: "  jail audit anchor\n  jail audit anchor --json",
		Args:    command.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runAnchor(cmd.Context(), env, asJSON)
		},
	}
	command.JSON(cmd, &asJSON, "print a list")
	return cmd
}

func runAnchor(ctx context.Context, env *cli.Env, asJSON bool) error {
	s, err := anchor.Read(env.Config.Audit)
	if err != nil {
		return exit.Failed(err, "", "%v", err)
	}
	if len(s.Anchors) == 0 {
		return exit.Usage("add an [[anchor]] with name and to",
			"jail audit anchor: %s names no place for them", env.Config.Audit)
	}
	if err := needLog(env); err != nil {
		return err
	}
	keeper := anchor.Keeper{Log: env.Config.LogDir, State: env.Config.Anchors(), Targets: s.Anchors}
	all, sendErr := keeper.Once(ctx)
	if err := env.Show(asJSON, all, func(w io.Writer) {
		writeAnchors(w, all)
	}); err != nil {
		return err
	}
	if slices.ContainsFunc(all, func(s anchor.Status) bool { return s.Error != "" }) {
		return exit.No
	}
	if sendErr != nil {
		return exit.Failed(sendErr, "", "%v", sendErr)
	}
	return nil
}

// supervisorAudit is the path of the log's settings, for help texts.
const supervisorAudit = "/etc/jail/audit.toml"

func writeAnchors(w io.Writer, all []anchor.Status) {
	heads := []string{"NAME", "TO", "RECORDS", "TAKEN", "ERROR"}
	output.Rows(w, heads, all, func(s anchor.Status) []string {
		taken := "never"
		if !s.Time.IsZero() {
			taken = s.Time.Format(time.RFC3339)
		}
		return []string{s.Name, s.To, fmt.Sprint(s.Size), taken, audit.Printable(s.Error)}
	})
}
