package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/policy/syntax"
)

func (a *app) policySchemaCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "schema [--keys]",
		Short: "print the JSON Schema of policy files, for editors",
		Long: `Print the JSON Schema of policy files. An editor that knows it completes keys and marks mistakes while they are made; jail policy check finds the
rest. With --keys, each key with what it means.`,
		Example: "  jail policy schema > policy.schema.json\n  jail policy schema --keys",
		Args:    exactly(),
	}
	keys := cmd.Flags().Bool("keys", false, "list the keys, with examples and what they mean")
	asJSON := jsonFlag(cmd, "print the keys as a list of objects; the schema is JSON already")
	cmd.RunE = func(*cobra.Command, []string) error {
		if !*keys {
			return a.print(func(w io.Writer) error {
				_, err := w.Write(syntax.Schema())
				return err
			})
		}
		rows := [][]string{{"KEY", "EXAMPLE", "MEANING"}}
		type keyView struct {
			Key     string `json:"key"`
			Example string `json:"example"`
			About   string `json:"about"`
		}
		views := []keyView{}
		for _, k := range syntax.Keys() {
			rows = append(rows, []string{k.Path, k.Type, k.About})
			views = append(views, keyView{k.Path, k.Type, k.About})
		}
		return a.show(*asJSON, views, func(w io.Writer) error { return table(w, rows) })
	}
	return cmd
}
