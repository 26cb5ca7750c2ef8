package problem

import (
	"errors"
	"flag"
	"fmt"
)

// Flags parses the command line of a daemon, which has only flags. It returns flag.ErrHelp for
// --help, and an Error with the code Usage for an unknown flag, an argument, or a flag with an
// empty value.
func Flags(flags *flag.FlagSet, args []string) error {
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return err
	}
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("argument %q: there are only flags", flags.Arg(0))
	}
	flags.Visit(func(f *flag.Flag) {
		if err == nil && f.Value.String() == "" {
			err = fmt.Errorf("--%s: the value is empty", f.Name)
		}
	})
	if err == nil {
		return nil
	}
	return New(Usage, "%w", err).WithHint(flags.Name() + " --help")
}
