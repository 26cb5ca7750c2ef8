package session

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/execute"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/inherit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/cmd/jail/internal/request"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/message"
)

const execAbout = `Run a tool in a session. Standard input, output and error and the exit code are the tool's, as with "jail run".

The tool gets the session's shadow and /tmp, with what earlier invocations left in them, and behind the same walls as any run it sees nothing else of other
invocations. Its limits are those of the session's policy, narrowed by --limit; memory, pids and workspace are besides bounded for all invocations together.

With --background the command returns when the tool runs, and the tool runs until it or the session ends: jail logs ID shows its output, jail wait ID waits
for its end, jail kill ID ends it.

With --keep-env what a shell of the host that is called with -c exports and unsets, and the directory that it ends in, are there for the next invocations of
the session: jail session exec --keep-env ID -- bash -c 'cd src; export CC=clang'.`

type execOptions struct {
	id, cwd     string
	limits, env []string
	// background lets the tool continue after this command.
	background bool
	keep       bool
	shown      execute.Options
}

func newExec(env *cli.Env) *cobra.Command {
	var o execOptions
	cmd := &cobra.Command{
		Use:   "exec [flags] ID [--] TOOL [ARG...]",
		Short: "run a tool in a session",
		Long:  execAbout,
		Example: "  jail session exec $ID -- grep -rn TODO .\n" +
			"  jail session exec $ID --limit wall=5s --json -- wc -l big.txt\n" +
			"  jail session exec --background $ID -- make watch",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			session, tool, err := splitExec(cmd, args)
			if err != nil {
				return err
			}
			// Flags may also stand between the session's ID and the tool.
			set := cmd.Flags()
			if err := set.Parse(tool); err != nil {
				return exit.Usage(cmd.CommandPath()+" --help", "%s: %v", cmd.CommandPath(), err)
			}
			if help, _ := set.GetBool("help"); help {
				return cmd.Help()
			}
			if err := command.NoEmptyFlag(cmd, nil); err != nil {
				return err
			}
			if tool = set.Args(); len(tool) == 0 {
				return exit.Usage("usage: "+cmd.UseLine(), "%s: TOOL is missing", cmd.CommandPath())
			}
			o.shown.Session = session
			return runExec(cmd.Context(), env, o, tool)
		},
	}
	set := cmd.Flags()
	// Flags after the tool's name belong to the tool.
	set.SetInterspersed(false)
	set.SortFlags = false
	set.StringArrayVar(&o.limits, "limit", nil,
		"narrow a limit for this invocation, such as wall=5s (`KEY=VALUE`, repeatable)")
	set.StringArrayVar(&o.env, "env", nil, "give the tool a variable (`NAME=VALUE`, repeatable)")
	set.StringVar(&o.cwd, "cwd", "",
		"start in `DIR` below the workspace (default that of session start, else where you stand "+
			"in it, else its root)")
	set.StringVar(&o.id, "id", "", "name the invocation `ID` (default a random one)")
	set.BoolVar(&o.background, "background", false,
		"print the invocation's ID and return; it ends with the session")
	set.BoolVar(&o.keep, "keep-env", false,
		"keep the exports and the directory of a shell for the next invocations")
	set.BoolVar(&o.shown.JSON, "json", false,
		"print one result object when the tool has ended, its output inside")
	set.BoolVar(&o.shown.Quiet, "quiet", false, "print errors only")
	o.shown.AddVerbose(cmd)
	o.shown.AddTerminal(cmd)
	o.shown.AddRaw(cmd)
	return cmd
}

// runExec runs the tool and its arguments in the session.
func runExec(ctx context.Context, env *cli.Env, o execOptions, tool []string) (err error) {
	req := message.Request{ID: o.id, Tool: tool[0], Args: tool[1:], Limits: o.limits, Env: o.env,
		Cwd: o.cwd, KeepEnv: o.keep}
	if req.Dir, err = os.Getwd(); err != nil {
		req.Dir = "/"
	}
	if err := request.Check(&req); err != nil {
		if o.background {
			return err
		}
		return execute.NoResult(env, err, req, o.shown)
	}
	req.Inherit = inherit.Variables(env.Environ, req.Workspace, req.Dir)
	if o.background {
		return startBackground(ctx, env, req, o.shown)
	}
	return execute.Run(ctx, env, req, o.shown)
}

// startBackground starts an invocation that continues without this command, and prints its id.
func startBackground(ctx context.Context, env *cli.Env, req message.Request,
	shown execute.Options) error {
	if shown.Terminal {
		return exit.Usage("", "--background and -t contradict each other")
	}
	return env.WithSessionDaemon(ctx, shown.Session, func(c *api.Client) error {
		d, err := c.Detach(ctx, message.DetachRequest{Request: req, Session: shown.Session})
		if err != nil {
			return err
		}
		return env.Show(shown.JSON, d, output.Text("%s\n", d.ID))
	})
}

// splitExec returns the session's ID and the remaining arguments.
func splitExec(cmd *cobra.Command, args []string) (string, []string, error) {
	if len(args) == 0 {
		return "", nil, exit.Usage("usage: "+cmd.UseLine(), "%s: ID is missing", cmd.CommandPath())
	}
	if err := command.CheckID(cmd, args[0]); err != nil {
		return "", nil, err
	}
	return args[0], args[1:], nil
}
