package main

import (
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor"
	"github.com/jail-sandbox/jail/supervisor/api"
)

func (a *app) psCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "ps",
		Short:   "list the runs that are alive",
		Example: "  jail ps\n  jail ps --json",
		Args:    exactly(),
	}
	asJSON := jsonFlag(cmd, "print a list of objects")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.withDaemon(cmd.Context(), func(c *api.Client) error {
			runs, err := c.Runs(cmd.Context())
			if err != nil {
				return err
			}
			return a.show(*asJSON, runs, func(w io.Writer) error { return writeRuns(w, runs) })
		})
	}
	return cmd
}

func writeRuns(w io.Writer, runs []supervisor.RunInfo) error {
	rows := [][]string{{"ID", "UID", "PID", "AGE", "CPU", "MEMORY", "WORKSPACE", "TOOL"}}
	for _, r := range runs {
		cpu, memory := "-", "-"
		if r.Usage != nil {
			cpu, memory = millis(r.Usage.CPUMS), size(r.Usage.MemoryPeak)
		}
		dir := dash(workspace.Name(r.Workspace).String())
		tool := strings.Join(append([]string{r.Tool}, r.Args...), " ")
		rows = append(rows, []string{r.ID, strconv.FormatUint(uint64(r.UID), 10), strconv.Itoa(r.PID), age(r.Started), cpu, memory, dir, tool})
	}
	return table(w, rows)
}
