package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/agent"
	"github.com/jail-sandbox/jail/cmd/jail/agents"
	"github.com/jail-sandbox/jail/cmd/jail/audit"
	"github.com/jail-sandbox/jail/cmd/jail/execserver"
	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/complete"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/mcp"
	"github.com/jail-sandbox/jail/cmd/jail/policy"
	"github.com/jail-sandbox/jail/cmd/jail/review"
	"github.com/jail-sandbox/jail/cmd/jail/run"
	"github.com/jail-sandbox/jail/cmd/jail/service"
	"github.com/jail-sandbox/jail/cmd/jail/session"
	"github.com/jail-sandbox/jail/cmd/jail/tool"
	"github.com/jail-sandbox/jail/cmd/jail/worker"
)

const about = `jail runs an untrusted tool over a shadow of your directory, with limits, without network access, and records what it did.`

// newRoot returns the command jail with all its commands.
func newRoot(env *cli.Env) *cobra.Command {
	// Help lists the commands in the order in which users need them.
	cobra.EnableCommandSorting = false
	versions := service.NewVersion(env)
	var version bool
	root := &cobra.Command{
		Use:  "jail",
		Long: about,
		Example: "  jail run -- grep -rn TODO .\n" +
			"  jail run -- sed -i s/colour/color/ README.md\n  jail diff ID\n  jail commit ID",
		Args: command.NoSuch,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if version {
				return versions.RunE(versions, nil)
			}
			return cmd.Help()
		},
		PersistentPreRunE: command.NoEmptyFlag,
		SilenceErrors:     true,
		SilenceUsage:      true,
	}
	root.Flags().BoolVar(&version, "version", false, "print what jail version prints")
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return exit.Usage(cmd.CommandPath()+" --help",
			"%s: %v", cmd.CommandPath(), command.FlagValue(err))
	})
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { writeHelp(env.Stdout, cmd) })
	root.SetHelpCommand(helpCommand())
	root.AddCommand(
		run.NewRun(env), run.NewSh(env), run.NewPlan(env), session.New(env),
		run.NewPs(env), service.NewTop(env), run.NewInspect(env), run.NewLogs(env),
		run.NewWait(env),
		run.NewAttach(env), service.NewVerify(env), run.NewKill(env),
		review.NewDiff(env), review.NewCommit(env), review.NewDiscard(env), review.NewRevert(env),
		review.NewWorkspaces(env), review.NewBranch(env), review.NewCache(env), review.NewApprovals(env),
		policy.New(env), policy.NewProfile(env), tool.New(env),
		tool.NewImage(env), audit.New(env),
		agent.New(env), agent.NewGate(env), worker.New(env), mcp.New(env), execserver.New(env),
		agents.NewSetup(env), agents.NewHook(env),
		service.NewOCI(env),
		service.NewConsole(env), service.NewDoctor(env), versions,
		service.NewCompletion(env),
	)
	complete.All(env, root)
	root.InitDefaultHelpCmd()
	for _, cmd := range root.Commands() {
		cmd.DisableFlagsInUseLine = true
		for _, sub := range cmd.Commands() {
			sub.DisableFlagsInUseLine = true
		}
	}
	return root
}

func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "show what a command does",
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err != nil || about == cmd.Root() && len(args) > 0 {
				return command.NoSuch(cmd.Root(), args)
			}
			if len(rest) > 0 {
				return command.NoSuch(about, rest)
			}
			return about.Help()
		},
	}
}

// writeHelp writes the help of a command, in the same form for all commands.
func writeHelp(w io.Writer, cmd *cobra.Command) {
	cmd.InitDefaultHelpFlag()
	// Readers of this have found --help.
	cmd.Flags().Lookup("help").Hidden = true
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
	// An error of writing help cannot be handled.
	io.WriteString(w, b.String())
}
