package run

import (
	"cmp"
	"context"
	"fmt"
	"io"
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

// killed is the JSON output of jail kill.
type killed struct {
	ID     string `json:"id"`
	Signal int    `json:"signal"`
}

// NewKill returns the command jail kill.
func NewKill(env *cli.Env) *cobra.Command {
	var signal string
	var n int
	cmd := &cobra.Command{
		Use:   "kill [--signal N] ID",
		Short: "end a run",
		Long: "End a run at once, with all of its processes. They always get SIGKILL; --signal " +
			"is the signal that the result names.",
		Example: "  jail kill 3w5e11264sg0c8v5a9b7k2m4qd",
		Args: func(cmd *cobra.Command, args []string) (err error) {
			n, err = parseSignal(signal)
			return cmp.Or(command.Exactly("ID")(cmd, args), err)
		},
	}
	cmd.Flags().StringVar(&signal, "signal", "KILL",
		"`SIGNAL` that the result names, as a number or a name")
	return command.Show(env, cmd, "print an object",
		func(ctx context.Context, c *api.Client, args []string) (killed, error) {
			return killed{args[0], n}, c.Kill(ctx, args[0], n)
		}, func(w io.Writer, k killed) { fmt.Fprintf(w, "ended %s\n", output.Printable(k.ID)) })
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
