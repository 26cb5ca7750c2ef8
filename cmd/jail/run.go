package main

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor"
	"github.com/jail-sandbox/jail/supervisor/api"
)

const runAbout = `Run a tool in a fresh jail, over a shadow of the current directory. Standard input, output and error and the exit code are the tool's.

TOOL is a path to a .wasm file, or a command of an installed bundle (grep, core-utils/grep), or where the profile grants programs of the host, as build
does, the path of one in the jail or a name on its PATH. What follows it is the tool's own.

Exit codes that are not the tool's: 124 a time limit, 125 jail itself failed, 126 refused, 127 no such tool, profile or file,
128+n ended by signal n, 2 wrong usage.`

func (a *app) runCommand() *cobra.Command {
	var f requestFlags
	var terminal, detach, input bool
	cmd := &cobra.Command{
		Use:               "run [flags] [--] TOOL [ARG...]",
		Short:             "run a tool in a fresh jail",
		Long:              runAbout,
		Example:           "  jail run -- grep -rn TODO .\n  jail run --profile readonly --limit memory=64MiB -- sort big.txt\n  jail run --json ./filter.wasm < in.txt",
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: a.completeTools,
		RunE: func(cmd *cobra.Command, args []string) error {
			req, err := a.request(cmd, &f, args)
			if err == nil {
				err = checkDetached(detach, input, terminal)
			}
			if err != nil {
				return err
			}
			if detach {
				return a.detach(cmd.Context(), req, input, f.json)
			}
			if terminal {
				return a.runOnTerminal(cmd.Context(), req, f.json, f.quiet)
			}
			return a.runTool(cmd.Context(), req, f.json, f.quiet)
		},
	}
	f.add(cmd, "print one result object when the tool has ended, its output inside")
	cmd.Flags().BoolVarP(&terminal, "terminal", "t", false, "give a program of the host a terminal of the jail's own")
	cmd.Flags().BoolVar(&detach, "detach", false, "print the run's ID and leave it alone: jail logs, wait, attach, kill")
	cmd.Flags().BoolVar(&input, "input", false, "with --detach: keep standard input open for jail attach")
	a.completeProfiles(cmd)
	return cmd
}

// runTool runs the tool and says how that ended.
func (a *app) runTool(ctx context.Context, req supervisor.Request, asJSON, quiet bool) error {
	var res supervisor.Result
	err := a.withDaemon(ctx, func(c *api.Client) (err error) {
		res, err = a.stream(ctx, c, req, asJSON)
		return err
	})
	if a.restore != nil {
		err = errors.Join(err, a.restore())
	}
	if err != nil {
		return a.noResult(err, req, asJSON)
	}
	return a.ended(res, asJSON, quiet)
}

// stream carries the tool's streams. With JSON, what the tool writes becomes a part of the result.
func (a *app) stream(ctx context.Context, c *api.Client, req supervisor.Request, asJSON bool) (supervisor.Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := a.forwardSignals(ctx, cancel, c, req.ID)
	var out, errOut io.Writer = sink{a.stdout, "standard output"}, sink{a.stderr, "standard error"}
	var outText, errText bytes.Buffer
	if asJSON {
		out, errOut = &outText, &errText
	}
	res, err := a.start(ctx, c, req, out, errOut)
	if s := ended(); err != nil && s != 0 { // cut off before there was a result
		name := forwarded[s]
		res, err = supervisor.Result{ID: req.ID, ExitCode: exitSignal + int(s), Signal: &name, Denied: []runners.Denial{}}, nil
	}
	res.Stdout, res.Stderr = outText.Bytes(), errText.Bytes()
	return res, err
}

// noResult makes a result where there is none because nobody answered: a caller that asked for JSON gets one object in any case.
func (a *app) noResult(err error, req supervisor.Request, asJSON bool) error {
	if !asJSON {
		return err
	}
	e := describe(err)
	res := supervisor.Result{ID: req.ID, ExitCode: e.Exit(), Denied: []runners.Denial{}, Error: e}
	return errors.Join(e, a.print(func(w io.Writer) error { return writeJSON(w, res, "") }))
}
