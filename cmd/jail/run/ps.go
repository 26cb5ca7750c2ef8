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

// NewPs returns the command jail ps.
func NewPs(env *cli.Env) *cobra.Command {
	heads := []string{"ID", "UID", "PID", "AGE", "CPU", "MEMORY", "WORKSPACE", "TOOL"}
	return command.List(env, &cobra.Command{
		Use:     "ps",
		Short:   "list the live runs",
		Example: "  jail ps\n  jail ps --json",
	}, (*api.Client).Runs, heads, func(r message.RunInfo) []string {
		cpu, memory := "-", "-"
		if r.Usage != nil {
			cpu, memory = output.Millis(r.Usage.CPUMS), output.Size(r.Usage.MemoryPeak)
		}
		dir := cmp.Or(workspace.Name(r.Workspace).String(), "-")
		tool := strings.Join(append([]string{r.Tool}, r.Args...), " ")
		return []string{r.ID, strconv.FormatUint(uint64(r.UID), 10), strconv.Itoa(r.PID),
			output.Age(r.Started), cpu, memory, dir, tool}
	})
}

// NewInspect returns the command jail inspect.
func NewInspect(env *cli.Env) *cobra.Command {
	var id string
	var ended []audit.Record
	return command.Show(env, &cobra.Command{
		Use:     "inspect ID",
		Short:   "show a live run, or the records of one that has ended",
		Example: "  jail inspect 3w5e11264sg0c8v5a9b7k2m4qd",
		Args:    command.Exactly("ID"),
	}, `print {"live":…} or {"records":[…]}`,
		func(ctx context.Context, c *api.Client, args []string) (r api.Records, err error) {
			id = args[0]
			if r, err = c.Inspect(ctx, id); err != nil {
				return r, err
			}
			for _, line := range r.Records {
				one, err := audit.ParseRecord(line)
				if err != nil {
					return r, fmt.Errorf("record of the daemon: %w", err)
				}
				ended = append(ended, one)
			}
			return r, nil
		}, func(w io.Writer, r api.Records) {
			if r.Live != nil {
				writeLive(w, *r.Live)
				return
			}
			fmt.Fprintln(w, audit.Header)
			for _, one := range ended {
				// Render fails only if w does, and w keeps the error.
				_ = audit.Render(w, one)
			}
			if r.Truncated {
				fmt.Fprintf(w, "these are the first %d records: jail audit show --run %s shows all\n",
					len(ended), id)
			}
		})
}

func writeLive(w io.Writer, r message.RunInfo) {
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
	output.Table(w, rows)
}

func since(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") }
