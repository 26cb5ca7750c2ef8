package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/supervisor/api"
)

func (a *app) killCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "kill [--signal N] ID",
		Short:   "end a run",
		Long:    "End a run, at once and whole: nothing inside can refuse. The signal is what its result will name.",
		Example: "  jail kill 3w5e11264sg0c8v5a9b7k2m4qd",
		Args:    exactly("ID"),
	}
	text := cmd.Flags().String("signal", "KILL", "`SIGNAL` that the result names, as a number or a name")
	asJSON := jsonFlag(cmd, "print an object")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		n, err := parseSignal(*text)
		if err != nil {
			return err
		}
		return a.withDaemon(cmd.Context(), func(c *api.Client) error {
			if err := c.Kill(cmd.Context(), args[0], n); err != nil {
				return err
			}
			answer := struct {
				ID     string `json:"id"`
				Signal int    `json:"signal"`
			}{args[0], n}
			return a.show(*asJSON, answer, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "ended %s\n", printable(args[0]))
				return err
			})
		})
	}
	return cmd
}

var signalNumbers = map[string]syscall.Signal{
	"HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "QUIT": syscall.SIGQUIT, "ABRT": syscall.SIGABRT, "KILL": syscall.SIGKILL,
	"USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2, "PIPE": syscall.SIGPIPE, "ALRM": syscall.SIGALRM, "TERM": syscall.SIGTERM,
}

func parseSignal(text string) (int, error) {
	if s, ok := signalNumbers[strings.TrimPrefix(strings.ToUpper(text), "SIG")]; ok {
		return int(s), nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 31 {
		return 0, usage("", "--signal %s: want a number from 1 to 31, or a name such as TERM", text)
	}
	return n, nil
}
