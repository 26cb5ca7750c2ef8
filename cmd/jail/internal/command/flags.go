// Package command has what the declarations of jail's commands share: checks of arguments,
// groups, and common flags.
package command

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/jail/id"
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
