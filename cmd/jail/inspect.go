package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/audit"
)

func (a *app) inspectCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "inspect ID",
		Short:   "show a live run, or what the log says of one that has ended",
		Example: "  jail inspect 3w5e11264sg0c8v5a9b7k2m4qd",
		Args:    exactly("ID"),
	}
	asJSON := jsonFlag(cmd, `print {"live":…} or {"records":[…]}`)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withDaemon(cmd.Context(), func(c *api.Client) error {
			r, err := c.Inspect(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.show(*asJSON, r, func(w io.Writer) error { return writeInspection(w, args[0], r) })
		})
	}
	return cmd
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
		fmt.Fprintf(w, "these are the first %d records: jail audit show --run %s shows all\n", len(r.Records), id)
	}
	return nil
}

func writeLive(w io.Writer, r supervisor.RunInfo) error {
	rows := [][]string{
		{"id", r.ID},
		{"tool", r.Tool},
		{"arguments", strings.Join(r.Args, " ")},
		{"profile", r.Profile},
		{"policy", r.Policy},
		{"workspace", dash(workspace.Name(r.Workspace).String())},
		{"uid", strconv.FormatUint(uint64(r.UID), 10)},
		{"pid", strconv.Itoa(r.PID)},
		{"cgroup", r.Cgroup},
		{"started", since(r.Started) + ", " + age(r.Started) + " ago"},
	}
	if u := r.Usage; u != nil {
		rows = append(rows, []string{"used", fmt.Sprintf("cpu %s, memory at most %s, tasks at most %d", millis(u.CPUMS), size(u.MemoryPeak), u.PIDsPeak)})
	}
	return table(w, rows)
}
