package command

import (
	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
)

// Exactly returns a check that there is one argument for each name.
func Exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < len(names) {
			return exit.Usage("usage: "+cmd.UseLine(),
				"%s: %s is missing", cmd.CommandPath(), names[len(args)])
		}
		return AtMost(len(names))(cmd, args)
	}
}

// AtMost returns a check that there are no more than most arguments.
func AtMost(most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > most {
			return exit.Usage("usage: "+cmd.UseLine(), "%s: argument %q is one too many",
				cmd.CommandPath(), args[most])
		}
		return nil
	}
}

// AtLeast is Exactly, but more arguments may follow.
func AtLeast(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		return Exactly(names...)(cmd, args[:min(len(args), len(names))])
	}
}
