// Package agents has the commands that make jail the sandbox of a coding agent: setup writes the
// agent's configuration, and hook answers the agent before it runs a shell command.
package agents

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/cmd/jail/internal/terminal"
	"github.com/jail-sandbox/jail/cmd/jail/policy"
	"github.com/jail-sandbox/jail/jail/asuser"
	"github.com/jail-sandbox/jail/policy/syntax"
)

const setupAbout = `Write the configuration of a coding agent: it gets the tools of jail mcp, its own shell and editing tools are denied where it allows that, and a hook (jail hook)
stands before them. CLIENT is claude-code, codex, cursor, gemini or openhands; docs/agents has a page for each, which says what that closes and what it leaves open.

The command shows the difference and asks. What the files have stays, comments included; a second time changes nothing. --undo takes out what was
written, and puts back what it replaced. A file that is a symbolic link or belongs to another user is refused.

--project (the default, but for openhands) writes files of the current directory, which others of the project get, too; --user writes those of your home directory.

For a project without --profile the command also names the toolchains on your PATH and the caches that tools need there and the profile build does not have. jail profile new --from-here writes a profile with them.`

type setupOptions struct {
	project, user, undo, yes, json bool
	profile                        string
}

// NewSetup returns the command jail setup.
func NewSetup(env *cli.Env) *cobra.Command {
	var o setupOptions
	cmd := &cobra.Command{
		Use:   "setup [flags] CLIENT",
		Short: "make jail the sandbox of a coding agent",
		Long:  setupAbout,
		Example: "  jail setup claude-code\n  jail setup codex --user --yes\n" +
			"  jail setup claude-code --undo",
		Args: command.Exactly("CLIENT"),
		RunE: func(_ *cobra.Command, args []string) error { return setup(env, o, args[0]) },
	}
	set := cmd.Flags()
	set.SortFlags = false
	set.BoolVar(&o.project, "project", false, "write files of the current directory")
	set.BoolVar(&o.user, "user", false, "write files of your home directory")
	set.StringVar(&o.profile, "profile", "", "profile `NAME` that the agent works with (default build)")
	set.BoolVar(&o.undo, "undo", false, "take out what was written")
	set.BoolVarP(&o.yes, "yes", "y", false, "ask nothing")
	command.JSON(cmd, &o.json, "print an object; without --yes, write nothing")
	return cmd
}

// setupResult is the output of jail setup --json.
type setupResult struct {
	Client  string    `json:"client"`
	Scope   string    `json:"scope"`
	Written bool      `json:"written"`
	Files   []planned `json:"files"`
	Next    string    `json:"next,omitempty"`
	// Needs has a line for each mount and cache that tools in the directory need and the profile
	// lacks.
	Needs []string `json:"needs,omitempty"`
}

func setup(env *cli.Env, o setupOptions, name string) error {
	c, err := clientOf(name)
	if err != nil {
		return exit.Usage("jail help setup", "jail setup: %v", err)
	}
	if o.project && o.user {
		return exit.Usage("", "--project and --user contradict each other")
	}
	p, err := programsOf(env, o.profile)
	if err != nil {
		return err
	}
	files := c.files(p, o.user)
	if len(files) == 0 && o.project {
		return exit.Usage("jail setup --user "+name, "%s reads no configuration of a project", name)
	} else if len(files) == 0 {
		o.user = true
		files = c.files(p, true)
	}
	home := cmp.Or(env.Getenv("HOME"), asuser.Home(uint32(os.Geteuid())))
	w := writer{env: env, home: home, base: ".", client: name, undo: o.undo}
	if w.state, err = stateOf(env, home); err != nil {
		return err
	}
	r := setupResult{Client: name, Scope: "project"}
	if o.user {
		w.base, r.Scope = home, "user"
	}
	for _, f := range files {
		planned, err := w.plan(f, o.user)
		if err != nil {
			return err
		}
		r.Files = append(r.Files, planned)
	}
	if !o.undo {
		r.Next = c.next
	}
	if !o.undo && !o.user && o.profile == "" {
		dir, err := os.Getwd()
		if err != nil {
			return exit.Failed(err, "", "the working directory: %v", exit.Cause(err))
		}
		// Ignore an error: a directory without proposals, such as a home, can be set up, too.
		r.Needs, _ = policy.Needs(env, dir)
	}
	return o.carryOut(env, &w, &r)
}

// carryOut shows the planned changes, asks for confirmation, and writes the files.
func (o setupOptions) carryOut(env *cli.Env, w *writer, r *setupResult) error {
	changes := 0
	for _, f := range r.Files {
		if f.Change != unchanged {
			changes++
		}
	}
	asks := !o.json && !o.yes && changes > 0
	if asks && (env.Stdin == nil || !terminal.Is(env.Stdin)) {
		return exit.Usage("--yes writes without a question",
			"jail setup: standard input is no terminal")
	}
	if !o.json && changes > 0 {
		show(env.Stderr, r.Files)
	}
	if asks {
		if err := env.Confirm("written", "Write this?"); err != nil {
			return err
		}
	}
	if o.yes || !o.json {
		for _, f := range r.Files {
			if err := w.write(f); err != nil {
				return err
			}
			r.Written = r.Written || f.Change != unchanged
		}
	}
	return env.Show(o.json, r, func(out io.Writer) {
		if changes == 0 {
			fmt.Fprintln(out, "nothing to do")
			return
		}
		for _, f := range r.Files {
			if f.Change != unchanged {
				fmt.Fprintf(out, "%sd %s\n", f.Change, output.Printable(f.Path))
			}
		}
		if r.Next == "" {
			return
		}
		fmt.Fprintf(out, "next: %s\n", r.Next)
		if len(r.Needs) == 0 {
			return
		}
		fmt.Fprintln(out, "tools here need what the profile build does not have:")
		for _, line := range r.Needs {
			fmt.Fprintln(out, "  "+output.Printable(line))
		}
		fmt.Fprintf(out, "jail profile new --from-here writes a profile NAME with them; when it "+
			"is installed: jail setup --profile NAME %s\n", r.Client)
	})
}

func show(w io.Writer, files []planned) {
	for _, f := range files {
		for line := range strings.Lines(f.Diff) {
			fmt.Fprintln(w, output.Printable(strings.TrimSuffix(line, "\n")))
		}
	}
}

// programsOf returns the jail command to write into configurations. The command is "jail" if that
// name in PATH is this program, else the path of this program. It has the flag --profile if profile
// is not empty. A malformed name of a profile is an error.
func programsOf(env *cli.Env, profile string) (programs, error) {
	p := programs{exe: env.Exe}
	if found, err := exec.LookPath("jail"); err == nil && sameFile(found, env.Exe) {
		p.exe = "jail"
	}
	if profile == "" {
		return p, nil
	}
	if err := syntax.CheckName(profile); err != nil {
		return p, exit.Usage("jail profile list", "--profile: %v", err)
	}
	p.args = []string{"--profile", profile}
	return p, nil
}

func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	y, err2 := os.Stat(b)
	return err == nil && err2 == nil && os.SameFile(x, y)
}

// stateOf returns the directory of the notes about written files: jail/setup below
// $XDG_STATE_HOME, or below ~/.local/state if that is unset. A relative path is an error.
func stateOf(env *cli.Env, home string) (string, error) {
	state := cmp.Or(env.Getenv("XDG_STATE_HOME"), filepath.Join(home, ".local/state"))
	if !filepath.IsAbs(state) {
		return "", exit.Usage("set HOME", "jail setup: there is no home directory")
	}
	return filepath.Join(state, "jail/setup"), nil
}

// edited returns the text of the file at path with the changes made. back holds the changes that
// were necessary, with the fields for undo set. If none was necessary, out is text and back is nil.
func edited(path string, text []byte, changes []change) (out []byte, back []change, err error) {
	if filepath.Ext(path) == ".toml" {
		return editedTOML(text, changes)
	}
	f, err := parseJSON(text)
	if err != nil {
		return nil, nil, err
	}
	for _, c := range changes {
		done, err := f.apply(c)
		if err != nil {
			return nil, nil, err
		}
		if done != nil {
			back = append(back, *done)
		}
	}
	if len(back) == 0 {
		return text, nil, nil
	}
	return f.text(), back, nil
}

func editOf(c change) syntax.Edit {
	return syntax.Edit{Section: c.At[0], Key: c.At[1], Value: c.Value}
}

func editedTOML(text []byte, changes []change) ([]byte, []change, error) {
	var back []change
	for _, c := range changes {
		before, err := editOf(c).Now(text)
		if err != nil {
			return nil, nil, err
		}
		if before == c.Value {
			continue
		}
		if text, err = editOf(c).Apply(text); err != nil {
			return nil, nil, err
		}
		c.Before = before
		back = append(back, c)
	}
	return text, back, nil
}

// restored returns the text of the file at path without the changes, the last of which is undone
// first. empty reports whether the file holds nothing else, so that it can be removed.
func restored(path string, text []byte, changes []change) (out []byte, empty bool, err error) {
	if filepath.Ext(path) == ".toml" {
		for i := len(changes) - 1; i >= 0; i-- {
			if text, err = editOf(changes[i]).Undo(text, changes[i].Before); err != nil {
				return nil, false, err
			}
		}
		return text, strings.TrimSpace(string(text)) == "", nil
	}
	f, err := parseJSON(text)
	if err != nil {
		return nil, false, err
	}
	for i := len(changes) - 1; i >= 0; i-- {
		if err := f.undo(changes[i]); err != nil {
			return nil, false, err
		}
	}
	return f.text(), f.empty(), nil
}

// notEdited returns the error for a file that has to be edited by hand.
func notEdited(path string, err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return err
	}
	return exit.Usage("write it by hand: docs/agents has the text", "%s: %v", path, exit.Cause(err))
}
