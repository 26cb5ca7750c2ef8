package main

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/supervisor"
	"github.com/jail-sandbox/jail/supervisor/api"
)

// detach starts a run that goes on without this command, and prints its id.
func (a *app) detach(ctx context.Context, req supervisor.Request, input, asJSON bool) error {
	return a.withLastingDaemon(ctx, func(c *api.Client) error {
		d, err := c.Detach(ctx, supervisor.DetachRequest{Request: req, Input: input})
		if err != nil {
			return err
		}
		return a.show(asJSON, d, func(w io.Writer) error {
			_, err := fmt.Fprintln(w, d.ID)
			return err
		})
	})
}

func (a *app) logsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "logs [flags] ID",
		Short:   "show what a detached run writes, or wrote",
		Long:    "Show what a run that was started with --detach wrote to standard output and standard error, as it is, on the same two streams here.",
		Example: "  jail logs -f 3w5e11264sg0c8v5a9b7k2m4qd",
		Args:    exactly("ID"),
	}
	follow := cmd.Flags().BoolP("follow", "f", false, "go on until the run ends")
	asJSON := jsonFlag(cmd, "print one object: what it wrote, and the result if it has ended")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var out, errOut io.Writer = sink{a.stdout, "standard output"}, sink{a.stderr, "standard error"}
		var outText, errText bytes.Buffer
		if *asJSON {
			out, errOut = &outText, &errText
		}
		return a.withDaemon(cmd.Context(), func(c *api.Client) error {
			res, err := c.Logs(cmd.Context(), args[0], *follow, out, errOut)
			if err != nil || !*asJSON {
				return err
			}
			answer := struct {
				ID     string             `json:"id"`
				Stdout supervisor.Output  `json:"stdout"`
				Stderr supervisor.Output  `json:"stderr"`
				Result *supervisor.Result `json:"result"`
			}{args[0], outText.Bytes(), errText.Bytes(), res}
			return a.print(func(w io.Writer) error { return writeJSON(w, answer, "") })
		})
	}
	return cmd
}

func (a *app) waitCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "wait ID",
		Short:   "wait for the end of a run",
		Long:    "Wait for the end of a run. The exit code is the tool's, as with \"jail run\". A run that was started with --detach can be asked for afterwards, too.",
		Example: "  jail wait 3w5e11264sg0c8v5a9b7k2m4qd && jail commit 3w5e11264sg0c8v5a9b7k2m4qd",
		Args:    exactly("ID"),
	}
	asJSON := jsonFlag(cmd, "print the result object, without the output")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var res supervisor.Result
		err := a.withDaemon(cmd.Context(), func(c *api.Client) (err error) {
			res, err = c.Wait(cmd.Context(), args[0])
			return err
		})
		if err != nil {
			return err
		}
		return a.ended(res, *asJSON, false)
	}
	return cmd
}

func (a *app) attachCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "attach ID",
		Short: "take over the streams of a detached run",
		Long: "Show what a run that was started with --detach wrote and goes on to write, and where it was started with --input give it what is typed here. The exit code is the tool's. " +
			"When this command is interrupted the run goes on.",
		Example: "  jail attach 3w5e11264sg0c8v5a9b7k2m4qd",
		Args:    exactly("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var res supervisor.Result
			err := a.withDaemon(cmd.Context(), func(c *api.Client) (err error) {
				res, err = c.Attach(cmd.Context(), args[0], a.stdin, sink{a.stdout, "standard output"}, sink{a.stderr, "standard error"})
				return err
			})
			if err != nil {
				return err
			}
			return a.ended(res, false, false)
		},
	}
}

// ended says how a run ended, and exits as it did.
func (a *app) ended(res supervisor.Result, asJSON, quiet bool) error {
	if asJSON {
		if err := a.print(func(w io.Writer) error { return writeJSON(w, res, "") }); err != nil {
			return err
		}
	}
	if !quiet && !asJSON {
		a.tell(res)
	}
	if res.Error != nil {
		a.complain(res.Error)
	}
	if res.ExitCode == 0 {
		return nil
	}
	return code(res.ExitCode)
}

// checkDetached refuses what a run without a client cannot have.
func checkDetached(detach, input, terminal bool) error {
	switch {
	case input && !detach:
		return usage("", "--input is for --detach")
	case detach && terminal:
		return usage("", "--detach and -t contradict each other")
	}
	return nil
}
