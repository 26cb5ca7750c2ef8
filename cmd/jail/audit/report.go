package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/audit/report"
	"github.com/jail-sandbox/jail/supervisor/message"
)

type reportOptions struct {
	id, key, form string
	log           logFlag
	session, json bool
}

func newReport(env *cli.Env) *cobra.Command {
	var o reportOptions
	cmd := &cobra.Command{
		Use:   "report RUN [flags]",
		Short: "summarize a run on one page",
		Long: `Summarize a run on one page: the request, the tool, changes, fetches, refusals and
their reasons, limits, and approvals. The points that need review come first. With --session RUN
is a session, and the page is about all of its runs. The log is verified meanwhile; the page has
the result.`,
		Example: "  jail audit report 3w5e11264sg0c8v5a9b7k2m4qd\n" +
			"  jail audit report ci-edit --form html > review.html",
		Args: command.Exactly("RUN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.id = args[0]
			return runReport(cmd.Context(), env, o)
		},
	}
	o.log.add(cmd)
	cmd.Flags().StringVar(&o.key, "key", "",
		"`FILE` with the public key (default audit.pub beside the log)")
	cmd.Flags().BoolVar(&o.session, "session", false, "RUN is a session")
	cmd.Flags().StringVar(&o.form, "form", report.Text, "`FORM` of the page: "+
		strings.Join(report.Forms, ", "))
	command.JSON(cmd, &o.json, "print an object")
	return cmd
}

func runReport(ctx context.Context, env *cli.Env, o reportOptions) error {
	if !slices.Contains(report.Forms, o.form) {
		return exit.Usage("", "--form %s: want %s", o.form, strings.Join(report.Forms, ", "))
	}
	dir := o.log.dir(env)
	f := audit.Filter{Run: o.id}
	if o.session {
		f = audit.Filter{Session: o.id}
	}
	ask := o.log.needsDaemon(env)
	records := o.log.search(ctx, env, f,
		message.RecordsRequest{Run: f.Run, Session: f.Session}, false)
	rep, err := report.Make(records, o.id, o.session)
	switch {
	case errors.Is(err, report.ErrNothing):
		return exit.NotFound("jail audit query lists the records",
			"audit log %s: no record is of %.80q", dir, o.id)
	case err != nil && ask:
		return err
	case err != nil:
		return logError(dir, err)
	case ask:
		return showReport(env, o, rep,
			"The daemon told it; only who may read the log can verify it.")
	}
	pub, err := publicKey(env, dir, o.key)
	if err != nil {
		return err
	}
	state := "The log verifies."
	if _, err := audit.Verify(dir, pub); err != nil {
		state = fmt.Sprintf("THE LOG DOES NOT VERIFY: %v.", err)
	}
	return showReport(env, o, rep, state)
}

// showReport prints the report. state is a sentence on whether the log verifies.
func showReport(env *cli.Env, o reportOptions, rep *report.Report, state string) error {
	if o.json {
		return env.PrintJSON(struct {
			*report.Report
			Verified string `json:"verified"`
		}{rep, state})
	}
	return env.Stream(func(w io.Writer) error { return rep.Write(w, o.form, state) })
}
