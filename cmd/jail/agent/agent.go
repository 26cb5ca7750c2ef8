// Package agent has the commands for agents: new, check, add, list, show, send, log and others.
// They are clients of jail-agentd, and start it if it is not running.
package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/supervisor/agents/agentapi"
	"github.com/jail-sandbox/jail/supervisor/agents/manifest"
)

const about = `An agent is a program with a name, storage and channels of its own. It sleeps until an event comes, works on it in a jail, and sleeps again.
"jail agent new" makes one, "add" installs it, "send" gives it an event.`

// New returns the command jail agent.
func New(env *cli.Env) *cobra.Command {
	cmd := command.Group("agent", "programs that wake in a jail when an event comes", newNew(env),
		newCheck(env), newAdd(env), newSpawn(env), newList(env), newShow(env), newStatus(env), newSend(env),
		newTick(env), newLog(env), newEvents(env), newRetry(env),
		newSwitch(env, "pause", "keep an agent from being woken",
			"Let an agent sleep, and keep it asleep. Events wait in its inbox until \"jail agent "+
				"resume\".", (*agentapi.Client).Pause),
		newSwitch(env, "resume", "let an agent be woken again",
			"Let an agent be woken again that was paused, or that has failed too often in a row.",
			(*agentapi.Client).Resume),
		newDelete(env), newExport(env), newImport(env),
		newChat(env), newSessions(env), newTranscript(env), newReplay(env))
	cmd.Long = about
	for _, sub := range cmd.Commands() {
		switch words := strings.Fields(sub.Use); {
		case slices.Contains(words, "DIR"):
			sub.ValidArgsFunction = directories
		case slices.Contains(words, "NAME") && sub.Name() != "new":
			sub.ValidArgsFunction = names(env)
		}
	}
	return cmd
}

func directories(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveFilterDirs
}

// names returns a completion function for names of agents.
func names(env *cli.Env) cobra.CompletionFunc {
	return completed(env, cobra.ShellCompDirectiveDefault, (*agentapi.Client).List,
		func(a agentapi.Agent) string { return a.Name + "\t" + a.State })
}

// completed returns a completion function for the first argument: shown of each item that list
// returns. It does not start jail-agentd, and it ignores errors. others is for further arguments.
func completed[T any](env *cli.Env, others cobra.ShellCompDirective,
	list func(*agentapi.Client, context.Context) ([]T, error), shown func(T) string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) (all []string,
		_ cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, others
		}
		c, _, err := agentapi.Connect(cmd.Context(),
			agentapi.Options{Places: agentapi.PlacesOf(env.Getenv)})
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer c.Close()
		known, _ := list(c, cmd.Context())
		for _, item := range known {
			all = append(all, shown(item))
		}
		return all, cobra.ShellCompDirectiveNoFileComp
	}
}

// withAgents calls f with a client of jail-agentd, which it starts if none answers.
func withAgents(ctx context.Context, env *cli.Env, f func(c *agentapi.Client) error) error {
	c, started, err := agentapi.Connect(ctx, agentapi.Options{
		Places:  agentapi.PlacesOf(env.Getenv),
		Program: agentapi.Program(env.Exe),
		State:   env.Getenv("JAIL_STATE")})
	if err != nil {
		return err
	}
	defer c.Close()
	if started {
		fmt.Fprintln(env.Stderr, "jail: no jail-agentd answered, so one was started; it ends when "+
			"nothing is left for it to do")
	}
	return f(c)
}

// named returns a check that the arguments match names, and that the first is a valid agent name.
func named(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := command.Exactly(names...)(cmd, args); err != nil {
			return err
		}
		return checkName(cmd, args[0])
	}
}

func checkName(cmd *cobra.Command, name string) error {
	if err := manifest.CheckName(name); err != nil {
		return exit.Usage("jail agent list", "%s: %v", cmd.CommandPath(), err)
	}
	return nil
}

// channelFlag adds the flag --channel to cmd.
func channelFlag(cmd *cobra.Command, channel *string) {
	cmd.Flags().StringVar(channel, "channel", "",
		"the instance on this `CHANNEL` (default the agent's only one)")
}
