package run

import (
	"context"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/supervisor/api"
)

type killOptions struct {
	id, signal string
	json       bool
}

// NewKill returns the command jail kill.
func NewKill(env *cli.Env) *cobra.Command {
	var o killOptions
	cmd := &cobra.Command{
		Use:   "kill [--signal N] ID",
		Short: "end a run",
		Long: "End a run at once, with all of its processes. They always get SIGKILL; --signal " +
			"is the signal that the result names.",
		Example: "  jail kill 3w5e11264sg0c8v5a9b7k2m4qd",
		Args:    command.Exactly("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.id = args[0]
			return runKill(cmd.Context(), env, o)
		},
	}
	cmd.Flags().StringVar(&o.signal, "signal", "KILL",
		"`SIGNAL` that the result names, as a number or a name")
	command.JSON(cmd, &o.json, "print an object")
	return cmd
}

func runKill(ctx context.Context, env *cli.Env, o killOptions) error {
	n, err := parseSignal(o.signal)
	if err != nil {
		return err
	}
	return env.WithDaemon(ctx, func(c *api.Client) error {
		if err := c.Kill(ctx, o.id, n); err != nil {
			return err
		}
		return env.Show(o.json, struct {
			ID     string `json:"id"`
			Signal int    `json:"signal"`
		}{o.id, n}, output.Text("ended %s\n", output.Printable(o.id)))
	})
}

var signalNumbers = map[string]syscall.Signal{
	"HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "QUIT": syscall.SIGQUIT, "ABRT": syscall.SIGABRT,
	"KILL": syscall.SIGKILL,
	"USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2, "PIPE": syscall.SIGPIPE,
	"ALRM": syscall.SIGALRM, "TERM": syscall.SIGTERM,
}

func parseSignal(text string) (int, error) {
	if s, ok := signalNumbers[strings.TrimPrefix(strings.ToUpper(text), "SIG")]; ok {
		return int(s), nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 31 {
		return 0, exit.Usage("",
			"--signal %s: want a number from 1 to 31, or a name such as TERM", text)
	}
	return n, nil
}
