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

// Profiles returns the names of the host's profiles, each with its description after a tab. Like
// all functions here it returns none on an error, which completion cannot show.
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

// Tools returns the commands of the bundles, with descriptions.
func Tools(env *cli.Env) (names []string) {
	for _, b := range bundles(env) {
		for _, c := range b.Commands() {
			names = append(names, c.Name+"\t"+c.About)
		}
	}
	return names
}

// Bundles returns the installed bundles, with descriptions.
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

// Tool completes the name of a tool. Its arguments are completed as files.
func Tool(env *cli.Env) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return Tools(env), cobra.ShellCompDirectiveDefault
	}
}

// All adds completion to all commands, by the names of their flags and first arguments, so that new
// commands get it too.
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
		// The only error means that the command completes the flag itself.
		_ = cmd.RegisterFlagCompletionFunc(name, func(cmd *cobra.Command, _ []string,
			_ string) ([]string, cobra.ShellCompDirective) {
			return values(cmd.Context(), env), directive
		})
	}
	for _, name := range []string{"workspace", "cwd", "log"} {
		if cmd.Flags().Lookup(name) != nil {
			// The only error would mean that the flag is missing.
			_ = cmd.MarkFlagDirname(name)
		}
	}
}

// idsOf returns the function that lists the ids for a command's first argument; nil if that is no
// ID.
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

// limitKeys returns the prefixes KEY= for --limit.
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

// The ids come from a running daemon. Completion starts none, which would be slow and recorded.
// Without one they are names in the state directory, if it is readable.

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

// described returns an id and its description, separated by a tab.
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
		// Completion cannot show errors.
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
