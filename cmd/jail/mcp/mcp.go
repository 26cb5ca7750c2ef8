// Package mcp implements the command jail mcp, with which coding agents work in a session of jail.
package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/cmd/jail/internal/request"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/client"
	"github.com/jail-sandbox/jail/supervisor/loopback"
	"github.com/jail-sandbox/jail/supervisor/mcp"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

const about = `Serve the Model Context Protocol on standard input and output: a coding agent gets the tools read, write, edit, glob, grep, bash, fetch, todo, diff, commit,
revert and approvals, which all work in one session of the directory. Nothing changes in the real directory until a person or the policy approves a commit: in the
agent, if it can ask its person, or by jail approvals.

The session outlives this command, and the next one for the same directory and policy works in it. jail session list shows it.

With --http the server listens on an address of the loopback. It prints its URL and a token to standard error; each request must have
"Authorization: Bearer TOKEN". JAIL_MCP_TOKEN names a token of your own, of at least 20 characters.`

// tokenVariable is the environment variable with a token that the caller has chosen.
const tokenVariable = "JAIL_MCP_TOKEN"

// minToken is the least length of a token that the caller chooses.
const minToken = 20

type options struct {
	request request.Flags
	http    string
	silent  bool
}

// New returns the command jail mcp.
func New(env *cli.Env) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "mcp [flags]",
		Short: "let a coding agent work in a session",
		Long:  about,
		Example: "  claude mcp add jail -- jail mcp\n" +
			"  jail mcp --profile worker\n  jail mcp --http 127.0.0.1:0",
		Args: command.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd, env, o) },
	}
	o.request.AddLasting(cmd, "build")
	cmd.Flags().StringVar(&o.http, "http", "", "serve HTTP on `ADDRESS`, such as 127.0.0.1:0")
	cmd.Flags().BoolVar(&o.silent, "no-ask", false,
		"do not ask in the agent: a person decides by jail approvals")
	return cmd
}

func run(cmd *cobra.Command, env *cli.Env, o options) error {
	req, err := o.request.LastingSettings(env, cmd)
	if err != nil {
		return err
	}
	req.Inherit = slices.DeleteFunc(req.Inherit,
		func(v string) bool { return strings.HasPrefix(v, tokenVariable+"=") })
	token := env.Getenv(tokenVariable)
	if token != "" && len(token) < minToken {
		return exit.Usage("", "%s has %d characters: the least is %d", tokenVariable, len(token),
			minToken)
	}
	ctx := cmd.Context()
	return env.WithLastingDaemon(ctx, func(c *api.Client) error {
		s, err := mcp.New(ctx, mcp.Options{Client: c, Silent: o.silent,
			Session: message.SessionRequest{Request: req},
			Decider: func(ctx context.Context) (*api.Client, error) {
				d, err := client.Connect(ctx, client.Options{Socket: env.Config.Socket})
				if err != nil {
					return nil, err
				}
				return d.Client, nil
			}})
		if err != nil {
			return err
		}
		if o.http == "" {
			return serve(ctx, env, s)
		}
		l, err := loopback.Listen(o.http)
		if err != nil {
			return exit.Usage("jail mcp --http 127.0.0.1:0", "--http %s: %v", o.http, err)
		}
		shown := "token: that of " + tokenVariable
		if token == "" {
			token = loopback.NewToken()
			shown = "token: " + token
		}
		output.Say(env.Stderr, "url", "http://"+l.Addr().String()+mcp.Path)
		fmt.Fprintln(env.Stderr, shown)
		return s.ServeHTTP(ctx, l, token)
	})
}

// serve serves the client on standard input and output until the end of input.
func serve(ctx context.Context, env *cli.Env, s *mcp.Server) error {
	in, ok := env.Stdin.(io.ReadCloser)
	if !ok {
		in = io.NopCloser(env.Stdin)
	}
	err := s.Serve(ctx, in, nopCloser{env.Stdout})
	if ctx.Err() != nil {
		// Clients end the server with a signal: that is no error.
		return nil
	}
	if known := (*problem.Error)(nil); err == nil || errors.As(err, &known) || exit.Cause(err) != err {
		return err
	}
	// Other errors come from the decoder and name Go types.
	return exit.Usage("a client writes one JSON-RPC message a line",
		"standard input: it is no JSON-RPC message")
}

// nopCloser has a Close that does nothing, so that standard output stays open.
type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }
