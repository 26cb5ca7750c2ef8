package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

func (a *app) toolLibsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "libs PROGRAM...",
		Short: "print the policy lines that grant programs of the host, with their interpreters and libraries",
		Long: "Looks into programs of this host, without running them, for their loaders, libraries and interpreters, and prints the lines of a policy that\n" +
			"grant these files and no others. What a program opens by itself (modules, data, plug-ins) cannot be seen in it: grant its directory too.",
		Example: "  jail tool libs /usr/bin/jq >> jq.toml",
		Args:    atLeast("PROGRAM"),
	}
	asJSON := jsonFlag(cmd, "print an object: programs, files, missing")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		found, err := findLibraries(os.Getenv("PATH"), args)
		if err != nil {
			return notFound("name a program by its path, or by a name on PATH", "%v", err)
		}
		if *asJSON {
			return a.printJSON(found)
		}
		for _, m := range found.Missing {
			say(a.stderr, "warning", fmt.Sprintf("%s needs %s, which is not on this host", m.By, m.Name))
		}
		_, err = fmt.Fprint(a.stdout, found.policy())
		return err
	}
	return cmd
}
