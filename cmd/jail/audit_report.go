package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/audit/report"
)

func (a *app) auditReportCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "report RUN [flags]",
		Short: "tell the story of a run on one page",
		Long: `Tell the story of a run on one page: what was asked, what ran, what it changed and fetched, what it was refused and why, its limits, and who approved what. What a reviewer
should look at stands first. With --session RUN is a session, and the page is of all its runs. The log is verified meanwhile, and the page says so.`,
		Example: "  jail audit report 3w5e11264sg0c8v5a9b7k2m4qd\n  jail audit report ci-edit --form html > review.html",
		Args:    exactly("RUN"),
	}
	dir := a.logFlag(cmd)
	key := cmd.Flags().String("key", "", "`FILE` with the public key (default audit.pub beside the log)")
	session := cmd.Flags().Bool("session", false, "RUN is a session")
	form := cmd.Flags().String("form", report.Text, "`FORM` of the page: "+strings.Join(report.Forms, ", "))
	asJSON := jsonFlag(cmd, "print an object")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if !slices.Contains(report.Forms, *form) {
			return usage("", "--form %s: want %s", *form, strings.Join(report.Forms, ", "))
		}
		return a.report(args[0], a.logDir(*dir), *key, *form, *session, *asJSON)
	}
	return cmd
}

func (a *app) report(id, dir, keyFile, form string, session, asJSON bool) error {
	f := audit.Filter{Run: id}
	if session {
		f = audit.Filter{Session: id}
	}
	rep, err := report.Make(audit.Scan(dir, f), id, session)
	switch {
	case errors.Is(err, report.ErrNothing):
		return notFound("jail audit query lists the records", "audit log %s: no record is of %q", dir, id)
	case err != nil:
		return logError(dir, err)
	}
	pub, err := a.publicKey(dir, keyFile)
	if err != nil {
		return err
	}
	state := "The log verifies."
	if _, err := audit.Verify(dir, pub); err != nil {
		state = fmt.Sprintf("THE LOG DOES NOT VERIFY: %v.", err)
	}
	return a.show(asJSON, struct {
		*report.Report
		Verified string `json:"verified"`
	}{rep, state}, func(w io.Writer) error { return rep.Write(w, form, state) })
}
