// Package execute runs a tool in the daemon, connects its streams to this command's, and prints how
// it ended.
package execute

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/ended"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/inherit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/cmd/jail/internal/terminal"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// Options tell where a tool runs and how its output and result are shown.
type Options struct {
	// JSON prints one result object, with the output in it, instead of the streams.
	JSON bool
	// Quiet omits everything about the run except errors.
	Quiet bool
	// Verbose lists the refused system calls that programs try and continue without.
	Verbose bool
	// Raw passes the tool's control sequences to the terminal unchanged.
	Raw bool
	// Terminal gives the tool a terminal in the jail.
	Terminal bool
	// Session is the ID of the session that the tool runs in; "" for a jail of its own.
	Session string
	// Explain holds the flags of "jail policy explain" for the policy of the run, with a blank
	// behind each.
	Explain string
}

// AddRaw adds the flag --raw.
func (o *Options) AddRaw(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.Raw, "raw", false,
		"on a terminal, pass on the tool's control strings, such as titles and clipboard, unchanged")
}

// AddVerbose adds the flag --verbose.
func (o *Options) AddVerbose(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.Verbose, "verbose", false,
		"list in one line the refused calls that programs continue without")
}

// AddTerminal adds the flag --terminal.
func (o *Options) AddTerminal(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&o.Terminal, "terminal", "t", false,
		"give a program of the host a terminal of the jail's own")
}

// Run runs the tool with this command's streams and prints how it ended. It returns the tool's exit
// code as an error, or nil for 0.
func Run(ctx context.Context, env *cli.Env, req message.Request, o Options) (err error) {
	var sizes <-chan runners.Terminal
	restore := func() error { return nil }
	if o.Terminal {
		t, err := openTerminal(env, o)
		if err != nil {
			return err
		}
		defer t.Close()
		now := t.Size()
		req.Terminal, sizes, restore = &now, t.Sizes, t.Restore
	}
	var res message.Result
	err = env.WithSessionDaemon(ctx, o.Session, func(c *api.Client) (err error) {
		res, err = stream(ctx, env, c, req, o, sizes)
		return err
	})
	// Restore the terminal before anything is printed about the result.
	err = errors.Join(err, restore())
	if err != nil {
		return NoResult(env, err, req, o)
	}
	return Ended(env, res, o)
}

// openTerminal puts the caller's terminal into raw mode for the tool.
func openTerminal(env *cli.Env, o Options) (*terminal.Raw, error) {
	if o.JSON {
		return nil, exit.Usage("", "-t and --json contradict each other")
	}
	in, ok := env.Stdin.(*os.File)
	if !ok || !terminal.Is(in) || !terminal.Is(env.Stdout) {
		return nil, exit.Usage("without -t the tool reads and writes pipes",
			"-t needs a terminal on standard input and standard output")
	}
	return terminal.OpenRaw(in)
}

// stream runs the tool and passes its streams. With JSON its output is put into the result.
func stream(ctx context.Context, env *cli.Env, c *api.Client, req message.Request, o Options,
	sizes <-chan runners.Terminal) (message.Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := ended.Forward(func(s syscall.Signal) error { return c.Kill(ctx, req.ID, int(s)) }, cancel)
	// A tool with a terminal in the jail may write anything to the caller's.
	out, errOut := Screens(env, o.Raw || req.Terminal != nil)
	var outText, errText bytes.Buffer
	if o.JSON {
		out, errOut = &outText, &errText
	}
	res, err := start(ctx, env, c, o.Session, req, out, errOut, sizes)
	if s := stop(); err != nil && s != 0 {
		// The connection was cut before there was a result.
		name := ended.Signals[s]
		res, err = message.Result{ID: req.ID, ExitCode: ended.ExitSignal + int(s), Signal: &name,
			Denied: []runners.Denial{}}, nil
	}
	res.Stdout, res.Stderr = outText.Bytes(), errText.Bytes()
	return res, err
}

// start runs a tool in a jail of its own, or in a session if session is not "".
func start(ctx context.Context, env *cli.Env, c *api.Client, session string, req message.Request,
	out, errOut io.Writer, sizes <-chan runners.Terminal) (message.Result, error) {
	in := env.Stdin
	if f, ok := in.(*os.File); ok && inherit.NoInput(f) {
		in = nil
	}
	if session == "" {
		return c.RunSized(ctx, req, in, out, errOut, sizes)
	}
	return c.Exec(ctx, session, req.Exec(), in, out, errOut, sizes)
}

// NoResult returns err for a run without a result, because the request was refused early or the
// daemon failed. With JSON it also prints a result object, so that callers always get one.
func NoResult(env *cli.Env, err error, req message.Request, o Options) error {
	if !o.JSON {
		return err
	}
	e := exit.Describe(err)
	return errors.Join(e, env.PrintLine(message.Result{ID: req.ID, ExitCode: e.Exit(),
		Denied: []runners.Denial{}, Error: e}))
}

// Ended prints how a run ended, and returns its exit code as an error, or nil for 0.
func Ended(env *cli.Env, res message.Result, o Options) error {
	if o.JSON {
		if err := env.PrintLine(res); err != nil {
			return err
		}
	}
	if !o.Quiet && !o.JSON {
		Tell(env, res, o.Verbose)
	}
	if res.Error != nil {
		env.Complain(res.Error)
	}
	if res.ExitCode == 0 {
		return nil
	}
	if !o.Quiet && !o.JSON && res.Error == nil {
		output.Say(env.Stderr, "hint", nextAfter(res, o.Explain))
	}
	return exit.Code(res.ExitCode)
}

// Screens returns the writers for the output of a tool. On a terminal, control sequences that do
// more than show text are removed unless raw is set. Both are the same writer if stdout and stderr
// are one file.
func Screens(env *cli.Env, raw bool) (out, errOut io.Writer) {
	screen := func(w io.Writer, name string) io.Writer {
		if raw || !terminal.Is(w) {
			return output.Named(w, name)
		}
		return &terminal.Harmless{Writer: output.Named(w, name)}
	}
	out = screen(env.Stdout, "standard output")
	if sameFile(env.Stdout, env.Stderr) {
		// With one writer the tool gets one pipe, which keeps the order of its output.
		return out, out
	}
	return out, screen(env.Stderr, "standard error")
}

// sameFile reports whether two streams are the same pipe, file or terminal, as after 2>&1.
func sameFile(a, b io.Writer) bool {
	var infos [2]os.FileInfo
	for i, w := range []io.Writer{a, b} {
		f, ok := w.(*os.File)
		if !ok {
			return false
		}
		var err error
		if infos[i], err = f.Stat(); err != nil {
			return false
		}
	}
	return os.SameFile(infos[0], infos[1])
}

// maxDenials is how many refusals are printed one by one.
const maxDenials = 10

// Tell prints the warnings, refusals, limit, trap and changes of a run to standard error. verbose
// adds the refused calls that programs do without, in one line.
func Tell(env *cli.Env, res message.Result, verbose bool) {
	for _, w := range res.Warnings {
		output.Say(env.Stderr, "warning", w)
	}
	// Otherwise the error names the refusal.
	if res.Error == nil || res.Error.Code != problem.Refused {
		tellDenied(env, res)
		if verbose {
			tellProbes(env, res)
		}
	}
	if l := res.Limit; l != nil {
		text := fmt.Sprintf("%s: %s reached", l.Name, output.Quantity(l.Name, l.Limit))
		// A module's memory limit refuses the allocation, so the peak is below it.
		if l.Name == "memory" && l.Peak < l.Limit {
			text = fmt.Sprintf("%s: more than %s was asked for", l.Name,
				output.Quantity(l.Name, l.Limit))
		}
		if l.Peak > 0 {
			text += fmt.Sprintf(" (peak %s", output.Quantity(l.Name, l.Peak))
			if l.Layer != "" {
				text += ", " + l.Layer + "'s own use in it"
			}
			text += ")"
		}
		output.Say(env.Stderr, "limit", text)
	}
	if res.Trap != nil {
		output.Say(env.Stderr, "trap", res.Trap.Sentence)
	}
	c := res.Changes
	fmt.Fprint(env.Stderr, ended.Changes(res.ID, res.Workspace, c.Added, c.Modified, c.Deleted,
		res.Error != nil))
}

// nextAfter returns the command that explains the limit or the refusal that a failed tool met, or
// "". explain has the flags of that command for the policy of the run.
func nextAfter(res message.Result, explain string) string {
	ask := ""
	if l := res.Limit; l != nil && slices.Contains(policy.LimitNames(), l.Name) {
		ask = "limit:" + l.Name
	} else if l == nil && len(res.Denied) > 0 {
		verb, path, _ := strings.Cut(res.Denied[0].What, " ")
		if (verb == "read" || verb == "write") && output.PlainPath.MatchString(path) {
			ask = verb + ":" + path
		}
	}
	if ask == "" {
		return ""
	}
	return "jail policy explain " + explain + "--why " + ask +
		" says which layer decides, and what would change it"
}

func tellDenied(env *cli.Env, res message.Result) {
	told := slices.DeleteFunc(slices.Clone(res.Denied),
		func(d runners.Denial) bool { return d.Probe })
	for i, d := range told {
		if i == maxDenials {
			output.Say(env.Stderr, "denied",
				fmt.Sprintf("and %d more: jail audit show --run %s", len(told)-i, res.ID))
			break
		}
		text := fmt.Sprintf("%s (%s)", d.What, d.Rule)
		if d.Count > 1 {
			text += fmt.Sprintf(", %d times", d.Count)
		}
		output.Say(env.Stderr, "denied", text)
	}
}

// tellProbes prints in one line the refused calls that programs try and do without.
func tellProbes(env *cli.Env, res message.Result) {
	var all []string
	for _, d := range res.Denied {
		if d.Probe {
			all = append(all, fmt.Sprintf("%s (%d)", d.What, d.Count))
		}
	}
	if len(all) > 0 {
		output.Say(env.Stderr, "denied", "calls that programs try and do without: "+
			strings.Join(all, ", "))
	}
}
