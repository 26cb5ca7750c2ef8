package run

import (
	"bytes"
	"context"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/execute"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/message"
)

// startDetached starts a run that continues without this command, and prints its id.
func startDetached(ctx context.Context, env *cli.Env, req message.Request, input,
	asJSON bool) error {
	return env.WithLastingDaemon(ctx, func(c *api.Client) error {
		d, err := c.Detach(ctx, message.DetachRequest{Request: req, Input: input})
		if err != nil {
			return err
		}
		return env.Show(asJSON, d, output.Text("%s\n", d.ID))
	})
}

type logsOptions struct {
	execute.Options
	id     string
	follow bool
}

// NewLogs returns the command jail logs.
func NewLogs(env *cli.Env) *cobra.Command {
	var o logsOptions
	cmd := &cobra.Command{
		Use:   "logs [flags] ID",
		Short: "show the output of a detached run",
		Long: "Show the standard output and standard error of a run that was started with " +
			"--detach, on the same two streams.",
		Example: "  jail logs -f 3w5e11264sg0c8v5a9b7k2m4qd",
		Args:    command.Exactly("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.id = args[0]
			return runLogs(cmd.Context(), env, o)
		},
	}
	cmd.Flags().BoolVarP(&o.follow, "follow", "f", false, "follow the output until the run ends")
	command.JSON(cmd, &o.JSON, "print one object: what it wrote, and the result if it has ended")
	o.AddRaw(cmd)
	return cmd
}

func runLogs(ctx context.Context, env *cli.Env, o logsOptions) error {
	out, errOut := execute.Screens(env, o.Raw)
	var outText, errText bytes.Buffer
	if o.JSON {
		out, errOut = &outText, &errText
	}
	return env.WithDaemon(ctx, func(c *api.Client) error {
		res, err := c.Logs(ctx, o.id, o.follow, out, errOut)
		if err != nil || !o.JSON {
			return err
		}
		return env.PrintLine(struct {
			ID     string          `json:"id"`
			Stdout message.Output  `json:"stdout"`
			Stderr message.Output  `json:"stderr"`
			Result *message.Result `json:"result"`
		}{o.id, outText.Bytes(), errText.Bytes(), res})
	})
}

// NewWait returns the command jail wait.
func NewWait(env *cli.Env) *cobra.Command {
	var o execute.Options
	cmd := &cobra.Command{
		Use:   "wait ID",
		Short: "wait for the end of a run",
		Long: "Wait for the end of a run. The exit code is the tool's, as with \"jail run\". " +
			"This works after the end of a detached run, too.",
		Example: "  jail wait 3w5e11264sg0c8v5a9b7k2m4qd && jail commit 3w5e11264sg0c8v5a9b7k2m4qd",
		Args:    command.Exactly("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return awaitEnd(cmd.Context(), env, o, func(c *api.Client) (message.Result, error) {
				return c.Wait(cmd.Context(), args[0])
			})
		},
	}
	command.JSON(cmd, &o.JSON, "print the result object, without the output")
	return cmd
}

// NewAttach returns the command jail attach.
func NewAttach(env *cli.Env) *cobra.Command {
	var o execute.Options
	cmd := &cobra.Command{
		Use:   "attach [flags] ID",
		Short: "take over the streams of a detached run",
		Long: "Show the output of a detached run, earlier and later. If the run was started with " +
			"--input, it gets the standard input of this command. The exit code is the\n" +
			"tool's. If this command is interrupted, the run continues.",
		Example: "  jail attach 3w5e11264sg0c8v5a9b7k2m4qd",
		Args:    command.Exactly("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return awaitEnd(cmd.Context(), env, o, func(c *api.Client) (message.Result, error) {
				out, errOut := execute.Screens(env, o.Raw)
				return c.Attach(cmd.Context(), args[0], env.Stdin, out, errOut)
			})
		},
	}
	o.AddRaw(cmd)
	return cmd
}

// awaitEnd calls wait, prints how the run ended, and returns its exit code as an error.
func awaitEnd(ctx context.Context, env *cli.Env, o execute.Options,
	wait func(*api.Client) (message.Result, error)) error {
	var res message.Result
	err := env.WithDaemon(ctx, func(c *api.Client) (err error) {
		res, err = wait(c)
		return err
	})
	if err != nil {
		return err
	}
	return execute.Ended(env, res, o)
}

// checkDetached returns an error for flags that contradict --detach or need it.
func checkDetached(detach, input, terminal bool) error {
	switch {
	case input && !detach:
		return exit.Usage("", "--input is for --detach")
	case detach && terminal:
		return exit.Usage("", "--detach and -t contradict each other")
	}
	return nil
}
