package main

import (
	"context"
	"io"
	"os"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/supervisor"
	"github.com/jail-sandbox/jail/supervisor/api"
)

const execAbout = `Run a tool in a session. Standard input, output and error and the exit code are the tool's, as with "jail run".

The tool gets the session's shadow and /tmp, with what earlier invocations left in them, and behind the same walls as any run it sees nothing else of other
invocations. Its limits are those of the session's policy, narrowed by --limit; memory, pids and workspace are besides bounded for all invocations together.`

func (a *app) sessionExec() *cobra.Command {
	var limits, env []string
	var id string
	var asJSON, quiet, terminal bool
	cmd := &cobra.Command{
		Use:     "exec [flags] ID [--] TOOL [ARG...]",
		Short:   "run a tool in a session",
		Long:    execAbout,
		Example: "  jail session exec $ID -- grep -rn TODO .\n  jail session exec $ID --limit wall=5s --json -- wc -l big.txt",
		Args:    cobra.ArbitraryArgs,
	}
	set := cmd.Flags()
	set.SetInterspersed(false) // what follows the tool's name is the tool's
	set.SortFlags = false
	set.StringArrayVar(&limits, "limit", nil, "narrow a limit for this invocation, such as wall=5s (`KEY=VALUE`, repeatable)")
	set.StringArrayVar(&env, "env", nil, "give the tool a variable (`NAME=VALUE`, repeatable)")
	set.StringVar(&id, "id", "", "name the invocation `ID` (default a random one)")
	set.BoolVar(&asJSON, "json", false, "print one result object when the tool has ended, its output inside")
	set.BoolVar(&quiet, "quiet", false, "say nothing but errors")
	set.BoolVarP(&terminal, "terminal", "t", false, "give a program of the host a terminal of the jail's own")
	a.completeSessions(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		session, tool, err := splitExec(cmd, args)
		if err != nil {
			return err
		}
		// Flags may also stand between the session's ID and the tool, where people write them.
		if err := set.Parse(tool); err != nil {
			return usage(cmd.CommandPath()+" --help", "%s: %v", cmd.CommandPath(), err)
		}
		if help, _ := set.GetBool("help"); help {
			return cmd.Help()
		}
		if tool = set.Args(); len(tool) == 0 {
			return usage("usage: "+cmd.UseLine(), "%s: TOOL is missing", cmd.CommandPath())
		}
		req := supervisor.Request{ID: id, Tool: tool[0], Args: tool[1:], Limits: limits, Env: env}
		if req.Dir, err = os.Getwd(); err != nil {
			req.Dir = "/"
		}
		for _, step := range []func(*requestFlags, *supervisor.Request) error{takeID, checkNarrowing, checkTexts} {
			if err := step(nil, &req); err != nil {
				return err
			}
		}
		for _, v := range a.environ {
			if utf8.ValidString(v) {
				req.Inherit = append(req.Inherit, v)
			}
		}
		a.session = session
		if terminal {
			return a.runOnTerminal(cmd.Context(), req, asJSON, quiet)
		}
		return a.runTool(cmd.Context(), req, asJSON, quiet)
	}
	return cmd
}

// splitExec takes the session's ID off.
func splitExec(cmd *cobra.Command, args []string) (string, []string, error) {
	if len(args) == 0 {
		return "", nil, usage("usage: "+cmd.UseLine(), "%s: ID is missing", cmd.CommandPath())
	}
	if _, err := jail.ParseID(args[0]); err != nil {
		return "", nil, usage("jail session list", "%s: session %v", cmd.CommandPath(), err)
	}
	return args[0], args[1:], nil
}

// start runs a tool where the command says: in a jail of its own, or in a session.
func (a *app) start(ctx context.Context, c *api.Client, req supervisor.Request, out, errOut io.Writer) (supervisor.Result, error) {
	if a.session == "" {
		return c.RunSized(ctx, req, a.stdin, out, errOut, a.sizes)
	}
	ask := supervisor.ExecRequest{ID: req.ID, Tool: req.Tool, Args: req.Args, Dir: req.Dir, Limits: req.Limits, Env: req.Env, Inherit: req.Inherit, Terminal: req.Terminal}
	return c.Exec(ctx, a.session, ask, a.stdin, out, errOut, a.sizes)
}
