package review

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/terminal"
	"github.com/jail-sandbox/jail/jail/tick"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/shadows"
)

// maxPaths is how many paths a command lists without --verbose.
const maxPaths = 20

// someLines writes the lines of a list: all, or the first maxPaths and how many more there are.
func someLines(w io.Writer, all bool, n int, line func(i int) string) {
	shown := n
	if !all {
		shown = min(n, maxPaths)
	}
	for i := range shown {
		fmt.Fprintln(w, line(i))
	}
	if shown < n {
		fmt.Fprintf(w, "... and %d more: --verbose lists all\n", n-shown)
	}
}

// showProgress calls f, which commits or reverts, and shows the progress where stderr is a
// terminal.
func showProgress(ctx context.Context, env *cli.Env, c *api.Client, id string, silent bool,
	f func() error) error {
	if silent || !terminal.Is(env.Stderr) {
		return f()
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		pollProgress(ctx, env, c, id)
	}()
	err := f()
	cancel()
	<-ended
	terminal.ClearLine(env.Stderr)
	return err
}

// pollProgress shows the steps of the workspace id until ctx ends. It ends at an error, which f of
// showProgress has too.
func pollProgress(ctx context.Context, env *cli.Env, c *api.Client, id string) {
	for range tick.Each(ctx.Done(), 200*time.Millisecond) {
		all, err := c.Workspaces(ctx)
		if err != nil {
			return
		}
		i := slices.IndexFunc(all, func(w shadows.WorkspaceInfo) bool { return w.ID == id })
		if i >= 0 && all[i].Progress != nil {
			p := all[i].Progress
			fmt.Fprintf(env.Stderr, "\r\x1b[Kjail: %d of %d steps (%d%%)", p.Done, p.Total,
				100*p.Done/max(p.Total, 1))
		}
	}
}
