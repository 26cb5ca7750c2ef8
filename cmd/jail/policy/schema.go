package policy

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/policy/syntax"
)

func newSchema(env *cli.Env) *cobra.Command {
	var keys, asJSON bool
	cmd := &cobra.Command{
		Use:   "schema [--keys]",
		Short: "print the JSON Schema of policy files, for editors",
		Long: `Print the JSON Schema of policy files, with which editors complete keys and mark
mistakes; jail policy check finds the rest. --keys prints each key and its meaning.`,
		Example: "  jail policy schema > policy.schema.json\n  jail policy schema --keys",
		Args:    command.Exactly(),
		RunE:    func(_ *cobra.Command, _ []string) error { return runSchema(env, keys, asJSON) },
	}
	cmd.Flags().BoolVar(&keys, "keys", false, "list the keys, with examples and what they mean")
	command.JSON(cmd, &asJSON, "print the keys as a list of objects; the schema is JSON already")
	return cmd
}

func runSchema(env *cli.Env, keys, asJSON bool) error {
	if !keys {
		return env.Print(func(w io.Writer) {
			w.Write(syntax.Schema())
		})
	}
	rows := [][]string{{"KEY", "EXAMPLE", "MEANING"}}
	for _, k := range syntax.Keys() {
		rows = append(rows, []string{k.Path, k.Example, k.About})
	}
	return env.Show(asJSON, syntax.Keys(), func(w io.Writer) { output.Table(w, rows) })
}
