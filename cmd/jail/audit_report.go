package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/supervisor"
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
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !slices.Contains(report.Forms, *form) {
			return usage("", "--form %s: want %s", *form, strings.Join(report.Forms, ", "))
		}
		return a.report(cmd.Context(), args[0], *dir, *key, *form, *session, *asJSON)
	}
	return cmd
}

func (a *app) report(ctx context.Context, id, logFlag, keyFile, form string, session, asJSON bool) error {
	dir := a.logDir(logFlag)
	f := audit.Filter{Run: id}
	if session {
		f = audit.Filter{Session: id}
	}
	ask := logFlag == "" && a.mayNotRead()
	var records iter.Seq2[audit.Record, error]
	if ask {
		records = a.askDaemon(ctx, supervisor.RecordsRequest{Run: f.Run, Session: f.Session})
	} else {
		records = a.search(dir).Scan(ctx, f)
	}
	rep, err := report.Make(records, id, session)
	switch {
	case errors.Is(err, report.ErrNothing):
		return notFound("jail audit query lists the records", "audit log %s: no record is of %q", dir, id)
	case err != nil && ask:
		return err
	case err != nil:
		return logError(dir, err)
	case ask:
		return a.showReport(rep, form, "The daemon told it; only who may read the log can verify it.", asJSON)
	}
	pub, err := a.publicKey(dir, keyFile)
	if err != nil {
		return err
	}
	state := "The log verifies."
	if _, err := audit.Verify(dir, pub); err != nil {
		state = fmt.Sprintf("THE LOG DOES NOT VERIFY: %v.", err)
	}
	return a.showReport(rep, form, state, asJSON)
}

func (a *app) showReport(rep *report.Report, form, state string, asJSON bool) error {
	return a.show(asJSON, struct {
		*report.Report
		Verified string `json:"verified"`
	}{rep, state}, func(w io.Writer) error { return rep.Write(w, form, state) })
}
