package audit

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/supervisor/audit"
)

func newKey(env *cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "key [flags]",
		Short: "print the public key of the log",
		Long: `Print the public keys that have signed the log, the oldest first, one a line. Keep a copy on another machine: it verifies copies of the log and proofs of
records, and it detects a log that an attacker on this machine has signed with another key.`,
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
		Long: `Print one record and a proof (C2SP tlog-proof) that it is in the log. The proof has a few hundred bytes for a log of any length. With the public key, jail audit
verify --proof or any program that knows the format checks it, without other records.`,
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

// A proven is what verify --proof found, as --json shows it.
type proven struct {
	OK     bool   `json:"ok"`
	Record uint64 `json:"record,omitempty"`
	Why    string `json:"why,omitempty"` // it is not ok
}

// verifyProof checks one record with the key alone; no log is read.
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
		_ = audit.Render(w, r) // the error is that of w
	})
	if showErr == nil && err != nil {
		return exit.No
	}
	return showErr
}
