package service

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/jail/verify"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/client"
	"github.com/jail-sandbox/jail/supervisor/live"
	"github.com/jail-sandbox/jail/supervisor/rundir"
)

// NewVerify returns the command jail verify.
func NewVerify(env *cli.Env) *cobra.Command {
	return command.Judge(env, &cobra.Command{
		Use:   "verify ID",
		Short: "compare the jail of a live run with its plan, by what the kernel reports",
		Long: `Ask the kernel whether the jail of a live run is what its plan says: namespaces,
ids, capabilities, filters, mounts, control group, descriptors and limits. It is looked at from
outside; nothing is attached to it, and nothing in it stops. What the kernel shows to nobody is
"not readable", never "ok". Exits with 0 if nothing differs, and with 1 if something does.`,
		Example: "  jail verify 3w5e11264sg0c8v5a9b7k2m4qd\n" +
			"  jail verify --json 3w5e11264sg0c8v5a9b7k2m4qd",
		Args: command.Exactly("ID"),
	}, "print an object",
		func(cmd *cobra.Command, args []string) (rundir.Verification, bool, error) {
			v, err := verification(cmd.Context(), env, args[0])
			return v, v.OK, err
		}, writeVerification)
}

// verification returns the daemon's comparison of a run with its plan. An ordinary user without a
// daemon makes it in this process, since a new private daemon could not look into the jail of
// another.
func verification(ctx context.Context, env *cli.Env, id string) (v rundir.Verification, err error) {
	if os.Geteuid() != 0 {
		c, err := api.Dial(ctx, env.Config.Socket)
		if client.NobodyListens(err) {
			return live.VerifyOwn(env.Config, id)
		}
		if err == nil {
			c.Close()
		}
	}
	err = env.WithDaemon(ctx, func(c *api.Client) error {
		v, err = c.Verify(ctx, id)
		return err
	})
	return v, err
}

func writeVerification(w io.Writer, v rundir.Verification) {
	rows := [][]string{{"ANSWER", "LAYER", "WHAT", "BY THE PLAN", "IN THE KERNEL"}}
	differ, hidden := 0, 0
	for _, f := range v.Findings {
		got := "the same"
		switch f.Answer {
		case verify.Differs:
			differ++
			got = cmp.Or(f.Got, "-")
		case verify.Unreadable:
			hidden++
			got = "shown to nobody"
		}
		rows = append(rows, []string{string(f.Answer), f.Layer, f.What, cmp.Or(f.Want, "-"), got})
	}
	output.Table(w, rows)
	fmt.Fprintf(w, "\n%d of %s differ, %d cannot be read\n", differ,
		output.Count(len(rows)-1, "thing", "things"), hidden)
}
