package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

const about = `jail runs a tool that nobody trusts over a shadow of your directory, with limits, without a network, on record.`

func (a *app) root() *cobra.Command {
	cobra.EnableCommandSorting = false // they stand in the order in which people meet them
	root := &cobra.Command{
		Use:           "jail",
		Long:          about,
		Example:       "  jail run -- grep -rn TODO .\n  jail run -- sed -i s/colour/color/ README.md\n  jail diff ID\n  jail commit ID",
		Args:          a.noSuchCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usage(cmd.CommandPath()+" --help", "%s: %v", cmd.CommandPath(), flagValue(err))
	})
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { writeHelp(a.stdout, cmd) })
	root.SetHelpCommand(a.helpCommand())
	root.AddCommand(
		a.runCommand(), a.shCommand(), a.planCommand(), a.sessionCommand(),
		a.psCommand(), a.topCommand(), a.inspectCommand(), a.logsCommand(), a.waitCommand(), a.attachCommand(), a.verifyCommand(), a.killCommand(),
		a.diffCommand(), a.commitCommand(), a.discardCommand(), a.revertCommand(), a.workspacesCommand(),
		a.policyCommand(), a.profileCommand(), a.toolCommand(), a.auditCommand(),
		a.consoleCommand(), a.doctorCommand(), a.versionCommand(), a.completionCommand(),
	)
	root.InitDefaultHelpCmd()
	for _, cmd := range root.Commands() {
		cmd.DisableFlagsInUseLine = true
		for _, sub := range cmd.Commands() {
			sub.DisableFlagsInUseLine = true
		}
	}
	return root
}

func (a *app) noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := cmd.CommandPath() + " --help"
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = "did you mean " + cmd.CommandPath() + " " + strings.Join(near, ", or "+cmd.CommandPath()+" ") + "?"
	}
	return usage(hint, "%s has no command %q", cmd.CommandPath(), args[0])
}

// group is a command that is only there for its subcommands.
func (a *app) group(name, short string, subs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: name, Short: short, Args: a.noSuchCommand, RunE: func(cmd *cobra.Command, _ []string) error {
		var names []string
		for _, sub := range cmd.Commands() {
			names = append(names, sub.Name())
		}
		return usage(cmd.CommandPath()+" --help", "%s: COMMAND is missing: %s", cmd.CommandPath(), strings.Join(names, " or "))
	}}
	cmd.AddCommand(subs...)
	return cmd
}

func (a *app) helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "show what a command does",
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err != nil || about == cmd.Root() && len(args) > 0 {
				return a.noSuchCommand(cmd.Root(), args)
			}
			if len(rest) > 0 {
				return a.noSuchCommand(about, rest)
			}
			return about.Help()
		},
	}
}

// writeHelp shows a command in one form for all of them.
func writeHelp(w io.Writer, cmd *cobra.Command) {
	cmd.InitDefaultHelpFlag()
	cmd.Flags().Lookup("help").Hidden = true // who reads this has found it
	var b strings.Builder
	switch {
	case cmd.Long != "":
		b.WriteString(strings.TrimSpace(cmd.Long) + "\n\n")
	case cmd.Short != "":
		b.WriteString(strings.ToUpper(cmd.Short[:1]) + cmd.Short[1:] + ".\n\n")
	}
	line := cmd.UseLine()
	if cmd.HasAvailableSubCommands() {
		line = cmd.CommandPath() + " COMMAND"
	}
	b.WriteString("usage: " + line + "\n")
	if cmd.HasAvailableSubCommands() {
		b.WriteString("\n")
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() || sub.Name() == "help" {
				fmt.Fprintf(&b, "  %-12s %s\n", sub.Name(), sub.Short)
			}
		}
	}
	if cmd.HasAvailableLocalFlags() {
		b.WriteString("\n" + cmd.LocalFlags().FlagUsages())
	}
	if cmd.Example != "" {
		b.WriteString("\nexample:\n" + strings.TrimRight(cmd.Example, "\n") + "\n")
	}
	io.WriteString(w, b.String()) // a help that cannot be written helps nobody
}

// exactly returns a check for the number of arguments, which names them.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < len(names) {
			return usage("usage: "+cmd.UseLine(), "%s: %s is missing", cmd.CommandPath(), names[len(args)])
		}
		return atMost(len(names))(cmd, args)
	}
}

// atMost returns a check for a number of arguments of which none is needed.
func atMost(most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > most {
			return usage("usage: "+cmd.UseLine(), "%s: argument %q is one too many", cmd.CommandPath(), args[most])
		}
		return nil
	}
}

// atLeast is exactly, and further arguments may follow.
func atLeast(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		return exactly(names...)(cmd, args[:min(len(args), len(names))])
	}
}

// jsonFlag gives a command the flag that all have that print.
func jsonFlag(cmd *cobra.Command, what string) *bool {
	return cmd.Flags().Bool("json", false, what)
}
