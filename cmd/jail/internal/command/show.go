package command

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/supervisor/api"
)

// Answer makes cmd ask a daemon, and print the answer: by write, or with --json as JSON. prints says
// what --json prints. with calls a function with a client of the daemon.
func Answer[C, T any](env *cli.Env, cmd *cobra.Command, prints string,
	with func(context.Context, func(C) error) error,
	ask func(ctx context.Context, c C, args []string) (T, error),
	write func(w io.Writer, answer T)) *cobra.Command {
	var asJSON bool
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return with(cmd.Context(), func(c C) error {
			answer, err := ask(cmd.Context(), c, args)
			if err != nil {
				return err
			}
			return env.Show(asJSON, answer, func(w io.Writer) { write(w, answer) })
		})
	}
	JSON(cmd, &asJSON, prints)
	return cmd
}

// Print makes cmd print what find returns: by write, or with --json as JSON. prints says what --json
// prints.
func Print[T any](env *cli.Env, cmd *cobra.Command, prints string,
	find func(cmd *cobra.Command, args []string) (T, error),
	write func(w io.Writer, found T)) *cobra.Command {
	return Judge(env, cmd, prints, func(cmd *cobra.Command, args []string) (T, bool, error) {
		found, err := find(cmd, args)
		return found, true, err
	}, write)
}

// Judge is Print of an answer to a question: after a no, for which find returns false, the exit code
// is 1.
func Judge[T any](env *cli.Env, cmd *cobra.Command, prints string,
	find func(cmd *cobra.Command, args []string) (found T, yes bool, err error),
	write func(w io.Writer, found T)) *cobra.Command {
	var asJSON bool
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		found, yes, err := find(cmd, args)
		if err == nil {
			err = env.Show(asJSON, found, func(w io.Writer) { write(w, found) })
		}
		if err == nil && !yes {
			err = exit.No
		}
		return err
	}
	JSON(cmd, &asJSON, prints)
	return cmd
}

// Show is Answer of jaild.
func Show[T any](env *cli.Env, cmd *cobra.Command, prints string,
	ask func(ctx context.Context, c *api.Client, args []string) (T, error),
	write func(w io.Writer, answer T)) *cobra.Command {
	return Answer(env, cmd, prints, env.WithDaemon, ask, write)
}

// List makes cmd print what list returns: a row each below the heads, or with --json as JSON.
func List[T any](env *cli.Env, cmd *cobra.Command,
	list func(*api.Client, context.Context) ([]T, error), heads []string,
	row func(T) []string) *cobra.Command {
	cmd.Args = Exactly()
	return Show(env, cmd, "print a list of objects",
		func(ctx context.Context, c *api.Client, _ []string) ([]T, error) { return list(c, ctx) },
		func(w io.Writer, all []T) { output.Rows(w, heads, all, row) })
}
