// Package complete completes IDs, names and limits for shells.
package complete

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/profiles"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/approvals"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/bundle"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/shadows"
)

// Profiles returns the names of the profiles of the host. It returns none if they cannot be read, as
// the other functions here do: completion has no place for an error.
func Profiles(env *cli.Env) []string {
	set, err := profiles.Load(env.Config.Profiles)
	if err != nil {
		return nil
	}
	var names []string
	for _, p := range set.List() {
		if !p.Fragment {
			names = append(names, p.Name+"\t"+p.About)
		}
	}
	return names
}

// Tools are the commands of the bundles.
func Tools(env *cli.Env) (names []string) {
	for _, b := range bundles(env) {
		for _, c := range b.Commands() {
			names = append(names, c.Name+"\t"+c.About)
		}
	}
	return names
}

// Bundles are the bundles that are installed.
func Bundles(env *cli.Env) (names []string) {
	for _, b := range bundles(env) {
		names = append(names, b.Name+"\t"+b.About)
	}
	return names
}

func bundles(env *cli.Env) []*bundle.Bundle {
	set, err := bundle.OpenPlaces(env.Config.Places(), false)
	if err != nil {
		return nil
	}
	return set.List()
}

// Tool completes the name of a tool. What follows it are its own arguments: files, mostly.
func Tool(env *cli.Env) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return Tools(env), cobra.ShellCompDirectiveDefault
	}
}

// All gives every command the completion of what its flags and its first argument name, so
// that a new command has it by the names of these alone.
func All(env *cli.Env, cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		All(env, sub)
	}
	if ids := idsOf(cmd); ids != nil && cmd.ValidArgsFunction == nil {
		completeFirst(cmd, cobra.ShellCompDirectiveNoFileComp,
			func(ctx context.Context) []string { return ids(ctx, env) })
	}
	for name, values := range map[string]func(context.Context, *cli.Env) []string{
		"profile": func(_ context.Context, env *cli.Env) []string { return Profiles(env) },
		"limit":   func(context.Context, *cli.Env) []string { return limitKeys() },
		"type":    func(context.Context, *cli.Env) []string { return typeNames() },
		"run":     runIDs,
		"session": sessionIDs,
	} {
		flag := cmd.Flags().Lookup(name)
		if flag == nil || flag.Value.Type() == "bool" {
			continue
		}
		directive := cobra.ShellCompDirectiveNoFileComp
		if name == "limit" {
			// The value follows without a space.
			directive |= cobra.ShellCompDirectiveNoSpace
		}
		// The only error is that the command completes the flag already.
		_ = cmd.RegisterFlagCompletionFunc(name, func(cmd *cobra.Command, _ []string,
			_ string) ([]string, cobra.ShellCompDirective) {
			return values(cmd.Context(), env), directive
		})
	}
	for _, name := range []string{"workspace", "cwd", "log"} {
		if cmd.Flags().Lookup(name) != nil {
			// The error says only that the command has no such flag, which it has.
			_ = cmd.MarkFlagDirname(name)
		}
	}
}

// idsOf returns what the first argument of a command that takes an ID names; nil for other
// commands.
func idsOf(cmd *cobra.Command) func(context.Context, *cli.Env) []string {
	if !slices.ContainsFunc(strings.Fields(cmd.Use), func(word string) bool {
		return word == "ID" || word == "ID..." || word == "[ID" || word == "[ID]"
	}) {
		return nil
	}
	switch strings.TrimPrefix(cmd.CommandPath(), "jail ") {
	case "diff", "commit", "discard", "revert":
		return workspaceIDs
	case "approvals show", "approvals approve", "approvals reject", "approvals revert":
		return actionIDs
	case "approvals revoke":
		return grantIDs
	case "branch merge", "branch revert", "branch discard":
		return branchIDs
	case "branch fork":
		return workspaceIDs
	case "session exec", "session stop":
		return sessionIDs
	}
	return runIDs
}

// limitKeys are the beginnings of --limit KEY=VALUE.
func limitKeys() (keys []string) {
	for _, name := range policy.LimitNames() {
		keys = append(keys, name+"=")
	}
	return keys
}

func typeNames() (names []string) {
	for _, t := range audit.Types() {
		names = append(names, string(t))
	}
	return names
}

// The ids of runs, sessions and shadows come from a daemon that answers. Completion starts none:
// that would be slow, and on record. Without one they are the names in the state directory, where
// it may be read.

func runIDs(ctx context.Context, env *cli.Env) []string {
	return ids(ctx, env, "runs", (*api.Client).Runs, func(r message.RunInfo) string {
		return described(r.ID, r.Tool, r.Workspace)
	})
}

func workspaceIDs(ctx context.Context, env *cli.Env) []string {
	return ids(ctx, env, "workspaces", (*api.Client).Workspaces,
		func(w shadows.WorkspaceInfo) string { return described(w.ID, w.Tool, string(w.Path)) })
}

func sessionIDs(ctx context.Context, env *cli.Env) []string {
	return ids(ctx, env, "", (*api.Client).Sessions, func(s message.SessionInfo) string {
		return described(s.ID, s.Profile, s.Workspace)
	})
}

func branchIDs(ctx context.Context, env *cli.Env) []string {
	return ids(ctx, env, "", func(c *api.Client, ctx context.Context) ([]shadows.BranchInfo, error) {
		return api.BranchesOf(c).List(ctx)
	}, func(b shadows.BranchInfo) string {
		return described(b.ID, "of "+b.Parent, b.Workspace)
	})
}

func actionIDs(ctx context.Context, env *cli.Env) []string {
	list := func(c *api.Client, ctx context.Context) ([]approvals.Action, error) {
		return c.Approvals().List(ctx, false)
	}
	return ids(ctx, env, "", list, func(a approvals.Action) string {
		return a.ID + "\t" + output.Printable(a.Summary)
	})
}

func grantIDs(ctx context.Context, env *cli.Env) []string {
	list := func(c *api.Client, ctx context.Context) ([]approvals.Grant, error) {
		return c.Approvals().Grants(ctx)
	}
	return ids(ctx, env, "", list, func(g approvals.Grant) string {
		// The directory is escaped already.
		return g.ID + "\t" + output.Printable(g.Scope) + " " + g.Directory
	})
}

// described is an id with what a shell shows beside it.
func described(id, what, dir string) string {
	return id + "\t" + output.Printable(what) + " " + workspace.Name(dir).String()
}

func ids[T any](ctx context.Context, env *cli.Env, store string,
	list func(*api.Client, context.Context) ([]T, error), describe func(T) string) (ids []string) {
	if c, err := api.Dial(ctx, env.Config.Socket); err == nil {
		defer c.Close()
		if all, err := list(c, ctx); err == nil {
			for _, v := range all {
				ids = append(ids, describe(v))
			}
			return ids
		}
	}
	if store == "" {
		return nil
	}
	entries, err := os.ReadDir(filepath.Join(env.Config.StateDir, store))
	if err != nil {
		// Completion has no place for errors.
		return nil
	}
	for _, e := range entries {
		if _, err := jail.ParseID(e.Name()); err == nil && e.IsDir() {
			ids = append(ids, e.Name())
		}
	}
	return ids
}

// First completes the first argument of a command with names, or files.
func First(env *cli.Env, cmd *cobra.Command, names func(*cli.Env) []string) {
	completeFirst(cmd, cobra.ShellCompDirectiveDefault,
		func(context.Context) []string { return names(env) })
}

func completeFirst(cmd *cobra.Command, directive cobra.ShellCompDirective,
	values func(context.Context) []string) {
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]string,
		cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return values(cmd.Context()), directive
	}
}
