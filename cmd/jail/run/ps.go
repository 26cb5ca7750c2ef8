package run

import (
	"cmp"
	"context"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/message"
)

// NewPs returns the command jail ps.
func NewPs(env *cli.Env) *cobra.Command {
	return command.Show(env, &cobra.Command{
		Use:     "ps",
		Short:   "list the live runs",
		Example: "  jail ps\n  jail ps --json",
		Args:    command.Exactly(),
	}, "print a list of objects",
		func(ctx context.Context, c *api.Client, _ []string) ([]message.RunInfo, error) {
			return c.Runs(ctx)
		}, writeRuns)
}

func writeRuns(w io.Writer, runs []message.RunInfo) error {
	rows := [][]string{{"ID", "UID", "PID", "AGE", "CPU", "MEMORY", "WORKSPACE", "TOOL"}}
	for _, r := range runs {
		cpu, memory := "-", "-"
		if r.Usage != nil {
			cpu, memory = output.Millis(r.Usage.CPUMS), output.Size(r.Usage.MemoryPeak)
		}
		dir := cmp.Or(workspace.Name(r.Workspace).String(), "-")
		tool := strings.Join(append([]string{r.Tool}, r.Args...), " ")
		rows = append(rows, []string{r.ID, strconv.FormatUint(uint64(r.UID), 10),
			strconv.Itoa(r.PID), output.Age(r.Started), cpu, memory, dir, tool})
	}
	return output.Table(w, rows)
}
