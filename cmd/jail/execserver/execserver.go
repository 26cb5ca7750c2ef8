// Package execserver implements the command jail exec-server, which lets Codex work in a session.
package execserver

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/request"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/execserver"
	"github.com/jail-sandbox/jail/supervisor/loopback"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/toolsession"
)

const about = `Serve the protocol of Codex's exec-server: Codex runs its processes and reads and changes files in one session of the directory, in place of the host. Nothing changes in the
real directory until a person or the policy approves a commit.

The session outlives this command. It is the one of jail mcp for the same directory and policy.

With --listen ws://IP:PORT the server listens on an address of the loopback, and prints the URL that clients connect to, with a token, to standard output.`

// New returns the command jail exec-server.
func New(env *cli.Env) *cobra.Command {
	var flags request.Flags
	var listen string
	cmd := &cobra.Command{
		Use:   "exec-server [flags]",
		Short: "let Codex run its processes in a session",
		Long:  about,
		Example: "  jail exec-server\n  jail exec-server --profile worker\n" +
			"  jail exec-server --listen ws://127.0.0.1:0",
		Args: command.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd, env, &flags, listen) },
	}
	flags.AddLasting(cmd, "build")
	cmd.Flags().StringVar(&listen, "listen", "stdio", "serve on `WHERE`: stdio or ws://IP:PORT")
	return cmd
}

func run(cmd *cobra.Command, env *cli.Env, flags *request.Flags, listen string) error {
	address, isSocket := strings.CutPrefix(listen, "ws://")
	if !isSocket && listen != "stdio" && listen != "stdio://" {
		return exit.Usage("jail exec-server --listen ws://127.0.0.1:0",
			"--listen %s: it is neither stdio nor ws://IP:PORT", listen)
	}
	req, err := flags.LastingSettings(env, cmd)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	return env.WithLastingDaemon(ctx, func(c *api.Client) error {
		session, err := toolsession.Open(ctx, c, message.SessionRequest{Request: req})
		if err != nil {
			return err
		}
		s := execserver.New(session)
		if isSocket {
			l, err := loopback.Listen(strings.TrimSuffix(address, "/"))
			if err != nil {
				return exit.Usage("jail exec-server --listen ws://127.0.0.1:0", "--listen %s: %v", listen,
					err)
			}
			token := loopback.NewToken()
			if _, err := fmt.Fprintln(env.Stdout, execserver.URL(l, token)); err != nil {
				l.Close()
				return err
			}
			return s.ServeWebSocket(ctx, l, token)
		}
		in, ok := env.Stdin.(io.ReadCloser)
		if !ok {
			in = io.NopCloser(env.Stdin)
		}
		if err := s.Serve(ctx, in, env.Stdout); err != nil && ctx.Err() == nil {
			return err
		}
		// The client has closed the stream or sent a signal: that is no error.
		return nil
	})
}
