package review

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/shadows"
)

const discardAbout = `Delete the shadow of a run, or with PATHs only these changes. The real directory stays as it is. A PATH with *, ? or [ is a pattern if no
change has that name. The shadow of an open session or a live run is not deleted, unless --force ends it first. With PATHs its tools still see their own
files; a discarded path is no change until a tool changes it again.

--all and --older select among your own shadows, show their number, and ask. Shadows of open sessions and live runs stay.

--force also gives up a commit that was cut off and that can be neither finished nor undone, since a directory that it changed cannot be found. Then a part of
the commit stays in the real directory, and the audit log says which.`

type discardOptions struct {
	id    string
	paths []string
	force bool
	json  bool

	// all and older choose several shadows. yes skips the question about them.
	all, yes bool
	older    string
}

func (o *discardOptions) many() bool { return o.all || o.older != "" }

// NewDiscard returns the command jail discard.
func NewDiscard(env *cli.Env) *cobra.Command {
	var o discardOptions
	cmd := &cobra.Command{
		Use:   "discard [flags] ID [PATH...] | discard --all | discard --older DURATION",
		Short: "delete the shadow of a run",
		Long:  discardAbout,
		Example: "  jail discard 3w5e11264sg0c8v5a9b7k2m4qd\n" +
			"  jail discard 3w5e11264sg0c8v5a9b7k2m4qd build '**/*.log'\n  jail discard --older 3d",
		Args: func(cmd *cobra.Command, args []string) error {
			if !o.many() {
				return command.AtLeast("ID")(cmd, args)
			}
			return command.AtMost(0)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, many := range []string{"all", "older"} {
				if err := command.Exclusive(cmd, "force", many); err != nil {
					return err
				}
			}
			if o.many() {
				return discardMany(cmd.Context(), env, o)
			}
			o.id, o.paths = args[0], args[1:]
			return runDiscard(cmd.Context(), env, o)
		},
	}
	cmd.Flags().BoolVar(&o.all, "all", false, "all of your shadows that are not in use")
	cmd.Flags().StringVar(&o.older, "older", "",
		"shadows that are at least `LONG` old, as 12h or 3d")
	cmd.Flags().BoolVarP(&o.yes, "yes", "y", false, "with --all or --older: do not ask")
	cmd.Flags().BoolVar(&o.force, "force", false,
		"end the session or run that uses the shadow, or give up a commit that was cut off")
	command.JSON(cmd, &o.json, "print an object")
	return cmd
}

// runDiscard discards one shadow, or only its changes at o.paths.
func runDiscard(ctx context.Context, env *cli.Env, o discardOptions) error {
	if len(o.paths) > 0 && o.force {
		return exit.Usage("", "--force throws a whole shadow away, and takes no PATH")
	}
	return env.WithDaemon(ctx, func(c *api.Client) error {
		if len(o.paths) > 0 {
			return discardPaths(ctx, env, c, o)
		}
		discard := c.Discard
		if o.force {
			discard = c.ForceDiscard
		}
		if err := discard(ctx, o.id); err != nil {
			return err
		}
		return env.Show(o.json, struct {
			ID        string `json:"id"`
			Discarded bool   `json:"discarded"`
		}{o.id, true}, output.Text("discarded %s\n", output.Printable(o.id)))
	})
}

// discardPaths discards the changes at o.paths of a shadow.
func discardPaths(ctx context.Context, env *cli.Env, c *api.Client, o discardOptions) error {
	var req shadows.DiscardRequest
	for _, arg := range o.paths {
		req.Paths = append(req.Paths, commitPath(arg))
	}
	d, err := c.DiscardPaths(ctx, o.id, req)
	if err != nil {
		return err
	}
	gone, left := d.Discarded, d.Left
	return env.Show(o.json, d, output.Text("discarded %s of run %s (+%d ~%d -%d), and left %d\n",
		output.Count(int(gone.Added+gone.Modified+gone.Deleted), "change", "changes"),
		output.Printable(o.id),
		gone.Added, gone.Modified, gone.Deleted, left.Added+left.Modified+left.Deleted))
}

// discarded is the JSON output of jail discard --all and --older: ids of shadows.
type discarded struct {
	Discarded []string `json:"discarded"`
	// Open are shadows that are in use and were not discarded.
	Open []string `json:"open"`
}

// discardMany discards the caller's own shadows that the flags choose, except those in use.
func discardMany(ctx context.Context, env *cli.Env, o discardOptions) error {
	least, err := parseAge(o.older)
	if err != nil {
		return err
	}
	return env.WithDaemon(ctx, func(c *api.Client) error {
		all, err := c.Workspaces(ctx)
		if err != nil {
			return err
		}
		chosen, done := chooseShadows(all, uint32(os.Getuid()), time.Now().Add(-least))
		if len(chosen) > 0 && !o.yes {
			if err := confirmDiscard(env, chosen); err != nil {
				return err
			}
		}
		for _, w := range chosen {
			if e := c.Discard(ctx, w.ID); e != nil {
				d := exit.Describe(e)
				env.Complain(d)
				err = exit.Code(d.Exit())
				continue
			}
			done.Discarded = append(done.Discarded, w.ID)
		}
		return errors.Join(err, env.Show(o.json, done, func(w io.Writer) {
			text := "discarded " + output.Count(len(done.Discarded), "shadow", "shadows")
			if n := len(done.Open); n > 0 {
				text += ", and left " + output.Count(n, "that is in use", "that are in use")
			}
			fmt.Fprintln(w, text)
		}))
	})
}

// chooseShadows returns the shadows of a user that were prepared up to a time and are not in use.
// done.Open lists those in use.
func chooseShadows(all []shadows.WorkspaceInfo, uid uint32,
	before time.Time) (chosen []shadows.WorkspaceInfo, done discarded) {
	done = discarded{Discarded: []string{}, Open: []string{}}
	for _, w := range all {
		switch {
		case w.Caller.UID != uid || w.Prepared.After(before):
		case w.State == workspace.Prepared || w.State == workspace.Active ||
			w.State == workspace.Committing:
			done.Open = append(done.Open, w.ID)
		default:
			chosen = append(chosen, w)
		}
	}
	return chosen, done
}

// confirmDiscard asks the user once about all chosen shadows. It returns an error unless the answer
// is yes. The end of the input counts as no.
func confirmDiscard(env *cli.Env, chosen []shadows.WorkspaceInfo) error {
	var bytes int64
	back := 0
	for _, w := range chosen {
		bytes += w.Disk
		if r := revertible(w); r != "-" && r != "no" {
			back++
		}
	}
	with := ""
	if back > 0 {
		with = ", with what " + output.Count(back, "commit", "commits") + " keeps for a revert"
	}
	return env.Confirm("discarded", "Discard %s (%s)%s?",
		output.Count(len(chosen), "shadow", "shadows"), output.Size(bytes), with)
}

// parseAge parses an age: a Go duration, or a number of days or weeks such as 3d. "" is 0.
func parseAge(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	for unit, length := range map[string]time.Duration{"d": 24 * time.Hour,
		"w": 7 * 24 * time.Hour} {
		if number, ok := strings.CutSuffix(text, unit); ok {
			var n int64
			if n, err = strconv.ParseInt(number, 10, 32); n > int64(100*365*24*time.Hour/length) {
				err = strconv.ErrRange
			}
			d = time.Duration(n) * length
		}
	}
	if err != nil || d < 0 {
		return 0, exit.Usage("", "--older %s: want how long ago, such as 90m, 3d or 2w", text)
	}
	return d, nil
}
