package main

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// What each command says of itself is held by a golden file, so that a change of it is seen:
// scripts and documents rely on it.
func TestHelp(t *testing.T) {
	var all bytes.Buffer
	env := &cli.Env{Stdout: &all}
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		all.WriteString("==> " + cmd.CommandPath() + " <==\n")
		before := all.Len()
		writeHelp(&all, cmd)
		all.WriteString("\n")
		if text := all.String()[before:]; cmd.RunE != nil && !cmd.HasSubCommands() &&
			cmd.Name() != "help" && !strings.Contains(text, "\nexample:\n") {
			t.Errorf("%s: help without an example", cmd.CommandPath())
		}
		for _, sub := range cmd.Commands() {
			if !sub.Hidden {
				visit(sub)
			}
		}
	}
	visit(newRoot(env))
	const golden = "testdata/help.txt"
	if *update {
		if err := os.WriteFile(golden, all.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(all.Bytes(), want) {
		t.Errorf("the help is not that of %s; go test ./cmd/jail -update writes it anew:\n%s",
			golden, all.Bytes())
	}
}

// noJSON are the commands without --json: their output is a tool's, a file of its own form or JSON
// already, or they print nothing.
var noJSON = strings.Fields(`attach completion exec-server help hook mcp oci
	agent:delete agent:export agent:import agent:pause agent:replay agent:resume agent:transcript
	audit:export audit:prove gate:read image:sign tool:key:sign`)

// Every command that prints can print JSON.
func TestJSONFlags(t *testing.T) {
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		name := strings.ReplaceAll(strings.TrimPrefix(cmd.CommandPath(), "jail "), " ", ":")
		has := cmd.Flags().Lookup("json") != nil || cmd.Flags().Lookup("keys") != nil
		if !cmd.HasSubCommands() && !cmd.Hidden && has == slices.Contains(noJSON, name) {
			t.Errorf("%s: it has --json: %v", cmd.CommandPath(), has)
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(newRoot(&cli.Env{}))
}

// Too few or too many arguments are told in the words of every command, with its usage.
func TestWrongArguments(t *testing.T) {
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, args := range [][]string{nil, slices.Repeat([]string{"x"}, 9)} {
			if cmd.Args == nil {
				continue
			}
			err := cmd.Args(cmd, args)
			if e := (*problem.Error)(nil); err != nil && (!errors.As(err, &e) ||
				e.Code != problem.Usage || e.Hint == "") {
				t.Errorf("%s with %d arguments: %v", cmd.CommandPath(), len(args), err)
			}
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(newRoot(&cli.Env{}))
}
