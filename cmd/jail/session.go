package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor"
	"github.com/jail-sandbox/jail/supervisor/api"
)

func (a *app) sessionCommand() *cobra.Command {
	return a.group("session", "one workspace for several invocations", a.sessionStart(), a.sessionExec(), a.sessionList(), a.sessionStop())
}

const sessionAbout = `Open a session: one shadow of the workspace, one /tmp and one set of limits, for as many invocations as you like, also at one time. It prints the session's
ID and outlives this command. It ends by "jail session stop ID", when nothing has run in it for a while, when its time is up, and with the daemon; then its
shadow is reviewed as a run's is, by jail diff, jail commit and jail discard.`

func (a *app) sessionStart() *cobra.Command {
	var f requestFlags
	cmd := &cobra.Command{
		Use:     "start [flags]",
		Short:   "open a session and print its ID",
		Long:    sessionAbout,
		Example: "  ID=$(jail session start --profile build)\n  jail session exec $ID -- make\n  jail session stop $ID",
		Args:    exactly(),
	}
	f.add(cmd, "print an object")
	idle := cmd.Flags().Duration("idle", supervisor.DefaultIdle, "end it when nothing has run for so `LONG`")
	total := cmd.Flags().Duration("time", supervisor.DefaultTime, "end it after so `LONG` in any case")
	a.completeProfiles(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		req, err := a.settings(cmd, &f)
		if err != nil {
			return err
		}
		for _, t := range []struct {
			name string
			d    time.Duration
		}{{"idle", *idle}, {"time", *total}} {
			if t.d < time.Second || t.d > supervisor.MaxTime {
				return usage("", "--%s %v: want at least 1s and at most %v", t.name, t.d, supervisor.MaxTime)
			}
		}
		ask := supervisor.SessionRequest{Request: req, IdleMS: idle.Milliseconds(), TimeMS: total.Milliseconds()}
		return a.withLastingDaemon(cmd.Context(), func(c *api.Client) error {
			s, err := c.StartSession(cmd.Context(), ask)
			if err != nil {
				return err
			}
			return a.show(f.json, s, func(w io.Writer) error {
				_, err := fmt.Fprintln(w, s.ID)
				return err
			})
		})
	}
	return cmd
}

func (a *app) sessionList() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "list the sessions that are open", Example: "  jail session list --json", Args: exactly()}
	asJSON := jsonFlag(cmd, "print a list of objects")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.withDaemon(cmd.Context(), func(c *api.Client) error {
			all, err := c.Sessions(cmd.Context())
			if err != nil {
				return err
			}
			return a.show(*asJSON, all, func(w io.Writer) error { return writeSessions(w, all) })
		})
	}
	return cmd
}

func writeSessions(w io.Writer, all []supervisor.SessionInfo) error {
	rows := [][]string{{"ID", "UID", "AGE", "IDLE", "RUNNING", "INVOCATIONS", "PROFILE", "WORKSPACE"}}
	for _, s := range all {
		idle := "-"
		if s.Running == 0 {
			idle = age(s.Used)
		}
		rows = append(rows, []string{s.ID, strconv.FormatUint(uint64(s.UID), 10), age(s.Started), idle, strconv.Itoa(s.Running),
			strconv.FormatInt(s.Invocations, 10), s.Profile, dash(workspace.Name(s.Workspace).String())})
	}
	return table(w, rows)
}

func (a *app) sessionStop() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "stop [flags] ID",
		Short:   "end a session",
		Long:    "End a session, and what still runs in it. Its shadow is then kept if something changed, or has the fate that was asked for here or when the session was started.",
		Example: "  jail session stop 3w5e11264sg0c8v5a9b7k2m4qd\n  jail session stop --commit 3w5e11264sg0c8v5a9b7k2m4qd",
		Args:    exactly("ID"),
	}
	var keep, discard, commit bool
	cmd.Flags().BoolVar(&keep, "keep", false, "keep the shadow, if something changed")
	cmd.Flags().BoolVar(&discard, "discard", false, "throw the shadow away")
	cmd.Flags().BoolVar(&commit, "commit", false, "commit what changed")
	asJSON := jsonFlag(cmd, "print one result object: what all its invocations used and changed together")
	a.completeSessions(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var req supervisor.Request
		if err := checkExclusive(&requestFlags{workspace: ".", keep: keep, discard: discard, commit: commit}, &req); err != nil {
			return err
		}
		var res supervisor.Result
		err := a.withDaemon(cmd.Context(), func(c *api.Client) (err error) {
			res, err = c.StopSession(cmd.Context(), args[0], supervisor.StopRequest{Fate: req.Fate})
			return err
		})
		if err != nil {
			return err
		}
		if *asJSON {
			err = a.print(func(w io.Writer) error { return writeJSON(w, res, "") })
		} else {
			a.tell(res)
		}
		if res.Error != nil {
			return errors.Join(res.Error, err)
		}
		return err
	}
	return cmd
}

// completeSessions completes the first argument with the ids of open sessions, where a daemon for all answers.
func (a *app) completeSessions(cmd *cobra.Command) {
	a.completeFirst(cmd, func() []string {
		c, err := api.Dial(cmd.Context(), a.config.Socket)
		if err != nil {
			return nil // completion has no place for errors
		}
		defer c.Close()
		all, err := c.Sessions(cmd.Context())
		if err != nil {
			return nil
		}
		var ids []string
		for _, s := range all {
			ids = append(ids, s.ID+"\t"+s.Profile+" "+workspace.Name(s.Workspace).String())
		}
		return ids
	})
}
