package command

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
)

// Removed returns a command for one that the previous release had. It fails and names the
// replacement. It goes with the next release.
func Removed(name, replacement string) *cobra.Command {
	return &cobra.Command{
		Use:                name,
		Hidden:             true,
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return exit.Usage(replacement, "%s was removed", cmd.CommandPath())
		},
	}
}

// NoSuch refuses arguments, as names of commands that do not exist, and suggests names like them.
func NoSuch(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := cmd.CommandPath() + " --help"
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(args[0]); args[0] != "" && len(near) > 0 {
		hint = "did you mean " + cmd.CommandPath() + " " + strings.Join(near,
			", or "+cmd.CommandPath()+" ") + "?"
	}
	return exit.Usage(hint, "%s has no command %.80q", cmd.CommandPath(), args[0])
}

// Group returns a command that does nothing but hold subcommands.
func Group(name, short string, subs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: name, Short: short, Args: NoSuch, RunE: missing}
	cmd.AddCommand(subs...)
	return cmd
}

// missing refuses a group without a command, and lists its commands.
func missing(cmd *cobra.Command, _ []string) error {
	var names []string
	for _, sub := range cmd.Commands() {
		if !sub.Hidden {
			names = append(names, sub.Name())
		}
	}
	return exit.Usage(cmd.CommandPath()+" --help", "%s: COMMAND is missing: %s",
		cmd.CommandPath(), strings.Join(names, " or "))
}
