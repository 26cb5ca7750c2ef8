package review

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/cmd/jail/internal/terminal"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/approvals"
)

const approvalsAbout = `List the actions that wait for an approval, show one, and decide on it. An action waits where [[approve]] of its policy says mode = "ask", or where it was
proposed by jail commit --propose. It waits for seven days, also when the run has ended and over restarts of the daemon.

An approval holds for exactly what is shown. If the shadow or the directory has changed by then, the action is stale, and nothing is written.`

// NewApprovals returns the command jail approvals.
func NewApprovals(env *cli.Env) *cobra.Command {
	cmd := newApprovalList(env, "approvals")
	cmd.Short = "list the actions that wait for an approval, and decide on them"
	cmd.Long, cmd.Args = approvalsAbout, command.NoSuch
	cmd.Example = "  jail approvals\n  jail approvals show ID\n  jail approvals approve ID\n  jail approvals approve --scope session ID"
	cmd.AddCommand(newApprovalList(env, "list"), newApprovalShow(env), newApprove(env),
		newReject(env), newApprovalRevert(env), newSettle(env), newGrants(env), newRevoke(env))
	return cmd
}

func newApprovalList(env *cli.Env, name string) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:     name + " [flags]",
		Short:   "list the actions that wait for an approval",
		Example: "  jail approvals list --all",
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "list also the last actions that are over")
	return command.List(env, cmd,
		func(c *api.Client, ctx context.Context) ([]approvals.Action, error) {
			return c.Approvals().List(ctx, all)
		}, []string{"ID", "STATE", "AGE", "TYPE", "RUN", "WHAT"}, func(a approvals.Action) []string {
			return []string{a.ID, string(a.State), output.Age(a.Proposed), a.Type,
				cmp.Or(a.Run, "-"), a.Summary}
		})
}

// actionCommand completes cmd to a command with the argument ID. It calls ask with the ID and shows
// the action that ask returns.
func actionCommand(env *cli.Env, cmd *cobra.Command,
	ask func(context.Context, *api.Client, string) (approvals.Action, error)) *cobra.Command {
	cmd.Args = command.Exactly("ID")
	return command.Show(env, cmd, "print an object",
		func(ctx context.Context, c *api.Client, args []string) (approvals.Action, error) {
			return ask(ctx, c, args[0])
		}, func(w io.Writer, a approvals.Action) { writeAction(w, env.Colour(), a) })
}

func newApprovalShow(env *cli.Env) *cobra.Command {
	return actionCommand(env, &cobra.Command{
		Use:     "show [flags] ID",
		Short:   "show one action",
		Example: "  jail approvals show 3w5e11264sg0c8v5a9b7k2m4qd",
	}, func(ctx context.Context, c *api.Client, id string) (approvals.Action, error) {
		return c.Approvals().Get(ctx, id)
	})
}

func newApprove(env *cli.Env) *cobra.Command {
	var scope, digest string
	cmd := actionCommand(env, &cobra.Command{
		Use:   "approve [flags] ID",
		Short: "approve an action, which is then carried out",
		Long: `Approve an action. A commit is made at once, with the rights of its owner. A fetch
goes on if it waits; else the next one that is the same passes once. So does the start of a tool;
in a session the tool then starts again with any arguments, unless the scope is "once".

--scope makes a grant, so that actions like this one need no decision: "session" for those of the
same run or session, "until=TIME" for some time (8h, or a time such as 2026-12-24T18:00:00Z),
"uses=N" for N actions, this one included. A grant for commits is for one directory, and never for
protected names; one for fetches is for one method and one URL without its query, one for tools is
for one program with its digest.`,
		Example: "  jail approvals approve 3w5e11264sg0c8v5a9b7k2m4qd\n  jail approvals approve --scope until=8h 3w5e11264sg0c8v5a9b7k2m4qd",
	}, func(ctx context.Context, c *api.Client, id string) (approvals.Action, error) {
		return decide(ctx, c, id, digest, approvals.DecideRequest{Decision: "approve", Scope: scope})
	})
	cmd.Flags().StringVar(&scope, "scope", "", "once, session, until=TIME or uses=N")
	addDigest(cmd, &digest)
	return cmd
}

func newReject(env *cli.Env) *cobra.Command {
	var digest string
	cmd := actionCommand(env, &cobra.Command{
		Use:     "reject [flags] ID",
		Short:   "reject an action",
		Example: "  jail approvals reject 3w5e11264sg0c8v5a9b7k2m4qd",
	}, func(ctx context.Context, c *api.Client, id string) (approvals.Action, error) {
		return decide(ctx, c, id, digest, approvals.DecideRequest{Decision: "reject"})
	})
	addDigest(cmd, &digest)
	return cmd
}

func addDigest(cmd *cobra.Command, digest *string) {
	cmd.Flags().StringVar(digest, "sha256", "",
		"decide only if the action has this `DIGEST` of jail approvals show")
}

// decide sends a decision about an action. If the action does not have the digest any more, it
// fails. An empty digest stands for the action's present one.
func decide(ctx context.Context, c *api.Client, id, digest string,
	req approvals.DecideRequest) (approvals.Action, error) {
	if req.SHA256 = digest; digest == "" {
		a, err := c.Approvals().Get(ctx, id)
		if err != nil {
			return a, err
		}
		req.SHA256 = a.SHA256
	}
	req.Via = "cli"
	return c.Approvals().Decide(ctx, id, req)
}

func newApprovalRevert(env *cli.Env) *cobra.Command {
	return actionCommand(env, &cobra.Command{
		Use:     "revert [flags] ID",
		Short:   "undo an action that was carried out",
		Example: "  jail approvals revert 3w5e11264sg0c8v5a9b7k2m4qd",
	}, func(ctx context.Context, c *api.Client, id string) (approvals.Action, error) {
		return c.Approvals().Revert(ctx, id)
	})
}

func newSettle(env *cli.Env) *cobra.Command {
	var digest string
	cmd := &cobra.Command{
		Use:   "settle [flags] ID applied|failed|reverted",
		Short: "say how an action ended whose proposer is gone",
		Long: `Say how an action ended that its proposer has claimed and that no report came for,
because that process was killed. Nothing is done: look first whether the action was done, and say
"applied" or "failed". Of an action that is to be undone, say "reverted" if it was undone, and
"failed" if it stands. jail never does such an action a second time.

While the process lives that has claimed the action, it alone says how the action ends.`,
		Example: "  jail approvals settle 3w5e11264sg0c8v5a9b7k2m4qd failed",
		Args: func(cmd *cobra.Command, args []string) error {
			err := command.Exactly("ID", "STATE")(cmd, args)
			if err == nil && !slices.Contains([]approvals.State{approvals.Applied, approvals.Failed,
				approvals.Reverted}, approvals.State(args[1])) {
				err = exit.Usage("", "%s: STATE %.80q: want applied, failed or reverted",
					cmd.CommandPath(), args[1])
			}
			return err
		},
	}
	addDigest(cmd, &digest)
	return command.Show(env, cmd, "print an object",
		func(ctx context.Context, c *api.Client, args []string) (approvals.Action, error) {
			req := approvals.SettleRequest{SHA256: digest, State: approvals.State(args[1]), Via: "cli"}
			if digest == "" {
				a, err := c.Approvals().Get(ctx, args[0])
				if err != nil {
					return a, err
				}
				req.SHA256 = a.SHA256
			}
			return c.Approvals().Settle(ctx, args[0], req)
		}, func(w io.Writer, a approvals.Action) { writeAction(w, env.Colour(), a) })
}

// writeAction shows an action. The proposer's own words come last, marked as such.
func writeAction(w io.Writer, colour bool, a approvals.Action) {
	rows := [][2]string{{"id", a.ID}, {"state", string(a.State)}, {"type", a.Type},
		{"what", a.Summary}, {"run", a.Run}, {"owner", strconv.FormatUint(uint64(a.UID), 10)},
		{"proposed", a.Proposed.Local().Format(time.DateTime)}}
	if a.Commit != nil {
		rows = append(rows, [2]string{"changes", a.Commit.Request.Digest})
	}
	if f := a.Fetch; f != nil {
		rows = append(rows, [2]string{"url", f.URL}, [2]string{"body", f.Body},
			[2]string{"note", "other headers of the request are not part of the approval"})
	}
	if t := a.Tool; t != nil {
		rows = append(rows, [2]string{"program", t.Digest}, [2]string{"input", t.Input})
	}
	rows = append(rows, externalRows(a)...)
	if d := a.Decision; d != nil {
		rows = append(rows, [2]string{"decided", fmt.Sprintf("%s by uid %d, via %s %s",
			d.Time.Local().Format(time.DateTime), d.UID, d.Via, d.Scope)}, [2]string{"grant", d.Grant})
	} else if a.State == approvals.Pending {
		rows = append(rows, [2]string{"expires", a.Expires.Local().Format(time.DateTime)})
	}
	rows = append(rows, [2]string{"outcome", a.Outcome}, [2]string{"error", a.Error},
		[2]string{"sha256", a.SHA256})
	if c := a.Claim; c != nil {
		text := fmt.Sprintf("%s by process %d of uid %d %s", c.Time.Local().Format(time.DateTime), c.PID,
			c.UID, c.Exe)
		rows = append(rows, [2]string{"claimed", text})
		if c.Lost {
			rows = append(rows, [2]string{"note", "that process has ended and has not said whether it " +
				"was done; look, then: jail approvals settle " + a.ID + " applied|failed"})
		}
	}
	if !a.Reversible && !a.State.Over() {
		rows = append(rows, [2]string{"note", "it cannot be reverted"})
	}
	for _, r := range rows {
		if r[1] == "" {
			continue
		}
		fmt.Fprintf(w, "%-10s %s\n", r[0]+":", output.Printable(r[1]))
	}
	if a.Words == "" {
		return
	}
	fmt.Fprintf(w, "%s %s\n", terminal.Paint(colour, terminal.Amber,
		"the proposer says, and it may be wrong:"), output.Printable(a.Words))
}

// externalRows returns the rows, name and value, of an action that its proposer carries out itself.
func externalRows(a approvals.Action) (rows [][2]string) {
	rows = append(rows, [2]string{"agent", a.Agent})
	if g := a.Gate; g != nil {
		rows = append(rows, [2]string{"resource", g.Resource}, [2]string{"args", g.Args})
	}
	if p := a.Push; p != nil {
		rows = append(rows, [2]string{"remote", p.Remote}, [2]string{"ref", p.Ref},
			[2]string{"commit", p.Commit}, [2]string{"was", p.Was},
			[2]string{"credential", p.Credential})
	}
	if r := a.PullRequest; r != nil {
		rows = append(rows, [2]string{"repository", r.Repository},
			[2]string{"merges", r.Head + " into " + r.Base}, [2]string{"commit", r.Commit},
			[2]string{"credential", r.Credential}, [2]string{"title", r.Title},
			[2]string{"text", r.Body})
	}
	if d := a.Undo; d != nil {
		rows = append(rows, [2]string{"undo", fmt.Sprintf("%s by uid %d",
			d.Time.Local().Format(time.DateTime), d.UID)})
	}
	return rows
}

func newGrants(env *cli.Env) *cobra.Command {
	heads := []string{"ID", "TYPE", "SCOPE", "LEFT", "UNTIL", "RUN", "FOR"}
	return command.List(env, &cobra.Command{
		Use:     "grants",
		Short:   "list the grants",
		Example: "  jail approvals grants",
	}, func(c *api.Client, ctx context.Context) ([]approvals.Grant, error) {
		return c.Approvals().Grants(ctx)
	}, heads, func(g approvals.Grant) []string {
		left, until := "-", "-"
		if g.Uses > 0 {
			left = strconv.Itoa(g.Uses)
		}
		if !g.Until.IsZero() {
			until = g.Until.Local().Format(time.DateTime)
		}
		return []string{g.ID, g.Type, g.Scope, left, until, cmp.Or(g.Run, "-"),
			output.Printable(cmp.Or(g.Directory, grantedFetch(g), g.Tool, g.Target,
				grantedPolicy(g), "-"))}
	})
}

// grantedPolicy describes a grant that widens policies; "" for another grant.
func grantedPolicy(g approvals.Grant) string {
	if g.Widens == nil {
		return ""
	}
	return g.Widens.String()
}

// grantedFetch describes the fetches that a grant allows; "" for another grant.
func grantedFetch(g approvals.Grant) string {
	text := strings.TrimSpace(g.Kind + " " + g.Method + " " + g.URL)
	if g.Credential != "" {
		text += " with the credential " + g.Credential
	}
	return text
}

func newRevoke(env *cli.Env) *cobra.Command {
	return command.Show(env, &cobra.Command{
		Use:     "revoke [flags] ID",
		Short:   "end a grant",
		Example: "  jail approvals revoke 3w5e11264sg0c8v5a9b7k2m4qd",
		Args:    command.Exactly("ID"),
	}, "print an object",
		func(ctx context.Context, c *api.Client, args []string) (approvals.Grant, error) {
			return c.Approvals().Revoke(ctx, args[0])
		}, func(w io.Writer, g approvals.Grant) {
			fmt.Fprintf(w, "revoked %s\n", g.ID)
		})
}

func propose(ctx context.Context, env *cli.Env, c *api.Client, o commitOptions) error {
	a, err := c.Approvals().Propose(ctx, api.ProposeRequest{Type: "workspace.commit", Run: o.id,
		Commit: &o.request, Words: o.words})
	if err != nil {
		return err
	}
	if err := env.Show(o.json, a, output.Text("%s\n", a.ID)); err != nil || o.json {
		return err
	}
	if a.State == approvals.Pending {
		output.Say(env.Stderr, "hint", "jail approvals show "+a.ID+" shows it; jail approvals approve "+
			a.ID+" approves it")
	}
	return nil
}
