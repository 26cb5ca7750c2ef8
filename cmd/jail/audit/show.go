package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

type showOptions struct {
	queryFlags
	log  logFlag
	json bool
}

func newShow(env *cli.Env) *cobra.Command {
	var o showOptions
	cmd := &cobra.Command{
		Use:   "show [flags]",
		Short: "show records",
		Long: `Show records of the log, the oldest first. Control characters are shown as escapes. Nothing is verified: use jail audit verify. Users who may not read
the log get the records of their own runs from the daemon, as with jail audit query.`,
		Example: "  jail audit show --since 1h\n" +
			"  jail audit show --run 3w5e11264sg0c8v5a9b7k2m4qd --type denied --json",
		Args: command.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runShow(cmd.Context(), env, o)
		},
	}
	o.log.add(cmd)
	o.set = cmd.Flags()
	o.text("run", "only of the run `ID`")
	o.addTypes()
	o.addSince()
	command.JSON(cmd, &o.json, "print the records as they are, one a line")
	return cmd
}

func runShow(ctx context.Context, env *cli.Env, o showOptions) error {
	req, filter, err := o.read()
	if err != nil {
		return err
	}
	dir := o.log.dir(env)
	records := audit.Scan(dir, filter)
	if o.log.askDaemon(env) {
		records = askDaemon(ctx, env, req)
	}
	return showRecords(env, dir, records, o.json)
}

// showRecords prints records of the log in dir, and says which lines are none.
func showRecords(env *cli.Env, dir string, records iter.Seq2[audit.Record, error],
	asJSON bool) error {
	return showRecordsTo(env, env.Stream, dir, records, asJSON)
}

// showRecordsTo is showRecords by that way of printing.
func showRecordsTo(env *cli.Env, print func(write func(io.Writer) error) error, dir string,
	records iter.Seq2[audit.Record, error], asJSON bool) error {
	bad := 0
	err := print(func(w io.Writer) error {
		header := !asJSON
		for r, err := range records {
			if _, ok := errors.AsType[*problem.Error](err); ok {
				return err // the daemon says it
			}
			if err != nil && r.Line == nil && bad == 0 && exit.Cause(err) != err {
				// The log itself cannot be read.
				return logError(dir, err)
			}
			if err != nil {
				bad++
				output.Say(env.Stderr, "warning", err.Error())
				continue
			}
			if header {
				header = false
				fmt.Fprintln(w, audit.Header)
			}
			render := audit.Render
			if asJSON {
				render = audit.RenderJSON
			}
			if err := render(w, r); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && bad > 0 {
		err = exit.Failed(nil, "jail audit verify", "audit log %s: %s cannot be read", dir,
			output.Count(bad, "line", "lines"))
	}
	return err
}
