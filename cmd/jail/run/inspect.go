package run

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/message"
)

// NewInspect returns the command jail inspect.
func NewInspect(env *cli.Env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "inspect ID",
		Short:   "show a live run, or the records of one that has ended",
		Example: "  jail inspect 3w5e11264sg0c8v5a9b7k2m4qd",
		Args:    command.Exactly("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runInspect(cmd.Context(), env, args[0], asJSON)
		},
	}
	command.JSON(cmd, &asJSON, `print {"live":…} or {"records":[…]}`)
	return cmd
}

func runInspect(ctx context.Context, env *cli.Env, id string, asJSON bool) error {
	return env.WithDaemon(ctx, func(c *api.Client) error {
		r, err := c.Inspect(ctx, id)
		if err != nil {
			return err
		}
		return env.Show(asJSON, r, func(w io.Writer) error { return writeInspection(w, id, r) })
	})
}

func writeInspection(w io.Writer, id string, r api.Records) error {
	if r.Live != nil {
		return writeLive(w, *r.Live)
	}
	fmt.Fprintln(w, audit.Header)
	for _, line := range r.Records {
		rec, err := audit.ParseRecord(line)
		if err != nil {
			return fmt.Errorf("record of the daemon: %w", err)
		}
		if err := audit.Render(w, rec); err != nil {
			return err
		}
	}
	if r.Truncated {
		fmt.Fprintf(w, "these are the first %d records: jail audit show --run %s shows all\n",
			len(r.Records), id)
	}
	return nil
}

func writeLive(w io.Writer, r message.RunInfo) error {
	rows := [][]string{
		{"id", r.ID},
		{"tool", r.Tool},
		{"arguments", strings.Join(r.Args, " ")},
		{"profile", r.Profile},
		{"policy", r.Policy},
		{"workspace", cmp.Or(workspace.Name(r.Workspace).String(), "-")},
		{"uid", strconv.FormatUint(uint64(r.UID), 10)},
		{"pid", strconv.Itoa(r.PID)},
		{"cgroup", r.Cgroup},
		{"started", since(r.Started) + ", " + output.Age(r.Started) + " ago"},
	}
	if u := r.Usage; u != nil {
		rows = append(rows, []string{"used",
			fmt.Sprintf("cpu %s, memory at most %s, tasks at most %d", output.Millis(u.CPUMS),
				output.Size(u.MemoryPeak), u.PIDsPeak)})
	}
	return output.Table(w, rows)
}

func since(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") }
