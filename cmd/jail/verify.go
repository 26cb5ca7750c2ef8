package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/jail/verify"
	"github.com/jail-sandbox/jail/supervisor"
	"github.com/jail-sandbox/jail/supervisor/api"
)

func (a *app) verifyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify ID",
		Short: "ask the kernel whether a live run's jail is what its plan says",
		Long: `Ask the kernel whether the jail of a live run is what its plan says: namespaces, ids, capabilities, filters, mounts, control group,
descriptors and limits. It is looked at from outside; nothing is attached to it, and nothing in it stops.
What the kernel shows to nobody is "not readable", never "ok". Exits with 0 if nothing differs, and with 1 if something does.`,
		Example: "  jail verify 3w5e11264sg0c8v5a9b7k2m4qd\n  jail verify --json 3w5e11264sg0c8v5a9b7k2m4qd",
		Args:    exactly("ID"),
	}
	asJSON := jsonFlag(cmd, "print an object")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withDaemon(cmd.Context(), func(c *api.Client) error {
			v, err := c.Verify(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if err := a.show(*asJSON, v, func(w io.Writer) error { return writeVerification(w, v) }); err != nil {
				return err
			}
			if !v.OK {
				return exitNo
			}
			return nil
		})
	}
	return cmd
}

func writeVerification(w io.Writer, v supervisor.Verification) error {
	rows := [][]string{{"ANSWER", "LAYER", "WHAT", "BY THE PLAN", "IN THE KERNEL"}}
	differ, hidden := 0, 0
	for _, f := range v.Findings {
		got := "the same"
		switch f.Answer {
		case verify.Differs:
			differ++
			got = dash(f.Got)
		case verify.Unreadable:
			hidden++
			got = "shown to nobody"
		}
		rows = append(rows, []string{string(f.Answer), f.Layer, f.What, dash(f.Want), got})
	}
	if err := table(w, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%d of %s differ, %d cannot be read\n", differ, count(len(rows)-1, "thing", "things"), hidden)
	return err
}
