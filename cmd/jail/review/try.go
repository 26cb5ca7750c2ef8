package review

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/cmd/jail/internal/request"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/message"
)

const tryAbout = `Run N attempts of a tool at one time, each in a branch of its own, and show what they changed side by side. Nothing of them is in the parent until you merge one:

    jail branch merge ID && jail branch discard OTHER...

The parent is the shadow of --from ID, or of a new session of the directory, which is then the one
to commit. The branches are called as the parent with a number. Ctrl-C ends the attempts and throws
them away.

Each attempt has its number, from 1 to N, in the environment variable JAIL_ATTEMPT, which env.allow
of the policy must name.`

// attemptVariable is the environment variable that holds the number of an attempt, from 1 on.
const attemptVariable = "JAIL_ATTEMPT"

type tryOptions struct {
	flags request.Flags
	from  string
	n     int
	tool  []string
	json  bool
}

// An attempt is one branch of a try.
type attempt struct {
	ID      string             `json:"id"`
	Result  message.Result     `json:"result"`
	Changes []workspace.Change `json:"changes"`
	Digest  string             `json:"digest"`
}

// A tried is the result of jail branch try, printed as JSON with --json.
type tried struct {
	Parent   string          `json:"parent"`
	Attempts []attempt       `json:"attempts"`
	Rows     []workspace.Row `json:"rows"`
}

func newTry(env *cli.Env) *cobra.Command {
	var o tryOptions
	cmd := &cobra.Command{
		Use:   "try [flags] N [--] TOOL [ARG...]",
		Short: "run several attempts in branches",
		Long:  tryAbout,
		Example: "  jail branch try --profile build 4 -- ./fix.sh\n" +
			"  jail branch try --profile build 4 -- sh -c './fix.sh --seed $JAIL_ATTEMPT'",
		Args: func(cmd *cobra.Command, args []string) error {
			// An argument of the tool may be empty.
			return command.Exactly("N", "TOOL")(cmd, args[:min(len(args), 2)])
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := strconv.Atoi(args[0])
			if err != nil || n < 1 || n > workspace.MaxBranches {
				return exit.Usage(cmd.CommandPath()+" --help", "%s: N is %q: want a number from 1 to %d",
					cmd.CommandPath(), args[0], workspace.MaxBranches)
			}
			if args = args[1:]; args[0] == "--" {
				args = args[1:]
			}
			if len(args) == 0 {
				return exit.Usage("usage: "+cmd.UseLine(), "%s: TOOL is missing", cmd.CommandPath())
			}
			if strings.HasPrefix(args[0], "-") {
				return exit.Usage("usage: "+cmd.UseLine(), "%s: %s comes after N: flags come before it",
					cmd.CommandPath(), args[0])
			}
			o.n, o.tool = n, args
			req, err := o.flags.Settings(env, cmd)
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt)
			defer stop()
			return env.WithLastingDaemon(ctx, func(c *api.Client) error {
				return runTry(ctx, env, c, o, req)
			})
		},
	}
	addLasting(cmd, &o.flags, "name the parent `ID`, if it is new (default a random ID)")
	// What follows N is the tool's.
	cmd.Flags().SetInterspersed(false)
	cmd.Flags().StringVar(&o.from, "from", "", "begin with the shadow of `ID`")
	command.JSON(cmd, &o.json, "print an object")
	return cmd
}

func runTry(ctx context.Context, env *cli.Env, c *api.Client, o tryOptions,
	req message.Request) error {
	out := tried{Parent: o.from}
	ask := message.SessionRequest{Request: req}
	if o.from == "" {
		// undo discards the parent, so it must be new: StartSession would return an existing
		// session of this id, which may hold work.
		if err := isNew(ctx, c, req.ID); err != nil {
			return err
		}
		s, err := c.StartSession(context.WithoutCancel(ctx), ask)
		if err != nil {
			return err
		}
		out.Parent = s.ID
	}
	ask.ID, ask.Inherit = "", nil
	// undo discards the branches, and the parent if it is new. It ignores errors, since the error
	// of an earlier step is returned.
	undo := func() {
		ctx := context.WithoutCancel(ctx)
		for _, a := range out.Attempts {
			_ = api.BranchesOf(c).Discard(ctx, a.ID)
		}
		if o.from == "" {
			_, _ = c.StopSession(ctx, out.Parent, message.StopRequest{Fate: message.FateDiscard})
		}
	}
	if err := out.fork(ctx, c, o.n, ask); err != nil {
		undo()
		return err
	}
	outputs := out.run(ctx, c, o.tool, req)
	if ctx.Err() != nil {
		undo()
		output.Say(env.Stderr, "interrupted", "the attempts are ended, and nothing of them is left")
		return exit.Code(128 + int(syscall.SIGINT))
	}
	var all [][]workspace.Change
	for i := range out.Attempts {
		a := &out.Attempts[i]
		p, err := api.BranchesOf(c).PreviewMerge(ctx, a.ID)
		if err != nil {
			return err
		}
		a.Changes, a.Digest = p.Changes, p.Digest
		all = append(all, p.Changes)
	}
	if err := out.refused(ctx, c); err != nil {
		undo()
		return err
	}
	out.Rows = workspace.Beside(all)
	return env.Show(o.json, out, func(w io.Writer) { writeTried(w, out, outputs) })
}

// isNew returns an error if there is a session with this id. "" is always new.
func isNew(ctx context.Context, c *api.Client, id string) error {
	all, err := c.Sessions(ctx)
	for _, s := range all {
		if id != "" && s.ID == id {
			err = exit.Usage("--from "+id+" begins with what it holds", "session %s is there already", id)
		}
	}
	return err
}

// refused returns the error of the first attempt, if all attempts failed and none changed anything:
// the tool does not exist, the policy refuses it, or it needs an approval. In the last case each
// attempt has asked for one. refused withdraws all but the first, which is for the next try.
func (t *tried) refused(ctx context.Context, c *api.Client) error {
	for _, a := range t.Attempts {
		if a.Result.Error == nil || len(a.Changes) > 0 {
			return nil
		}
	}
	first := *t.Attempts[0].Result.Error
	if first.Approval == "" {
		return &first
	}
	for _, a := range t.Attempts[1:] {
		if id := a.Result.Error.Approval; id != "" {
			// This fails for an approval that is decided already.
			_, _ = c.Approvals().Withdraw(ctx, id)
		}
	}
	first.Hint = fmt.Sprintf("jail approvals approve --scope uses=%d %s approves this start and one for "+
		"each attempt; try again then", len(t.Attempts)+1, first.Approval)
	return &first
}

// fork makes n branches of the parent and adds their attempts.
func (t *tried) fork(ctx context.Context, c *api.Client, n int, ask message.SessionRequest) error {
	for i := range n {
		// An interrupted Fork could leave a branch that undo does not know.
		b, err := api.BranchesOf(c).Fork(context.WithoutCancel(ctx), t.Parent, message.ForkRequest{
			ID: fmt.Sprintf("%s-%d", t.Parent, i+1), Session: &ask})
		if err != nil {
			return err
		}
		t.Attempts = append(t.Attempts, attempt{ID: b.ID, Changes: []workspace.Change{}})
	}
	return nil
}

// run runs the tool in all branches at the same time, and returns its output in each.
func (t *tried) run(ctx context.Context, c *api.Client, tool []string,
	req message.Request) []*bytes.Buffer {
	outputs := make([]*bytes.Buffer, len(t.Attempts))
	var wg sync.WaitGroup
	for i := range t.Attempts {
		outputs[i] = &bytes.Buffer{}
		wg.Go(func() {
			a := &t.Attempts[i]
			var err error
			a.Result, err = c.Exec(ctx, a.ID, message.ExecRequest{Tool: tool[0], Args: tool[1:],
				Dir: req.Dir, Env: []string{fmt.Sprintf("%s=%d", attemptVariable, i+1)},
				Inherit: req.Inherit}, strings.NewReader(""), outputs[i], outputs[i], nil)
			if err != nil && a.Result.Error == nil {
				a.Result.Error = exit.Describe(err)
			}
		})
	}
	wg.Wait()
	return outputs
}

func writeTried(w io.Writer, t tried, outputs []*bytes.Buffer) {
	for i, a := range t.Attempts {
		state := fmt.Sprintf("exit %d", a.Result.ExitCode)
		if a.Result.Error != nil {
			state = a.Result.Error.Error()
		}
		fmt.Fprintf(w, "# %s: %s, %s\n", output.Printable(a.ID), output.Printable(state),
			output.Count(len(a.Changes), "change", "changes"))
		if text := strings.TrimRight(outputs[i].String(), "\n"); text != "" {
			fmt.Fprintln(w, output.PrintableText(text))
		}
	}
	fmt.Fprintln(w)
	rows := [][]string{{"PATH"}}
	for i := range t.Attempts {
		rows[0] = append(rows[0], strconv.Itoa(i+1))
	}
	for _, r := range t.Rows {
		row := []string{shownPath(r.Path)}
		for _, c := range r.Cells {
			row = append(row, cellText(c))
		}
		rows = append(rows, row)
	}
	output.Table(w, rows)
}

// cellText returns the text of one cell: the mark of the change, and the first digits of the new
// content's hash, so that equal cells are equal changes.
func cellText(c *workspace.Change) string {
	if c == nil {
		return "-"
	}
	text := marks[c.Kind][0]
	switch a := c.After; {
	case a == nil:
	case a.SHA256 != "":
		text += " " + a.SHA256[:7]
	case a.Type == workspace.Link:
		text += " " + a.Target.String()
	default:
		text += fmt.Sprintf(" %s %04o", a.Type, a.Mode)
	}
	return text
}
