// Package run has the commands that start and manage runs: run, sh, plan, logs, wait, attach, ps,
// inspect and kill.
package run

import (
	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/complete"
	"github.com/jail-sandbox/jail/cmd/jail/internal/execute"
	"github.com/jail-sandbox/jail/cmd/jail/internal/request"
)

const runAbout = `Run a tool in a fresh jail, over a shadow of the current directory. Standard input, output and error and the exit code are the tool's.

TOOL is a path to a .wasm file, or a command of an installed bundle (grep, core-utils/grep), or the path or name of a program of the host, if
the profile grants such programs, as build does. The arguments after TOOL are the tool's. If standard output and standard error of jail are one pipe or file,
as after 2>&1, the tool gets one pipe for both, so the order of its output stays.

Exit codes that are not the tool's: 124 a time limit, 125 jail itself failed, 126 refused, 127 no such tool, profile or file,
128+n ended by signal n, 2 wrong usage.`

type runOptions struct {
	request request.Flags
	shown   execute.Options
	detach  bool
	// input keeps standard input of a detached run open.
	input bool
}

// NewRun returns the command jail run.
func NewRun(env *cli.Env) *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run [flags] [--] TOOL [ARG...]",
		Short: "run a tool in a fresh jail",
		Long:  runAbout,
		Example: "  jail run -- grep -rn TODO .\n" +
			"  jail run --profile readonly --limit memory=64MiB -- sort big.txt\n" +
			"  jail run --json ./filter.wasm < in.txt",
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: complete.Tool(env),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runRun(cmd, env, o, args)
		},
	}
	o.request.Add(cmd, "print one result object when the tool has ended, its output inside")
	o.shown.AddVerbose(cmd)
	o.shown.AddRaw(cmd)
	o.shown.AddTerminal(cmd)
	cmd.Flags().BoolVar(&o.detach, "detach", false,
		"print the run's ID and let it run: see jail logs, wait, attach, kill")
	cmd.Flags().BoolVar(&o.input, "input", false,
		"with --detach: keep standard input open for jail attach")
	return cmd
}

func runRun(cmd *cobra.Command, env *cli.Env, o runOptions, args []string) error {
	f := &o.request
	req, err := f.Request(env, cmd, args)
	if err == nil {
		err = checkDetached(o.detach, o.input, o.shown.Terminal)
	}
	o.shown.JSON, o.shown.Quiet, o.shown.Explain = f.JSON, f.Quiet, f.ExplainFlags()
	switch {
	case err != nil && o.detach:
		return err
	case err != nil:
		return execute.NoResult(env, err, req, o.shown)
	case o.detach:
		return startDetached(cmd.Context(), env, req, o.input, f.JSON)
	}
	return execute.Run(cmd.Context(), env, req, o.shown)
}
