package service

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
)

// NewCompletion returns the command jail completion.
func NewCompletion(env *cli.Env) *cobra.Command {
	shells := map[string]func(*cobra.Command, io.Writer) error{
		"bash": func(root *cobra.Command, w io.Writer) error {
			return root.GenBashCompletionV2(w, true)
		},
		"zsh": func(root *cobra.Command, w io.Writer) error { return root.GenZshCompletion(w) },
		"fish": func(root *cobra.Command, w io.Writer) error {
			return root.GenFishCompletion(w, true)
		},
	}
	return &cobra.Command{
		Use:       "completion bash|zsh|fish",
		Short:     "print completions for a shell",
		Example:   "  source <(jail completion bash)\n  jail completion zsh > \"${fpath[1]}/_jail\"",
		Args:      command.Exactly("the shell"),
		ValidArgs: []string{"bash", "zsh", "fish"},
		RunE: func(cmd *cobra.Command, args []string) error {
			generate, ok := shells[args[0]]
			if !ok {
				return exit.Usage("",
					"no completions for shell %.80q: there are bash, zsh and fish", args[0])
			}
			return env.Stream(func(w io.Writer) error { return generate(cmd.Root(), w) })
		},
	}
}
