// Package command has what the declarations of jail's commands share: checks of arguments,
// groups, and common flags.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/jail/id"
	"github.com/jail-sandbox/jail/supervisor/api"
)

// Exclusive refuses a command line with more than one of the flags.
func Exclusive(cmd *cobra.Command, names ...string) error {
	var given []string
	for _, name := range names {
		if cmd.Flags().Changed(name) {
			given = append(given, "--"+name)
		}
	}
	if len(given) < 2 {
		return nil
	}
	return exit.Usage("usage: jail "+cmd.Use, "jail %s: %s exclude each other: give one of them",
		cmd.Name(), strings.Join(given, " and "))
}

// wanted says what a flag's value must be, by the flag's type in pflag.
var wanted = map[string]string{
	"int":      "whole number",
	"uint64":   "whole number of 0 or more",
	"duration": "duration: write a number and s, m or h, as in 90s",
	"bool":     "yes or no: write true or false, or the flag alone for true",
}

// FlagValue returns an error about the value of a flag in words for users. The library's error
// names the function that parses the value.
func FlagValue(err error) error {
	var bad *pflag.InvalidValueError
	if !errors.As(err, &bad) {
		return err
	}
	want, known := wanted[bad.GetFlag().Value.Type()]
	if !known {
		return err
	}
	if errors.Is(bad, strconv.ErrRange) {
		return fmt.Errorf("--%s: %q is out of range", bad.GetFlag().Name, bad.GetValue())
	}
	return fmt.Errorf("--%s: %q is no %s", bad.GetFlag().Name, bad.GetValue(), want)
}

// JSON adds the flag --json, which every command that prints has.
func JSON(cmd *cobra.Command, set *bool, prints string) {
	cmd.Flags().BoolVar(set, "json", false, prints)
}

// mayBeEmpty are the flags whose empty value means something: a text, or the current directory.
var mayBeEmpty = []string{"command", "sh", "words", "about", "say", "workspace"}

// NoEmptyFlag refuses a flag with an empty value, as of a shell variable that is not set. It would
// count as a flag that was not given, and what it narrows or checks would not be done.
func NoEmptyFlag(cmd *cobra.Command, _ []string) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if err == nil && f.Value.Type() == "string" && f.Value.String() == "" &&
			!slices.Contains(mayBeEmpty, f.Name) {
			err = exit.Usage("", "%s: --%s: the value is empty", cmd.CommandPath(), f.Name)
		}
	})
	return err
}

// maxName bounds the bytes of a name.
const maxName = 200

// CheckID refuses text that is no id of a run or of what a run leaves, and no USER/NAME. The daemon
// would look for it below a path of its API.
func CheckID(cmd *cobra.Command, text string) error {
	err := id.Check(text)
	if who, name, ok := strings.Cut(text, "/"); ok {
		if err = id.Check(name); err != nil || checkName("user", who) != nil {
			err = fmt.Errorf("id %.80q: want an id, or USER/NAME", text)
		}
	}
	if err != nil {
		return exit.Usage("usage: "+cmd.UseLine(), "%s: %v", cmd.CommandPath(), err)
	}
	return nil
}

// checkName refuses text that names nothing: each kind of names has a narrower form, which is checked
// elsewhere.
func checkName(what, text string) error {
	switch {
	case strings.Trim(text, "./") == "":
		return fmt.Errorf("%s %.80q: it has only dots and slashes", what, text)
	case len(text) > maxName:
		return fmt.Errorf("%s %.80q: it has more than %d bytes", what, text, maxName)
	case strings.ContainsFunc(text, unicode.IsControl):
		return fmt.Errorf("%s %.80q: it has control characters", what, text)
	}
	return nil
}

// named are the arguments of Exactly and AtLeast that are names.
var named = []string{"NAME", "BUNDLE", "PUBLISHER"}

// Exactly returns a check that there is one argument for each name, and that none is empty. An argument
// ID is the id of a run, or of what a run leaves.
func Exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < len(names) {
			return exit.Usage("usage: "+cmd.UseLine(),
				"%s: %s is missing", cmd.CommandPath(), names[len(args)])
		}
		if i := slices.Index(args[:len(names)], ""); i >= 0 {
			return exit.Usage("usage: "+cmd.UseLine(), "%s: %s is empty", cmd.CommandPath(), names[i])
		}
		for i, name := range names {
			if name == "ID" {
				if err := CheckID(cmd, args[i]); err != nil {
					return err
				}
			}
			if slices.Contains(named, name) {
				if err := checkName(name, args[i]); err != nil {
					return exit.Usage("usage: "+cmd.UseLine(), "%s: %v", cmd.CommandPath(), err)
				}
			}
		}
		return AtMost(len(names))(cmd, args)
	}
}

// AtMost returns a check that there are no more than most arguments.
func AtMost(most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > most {
			return exit.Usage("usage: "+cmd.UseLine(), "%s: argument %.80q is one too many",
				cmd.CommandPath(), args[most])
		}
		return nil
	}
}

// IDs returns a check that each argument is an ID, too.
func IDs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		for i := 0; err == nil && i < len(args); i++ {
			err = CheckID(cmd, args[i])
		}
		return err
	}
}

// AtLeast is Exactly, but more arguments may follow, none of which is empty.
func AtLeast(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := Exactly(names...)(cmd, args[:min(len(args), len(names))]); err != nil {
			return err
		}
		if i := slices.Index(args, ""); i >= 0 {
			return exit.Usage("usage: "+cmd.UseLine(), "%s: argument %d is empty",
				cmd.CommandPath(), i+1)
		}
		return nil
	}
}

// Removed returns a command for one that the previous release had. It fails and names the
// replacement. It goes with the next release.
func Removed(name, replacement string) *cobra.Command {
	return &cobra.Command{
		Use:                name,
		Hidden:             true,
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return exit.Usage(replacement, "%s was removed", cmd.CommandPath())
		},
	}
}

// NoSuch refuses arguments, as names of commands that do not exist, and suggests names like them.
func NoSuch(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := cmd.CommandPath() + " --help"
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(args[0]); args[0] != "" && len(near) > 0 {
		hint = "did you mean " + cmd.CommandPath() + " " + strings.Join(near,
			", or "+cmd.CommandPath()+" ") + "?"
	}
	return exit.Usage(hint, "%s has no command %.80q", cmd.CommandPath(), args[0])
}

// Group returns a command that does nothing but hold subcommands.
func Group(name, short string, subs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: name, Short: short, Args: NoSuch, RunE: missing}
	cmd.AddCommand(subs...)
	return cmd
}

// missing refuses a group without a command, and lists its commands.
func missing(cmd *cobra.Command, _ []string) error {
	var names []string
	for _, sub := range cmd.Commands() {
		if !sub.Hidden {
			names = append(names, sub.Name())
		}
	}
	return exit.Usage(cmd.CommandPath()+" --help", "%s: COMMAND is missing: %s",
		cmd.CommandPath(), strings.Join(names, " or "))
}

// Answer makes cmd ask a daemon, and print the answer: by write, or with --json as JSON. prints says
// what --json prints. with calls a function with a client of the daemon.
func Answer[C, T any](env *cli.Env, cmd *cobra.Command, prints string,
	with func(context.Context, func(C) error) error,
	ask func(ctx context.Context, c C, args []string) (T, error),
	write func(w io.Writer, answer T)) *cobra.Command {
	var asJSON bool
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return with(cmd.Context(), func(c C) error {
			answer, err := ask(cmd.Context(), c, args)
			if err != nil {
				return err
			}
			return env.Show(asJSON, answer, func(w io.Writer) { write(w, answer) })
		})
	}
	JSON(cmd, &asJSON, prints)
	return cmd
}

// Print makes cmd print what find returns: by write, or with --json as JSON. prints says what --json
// prints.
func Print[T any](env *cli.Env, cmd *cobra.Command, prints string,
	find func(cmd *cobra.Command, args []string) (T, error),
	write func(w io.Writer, found T)) *cobra.Command {
	return Judge(env, cmd, prints, func(cmd *cobra.Command, args []string) (T, bool, error) {
		found, err := find(cmd, args)
		return found, true, err
	}, write)
}

// Judge is Print of an answer to a question: after a no, for which find returns false, the exit code
// is 1.
func Judge[T any](env *cli.Env, cmd *cobra.Command, prints string,
	find func(cmd *cobra.Command, args []string) (found T, yes bool, err error),
	write func(w io.Writer, found T)) *cobra.Command {
	var asJSON bool
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		found, yes, err := find(cmd, args)
		if err == nil {
			err = env.Show(asJSON, found, func(w io.Writer) { write(w, found) })
		}
		if err == nil && !yes {
			err = exit.No
		}
		return err
	}
	JSON(cmd, &asJSON, prints)
	return cmd
}

// Show is Answer of jaild.
func Show[T any](env *cli.Env, cmd *cobra.Command, prints string,
	ask func(ctx context.Context, c *api.Client, args []string) (T, error),
	write func(w io.Writer, answer T)) *cobra.Command {
	return Answer(env, cmd, prints, env.WithDaemon, ask, write)
}

// List makes cmd print what list returns: a row each below the heads, or with --json as JSON.
func List[T any](env *cli.Env, cmd *cobra.Command,
	list func(*api.Client, context.Context) ([]T, error), heads []string,
	row func(T) []string) *cobra.Command {
	cmd.Args = Exactly()
	return Show(env, cmd, "print a list of objects",
		func(ctx context.Context, c *api.Client, _ []string) ([]T, error) { return list(c, ctx) },
		func(w io.Writer, all []T) { output.Rows(w, heads, all, row) })
}
