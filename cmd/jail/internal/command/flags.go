// Package command has the shared parts of jail's commands: argument checks, groups, and common
// flags.
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

// Exclusive returns an error if more than one of the flags is given.
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

// wanted describes the values of flags, by the flag's type in pflag.
var wanted = map[string]string{
	"int":      "whole number",
	"uint64":   "whole number of 0 or more",
	"duration": "duration: write a number and s, m or h, as in 90s",
	"bool":     "yes or no: write true or false, or the flag alone for true",
}

// FlagValue rewrites pflag's error about a flag's value, which names a Go function, in words for
// users. Other errors are returned unchanged.
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

// JSON adds the flag --json. prints is its help text.
func JSON(cmd *cobra.Command, set *bool, prints string) {
	cmd.Flags().BoolVar(set, "json", false, prints)
}

// mayBeEmpty are the flags whose empty value means something: a text, or the current directory.
var mayBeEmpty = []string{"command", "sh", "words", "about", "say", "workspace"}

// NoEmptyFlag refuses a text flag with an empty value, as from an unset shell variable. It would
// count as missing, and skip a restriction or check.
func NoEmptyFlag(cmd *cobra.Command, _ []string) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if err == nil && f.Value.Type() == "string" && f.Value.String() == "" &&
			!slices.Contains(mayBeEmpty, f.Name) {
			err = exit.Usage("", "%s: --%s: the value is empty", cmd.CommandPath(), f.Name)
		}
	})
	return err
}

// maxName bounds names, in bytes.
const maxName = 200

// CheckID returns an error unless text is an id of a run or shadow, or USER/NAME. The daemon uses
// it as part of a URL path.
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

// checkName refuses text that cannot be any name. Each kind of name has its own stricter check
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

// named are the argument names of Exactly and AtLeast that checkName checks.
var named = []string{"NAME", "BUNDLE", "PUBLISHER"}

// Exactly returns a check that there is one non-empty argument for each name. An argument named ID
// must be an id, as in CheckID.
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

// IDs returns check, extended by a check that each argument is an ID.
func IDs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		for i := 0; err == nil && i < len(args); i++ {
			err = CheckID(cmd, args[i])
		}
		return err
	}
}

// AtLeast returns Exactly's check, but more non-empty arguments may follow.
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

// Removed returns a hidden command that fails and names the replacement of one that this release
// removed. Delete it in the next release.
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

// NoSuch returns an error for any argument, as a command that does not exist, and suggests similar
// ones.
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

// missing returns the error for a group without a command, which lists the commands.
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

// Answer makes cmd print a daemon's answer: with write, or with --json as JSON. with connects and
// calls its function with a client. prints is the help text of --json.
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

// Print makes cmd print the result of find: with write, or with --json as JSON. prints is the help
// text of --json.
func Print[T any](env *cli.Env, cmd *cobra.Command, prints string,
	find func(cmd *cobra.Command, args []string) (T, error),
	write func(w io.Writer, found T)) *cobra.Command {
	return Judge(env, cmd, prints, func(cmd *cobra.Command, args []string) (T, bool, error) {
		found, err := find(cmd, args)
		return found, true, err
	}, write)
}

// Judge is Print for a check: the exit code is 1 if find returns false.
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

// Show is Answer with a client of jaild.
func Show[T any](env *cli.Env, cmd *cobra.Command, prints string,
	ask func(ctx context.Context, c *api.Client, args []string) (T, error),
	write func(w io.Writer, answer T)) *cobra.Command {
	return Answer(env, cmd, prints, env.WithDaemon, ask, write)
}

// List makes cmd print the items that list returns: a row each below the heads, or with --json as
// JSON.
func List[T any](env *cli.Env, cmd *cobra.Command,
	list func(*api.Client, context.Context) ([]T, error), heads []string,
	row func(T) []string) *cobra.Command {
	cmd.Args = Exactly()
	return Show(env, cmd, "print a list of objects",
		func(ctx context.Context, c *api.Client, _ []string) ([]T, error) { return list(c, ctx) },
		func(w io.Writer, all []T) { output.Rows(w, heads, all, row) })
}
