package run

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/execute"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/request"
	"github.com/jail-sandbox/jail/runners/shell"
	"github.com/jail-sandbox/jail/supervisor/message"
)

const shAbout = `Run a POSIX shell script in one fresh jail, over a shadow of the current directory. Every simple command is a jailed tool: a command of an
installed bundle, or a .wasm file that the script names. No shell program runs, neither inside nor of the host.

The commands of a pipeline run at the same time, and redirects and globs see the files that the tools see. Unsupported syntax (&, eval, exec, job control,
signals, descriptors above 2) is an error with line and column before any command runs.

With --image the shell of the image runs the script, as jail run --image IMAGE -- sh -c SCRIPT does.`

// NewSh returns the command jail sh.
func NewSh(env *cli.Env) *cobra.Command {
	var f request.Flags
	var o execute.Options
	var text string
	cmd := &cobra.Command{
		Use:   "sh [flags] -c SCRIPT [NAME [ARG...]] | sh [flags] FILE [ARG...]",
		Short: "run a shell script whose every command is a jailed tool",
		Long:  shAbout,
		Example: "  jail sh -c 'grep -rl TODO . | sort | head -n 5'\n  jail sh --commit tidy.sh\n" +
			"  jail plan --sh 'sort < in > out'",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			req, err := scriptRequest(env, cmd, &f, text, args)
			o.JSON, o.Quiet, o.Explain = f.JSON, f.Quiet, f.ExplainFlags()
			if err != nil {
				return execute.NoResult(env, err, req, o)
			}
			return execute.Run(cmd.Context(), env, req, o)
		},
	}
	f.Add(cmd, "print one result object when the script has ended, its output inside")
	o.AddRaw(cmd)
	cmd.Flags().StringVarP(&text, "command", "c", "", "run the text `SCRIPT`")
	return cmd
}

// scriptRequest returns the request for a script: the text of -c, or the file args[0].
func scriptRequest(env *cli.Env, cmd *cobra.Command, f *request.Flags, text string,
	args []string) (message.Request, error) {
	script := &message.Script{Name: "-c", Text: text}
	switch {
	case cmd.Flags().Changed("command") && len(args) > 0:
		script.Name, args = args[0], args[1:]
	case cmd.Flags().Changed("command"):
	case len(args) == 0:
		return message.Request{}, exit.Usage("jail sh -c SCRIPT, or jail sh FILE",
			"%s: a script is missing", cmd.CommandPath())
	default:
		text, err := readScript(args[0])
		if err != nil {
			return message.Request{}, err
		}
		script.Name, script.Text, args = args[0], text, args[1:]
	}
	if f.HasImage() {
		// The image's own shell.
		return f.Request(env, cmd, append([]string{"sh", "-c", script.Text, script.Name}, args...))
	}
	return requestOf(env, cmd, f, script, args)
}

// requestOf returns the request for a script, or an error if the script cannot be parsed.
func requestOf(env *cli.Env, cmd *cobra.Command, f *request.Flags, script *message.Script,
	args []string) (message.Request, error) {
	if !utf8.ValidString(script.Text) || !utf8.ValidString(script.Name) {
		return message.Request{}, exit.Usage("", "script %q: it is not UTF-8", script.Name)
	}
	var problems *shell.Error
	if _, err := shell.Parse(script.Name, script.Text); errors.As(err, &problems) {
		for _, p := range problems.Problems[1:] {
			fmt.Fprintf(env.Stderr, "jail: error: %s:%d:%d: %s\n",
				problems.Name, p.Line, p.Col, p.What)
		}
		problems.Problems = problems.Problems[:1]
		return message.Request{},
			exit.Usage("no command of the script ran; jail sh --help lists what is supported",
				"%v", problems)
	}
	req, err := f.Request(env, cmd, append([]string{"sh"}, args...))
	req.Script = script
	return req, err
}

// readScript reads a script file, with the caller's own rights.
func readScript(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return "", exit.NotFound("jail sh -c runs a text", "script %s: no such file", path)
		}
		return "", exit.About(err, "script %s", path)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, shell.MaxBytes+1))
	if err != nil {
		return "", exit.Usage("", "script %s: %v", path, exit.Cause(err))
	}
	return string(text), nil
}
