package agent

import (
	"context"
	"encoding/json"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/terminal"
	"github.com/jail-sandbox/jail/supervisor/agents/agentapi"
)

// newSwitch returns a command that does one operation on an agent and prints nothing.
func newSwitch(env *cli.Env, name, short, long string,
	do func(*agentapi.Client, context.Context, string) error) *cobra.Command {
	return &cobra.Command{
		Use:     name + " NAME",
		Short:   short,
		Long:    long,
		Example: "  jail agent " + name + " triage",
		Args:    named("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withAgents(cmd.Context(), env, func(c *agentapi.Client) error {
				return do(c, cmd.Context(), args[0])
			})
		},
	}
}

func newDelete(env *cli.Env) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "delete [flags] NAME",
		Short: "delete an agent, with its state and its inbox",
		Long: "Delete an agent: its files in the folder of your agents, its database, its inbox and its " +
			"alarms. What you wrote elsewhere stays. \"jail agent export\" saves its memory first.",
		Example: "  jail agent export triage > triage.json\n  jail agent delete triage",
		Args:    named("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withAgents(cmd.Context(), env, func(c *agentapi.Client) error {
				if _, err := c.Status(cmd.Context(), args[0]); err != nil {
					return err
				}
				if err := confirm(env, yes, args[0]); err != nil {
					return err
				}
				return c.Delete(cmd.Context(), args[0])
			})
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

// confirm asks whether to delete an agent, unless yes is set. It returns an error if not.
func confirm(env *cli.Env, yes bool, name string) error {
	if yes {
		return nil
	}
	if !terminal.Is(env.Stdin) {
		return exit.Usage("jail agent delete --yes "+name,
			"jail agent delete: there is nobody to ask whether agent %q and its state may go", name)
	}
	return env.Confirm("deleted", "Delete agent %s, with its state and its inbox?", name)
}

func newExport(env *cli.Env) *cobra.Command {
	var channel string
	cmd := &cobra.Command{
		Use:   "export [flags] NAME",
		Short: "print the memory of an agent as JSON",
		Long: "Print the memory of an agent as JSON: conversations with their messages, learned " +
			"patterns, goals and peers. It wakes the agent.",
		Example: "  jail agent export triage > triage.json",
		Args:    named("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withAgents(cmd.Context(), env, func(c *agentapi.Client) error {
				memory, err := c.Export(cmd.Context(), args[0], channel)
				if err != nil {
					return err
				}
				return env.PrintJSON(memory)
			})
		},
	}
	channelFlag(cmd, &channel)
	return cmd
}

// maxMemory bounds the file of an imported memory, in bytes.
const maxMemory = 64 << 20

func newImport(env *cli.Env) *cobra.Command {
	var channel string
	cmd := &cobra.Command{
		Use:   "import [flags] NAME FILE",
		Short: "merge an exported memory into that of an agent",
		Long: `Merge a memory that "jail agent export" printed into that of an agent, by the ids:
of two conversations the later one stays, of two goals the one with more progress, of two patterns
the one with the higher confidence. The same import twice is one. "-" reads standard input.`,
		Example: "  jail agent import triage triage.json",
		Args:    named("NAME", "FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			memory, err := readMemory(env, args[1])
			if err != nil {
				return err
			}
			return withAgents(cmd.Context(), env, func(c *agentapi.Client) error {
				return c.Import(cmd.Context(), args[0], channel, memory)
			})
		},
	}
	channelFlag(cmd, &channel)
	return cmd
}

func readMemory(env *cli.Env, path string) ([]byte, error) {
	in := env.Stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, exit.About(err, "memory %s", path)
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, maxMemory+1))
	switch {
	case err != nil:
		return nil, exit.About(err, "memory %s", path)
	case len(text) > maxMemory:
		return nil, exit.Usage("", "memory %s is larger than %d MiB", path, maxMemory>>20)
	case !json.Valid(text):
		return nil, exit.Usage("jail agent export NAME prints one", "memory %s is no JSON", path)
	}
	return text, nil
}

const spawnAbout = `Put a built-in agent on a channel. claude-code-responder and codex-responder pass
a message on to the program claude or codex, as if you had typed it there, and publish its answer.
A built-in agent is in no jail: it has your rights, your login and your files. It answers you, and
no agent that --config does not name.

CONFIG is a JSON object: "program" (a path, in place of what the PATH has), "args" (a list, such as
["--permission-mode", "acceptEdits"]), "dir" (where the program works, in place of your home
directory), "agents" (names of agents whose messages it answers, too: each of them can have done
what the program does for a message). The message /new begins a new conversation.

Of an agent of your own, "spawn" wakes the instance on a channel of its manifest.`

func newSpawn(env *cli.Env) *cobra.Command {
	var s agentapi.Spawn
	var config string
	cmd := &cobra.Command{
		Use:   "spawn [flags] NAME",
		Short: "put a built-in agent on a channel",
		Long:  spawnAbout,
		Example: "  jail agent spawn claude-code-responder --config '{\"dir\": \"/srv/project\"}'\n" +
			"  jail agent send --wait --timeout 10m claude-code-responder 'which tests fail?'",
		Args: named("NAME"),
		PreRunE: func(*cobra.Command, []string) error {
			if s.Config = json.RawMessage(config); config != "" && !json.Valid(s.Config) {
				return exit.Usage(`it is an object, such as {"dir": "/srv/project"}`,
					"--config %.80q is no JSON", config)
			}
			return nil
		},
	}
	set := cmd.Flags()
	set.SortFlags = false
	set.StringVar(&s.Channel, "channel", "",
		"the `CHANNEL` (default main, of an agent of your own the first of its manifest)")
	set.StringVar(&s.Handle, "handle", "", "by which `NAME` messages on the channel mention it "+
		"(default claude or codex)")
	set.StringVar(&config, "config", "", "what the agent is told, as `JSON`")
	return ask(env, cmd, "print the agent as an object",
		func(ctx context.Context, c *agentapi.Client, args []string) (agentapi.Agent, error) {
			return c.Spawn(ctx, args[0], s)
		}, writeAgent)
}
