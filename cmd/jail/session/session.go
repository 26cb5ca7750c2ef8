// Package session has the commands of sessions: start, exec, list and stop.
package session

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/execute"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/cmd/jail/internal/request"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/message"
)

// New returns the command jail session.
func New(env *cli.Env) *cobra.Command {
	return command.Group("session", "one workspace for several invocations", newStart(env),
		newExec(env), newList(env), newStop(env))
}

const startAbout = `Open a session: one shadow of the workspace, one /tmp and one set of limits, for as many invocations as you like, also at one time. It prints the session's
ID and outlives this command. It ends by "jail session stop ID" and when its time is up; then its shadow is reviewed as a run's is, by jail diff, jail commit and
jail discard.

When nothing has run in it for a while, and with the daemon, it falls asleep: its processes and mounts are gone, its id and its shadow stay, and the next
"jail session exec" or "start" wakes it. /tmp is empty then. A session without a shadow or with --discard, and one of an ordinary user's
daemon, ends in place of that.

With --shared-engine the WebAssembly tools of the session run in one process, each with memory and descriptors of its own. That is faster for many short
invocations, slower for long ones, and isolates them less from each other. A policy forbids it with [session] engine = "own".`

type startOptions struct {
	request     request.Flags
	idle, total time.Duration
	shared      bool
}

func newStart(env *cli.Env) *cobra.Command {
	var o startOptions
	cmd := &cobra.Command{
		Use:   "start [flags]",
		Short: "open a session and print its ID",
		Long:  startAbout,
		Example: "  ID=$(jail session start --profile build)\n  jail session exec $ID -- make\n" +
			"  jail session stop $ID",
		Args: command.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error { return runStart(cmd, env, o) },
	}
	o.request.Add(cmd, "print an object")
	cmd.Flags().DurationVar(&o.idle, "idle", message.DefaultIdle,
		"let the session sleep when nothing has run for `LONG`")
	cmd.Flags().DurationVar(&o.total, "time", message.DefaultTime,
		"end the session when it has been awake for `LONG`")
	cmd.Flags().BoolVar(&o.shared, "shared-engine", false,
		"run WebAssembly invocations in one process: faster, and less isolated from each other")
	return cmd
}

func runStart(cmd *cobra.Command, env *cli.Env, o startOptions) error {
	req, err := o.request.Settings(env, cmd)
	if err != nil {
		return err
	}
	for _, t := range []struct {
		name string
		d    time.Duration
	}{{"idle", o.idle}, {"time", o.total}} {
		if t.d < time.Second || t.d > message.MaxTime {
			return exit.Usage("",
				"--%s %v: want at least 1s and at most %v", t.name, t.d, message.MaxTime)
		}
	}
	ask := message.SessionRequest{Request: req, IdleMS: o.idle.Milliseconds(),
		TimeMS: o.total.Milliseconds(), SharedEngine: o.shared}
	ctx := cmd.Context()
	return env.WithLastingDaemon(ctx, func(c *api.Client) error {
		s, err := c.StartSession(ctx, ask)
		if err != nil {
			return err
		}
		return env.Show(o.request.JSON, s, output.Text("%s\n", s.ID))
	})
}

func newList(env *cli.Env) *cobra.Command {
	heads := []string{"ID", "UID", "AGE", "IDLE", "RUNNING", "INVOCATIONS", "PROFILE", "WORKSPACE"}
	return command.List(env, &cobra.Command{
		Use:     "list",
		Short:   "list the sessions that are open or sleep",
		Example: "  jail session list --json",
	}, (*api.Client).Sessions, heads, func(s message.SessionInfo) []string {
		idle, running := "-", strconv.Itoa(s.Running)
		if s.Running == 0 {
			idle = output.Age(s.Used)
		}
		if s.State == message.SessionSleeping {
			running = s.State
		}
		return []string{s.ID, strconv.FormatUint(uint64(s.UID), 10), output.Age(s.Started), idle,
			running, strconv.FormatInt(s.Invocations, 10), s.Profile,
			cmp.Or(workspace.Name(s.Workspace).String(), "-")}
	})
}

type stopOptions struct {
	id   string
	fate request.Fate
	json bool
}

func newStop(env *cli.Env) *cobra.Command {
	var o stopOptions
	cmd := &cobra.Command{
		Use:   "stop [flags] ID",
		Short: "end a session",
		Long: "End a session, and what still runs in it. Its shadow is then kept if something " +
			"changed, or has the fate that was asked for here or when the session was started.",
		Example: "  jail session stop 3w5e11264sg0c8v5a9b7k2m4qd\n" +
			"  jail session stop --commit 3w5e11264sg0c8v5a9b7k2m4qd",
		Args: command.Exactly("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.id = args[0]
			return runStop(cmd.Context(), env, o)
		},
	}
	cmd.Flags().BoolVar(&o.fate.Keep, "keep", false, "keep the shadow, if something changed")
	cmd.Flags().BoolVar(&o.fate.Discard, "discard", false, "delete the shadow")
	cmd.Flags().BoolVar(&o.fate.Commit, "commit", false, "commit what changed")
	command.JSON(cmd, &o.json,
		"print one result object: what all its invocations used and changed together")
	return cmd
}

func runStop(ctx context.Context, env *cli.Env, o stopOptions) error {
	fate, err := o.fate.Choose()
	if err != nil {
		return err
	}
	var res message.Result
	err = env.WithSessionDaemon(ctx, o.id, func(c *api.Client) (err error) {
		res, err = c.StopSession(ctx, o.id, message.StopRequest{Fate: fate})
		return err
	})
	if err != nil {
		return err
	}
	if o.json {
		err = env.PrintLine(res)
	} else {
		execute.Tell(env, res, false)
	}
	if res.Error != nil {
		return errors.Join(res.Error, err)
	}
	return err
}
