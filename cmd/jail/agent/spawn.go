package agent

import (
	"context"
	"encoding/json"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/supervisor/agents/agentapi"
)

const spawnAbout = `Put a built-in agent on a channel. claude-code-responder and codex-responder pass a message on to the program claude or codex, as if you had typed it there, and publish its answer.
A built-in agent is in no jail: it has your rights, your login and your files. It answers you, and no agent that --config does not name.

CONFIG is a JSON object: "program" (a path, in place of what the PATH has), "args" (a list, such as ["--permission-mode", "acceptEdits"]), "dir" (where the program works, in place of your home directory),
"agents" (names of agents whose messages it answers, too: each of them can have done what the program does for a message). The message /new begins a new conversation.

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
	set.StringVar(&s.Channel, "channel", "main", "the `CHANNEL`")
	set.StringVar(&s.Handle, "handle", "", "by which `NAME` messages on the channel mention it "+
		"(default claude or codex)")
	set.StringVar(&config, "config", "", "what the agent is told, as `JSON`")
	return ask(env, cmd, "print the agent as an object",
		func(ctx context.Context, c *agentapi.Client, args []string) (agentapi.Agent, error) {
			return c.Spawn(ctx, args[0], s)
		}, writeAgent)
}
