package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/profiles"
	"github.com/jail-sandbox/jail/supervisor/bundle"
)

func (a *app) completionCommand() *cobra.Command {
	shells := map[string]func(*cobra.Command, io.Writer) error{
		"bash": func(root *cobra.Command, w io.Writer) error { return root.GenBashCompletionV2(w, true) },
		"zsh":  func(root *cobra.Command, w io.Writer) error { return root.GenZshCompletion(w) },
		"fish": func(root *cobra.Command, w io.Writer) error { return root.GenFishCompletion(w, true) },
	}
	return &cobra.Command{
		Use:       "completion bash|zsh|fish",
		Short:     "print completions for a shell",
		Example:   "  source <(jail completion bash)\n  jail completion zsh > \"${fpath[1]}/_jail\"",
		Args:      exactly("the shell"),
		ValidArgs: []string{"bash", "zsh", "fish"},
		RunE: func(cmd *cobra.Command, args []string) error {
			generate, ok := shells[args[0]]
			if !ok {
				return usage("", "no completions for shell %q: there are bash, zsh and fish", args[0])
			}
			return a.print(func(w io.Writer) error { return generate(cmd.Root(), w) })
		},
	}
}

// profileNames and toolNames are for completion, where an error has no place to be shown.
func (a *app) profileNames() []string {
	set, err := profiles.Load(a.config.Profiles)
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

func (a *app) toolNames() []string {
	set, err := bundle.OpenPlaces(a.config.Places(), false)
	if err != nil {
		return nil
	}
	var names []string
	for _, b := range set.List() {
		for _, c := range b.Commands() {
			names = append(names, c.Name+"\t"+c.About)
		}
	}
	return names
}

func (a *app) completeTools(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault // the tool's own arguments: files, mostly
	}
	return a.toolNames(), cobra.ShellCompDirectiveDefault
}

func (a *app) completeProfiles(cmd *cobra.Command) {
	err := cmd.RegisterFlagCompletionFunc("profile", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return a.profileNames(), cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic("bug: " + err.Error()) // the flag is there: requestFlags.add made it
	}
}

// completeFirst completes the first argument of a command with names, or files.
func (a *app) completeFirst(cmd *cobra.Command, names func() []string) {
	cmd.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return names(), cobra.ShellCompDirectiveDefault
	}
}
