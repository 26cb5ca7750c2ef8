package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
)

// completions are what a shell is offered for the words.
func completions(t *testing.T, state string, words ...string) []string {
	t.Helper()
	var out, errOut bytes.Buffer
	program(context.Background(), append([]string{cobra.ShellCompRequestCmd}, words...),
		strings.NewReader(""), &out, &errOut, []string{"JAIL_STATE=" + state})
	var values []string
	for line := range strings.SplitSeq(out.String(), "\n") {
		if value, _, _ := strings.Cut(line, "\t"); value != "" && !strings.HasPrefix(value, ":") {
			values = append(values, value)
		}
	}
	return values
}

// What names a run, a shadow, a profile, a limit or a type of record is completed; without a daemon
// none is started for it.
func TestCompletion(t *testing.T) {
	state := t.TempDir()
	for _, dir := range []string{"state/workspaces/kept", "state/workspaces/.new-1",
		"state/runs/lives"} {
		if err := os.MkdirAll(filepath.Join(state, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		words []string
		want  string
	}{
		{[]string{"diff", ""}, "kept"}, {[]string{"commit", ""}, "kept"},
		{[]string{"commit", "--theirs", ""}, "kept"}, {[]string{"discard", ""}, "kept"},
		{[]string{"revert", ""}, "kept"},
		{[]string{"kill", ""}, "lives"}, {[]string{"logs", ""}, "lives"}, {[]string{"wait", ""},
			"lives"}, {[]string{"attach", ""}, "lives"}, {[]string{"verify", ""}, "lives"},
		{[]string{"inspect", ""}, "lives"}, {[]string{"audit", "query", "--run", ""}, "lives"},
		{[]string{"run", "--limit", "mem"}, "memory="}, {[]string{"session", "exec", "--limit",
			"wa"}, "wall="}, {[]string{"policy", "explain", "--limit", "rev"}, "revert="},
		{[]string{"run", "--profile", "re"}, "readonly"}, {[]string{"session", "start", "--profile",
			"re"}, "readonly"}, {[]string{"policy", "show", "re"}, "readonly"},
		{[]string{"audit", "query", "--type", "run."}, "run.started"},
		{[]string{"audit", "export", "--type", "run."}, "run.finished"},
	} {
		if got := completions(t, state, c.words...); !slices.Contains(got, c.want) ||
			slices.Contains(got, ".new-1") {
			t.Errorf("%q: %q, want %s", c.words, got, c.want)
		}
	}
	if entries, err := os.ReadDir(state); err != nil || len(entries) != 1 {
		t.Errorf("completion left %v, %v", entries, err)
	}
}

// Every command that takes an ID completes it, and so does every flag with a value of a known kind.
func TestCompletionEverywhere(t *testing.T) {
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		for word := range strings.FieldsSeq(cmd.Use) {
			if word == "ID" && cmd.ValidArgsFunction == nil {
				t.Errorf("%s does not complete its ID", cmd.CommandPath())
			}
		}
		for _, name := range []string{"profile", "limit", "type", "run", "session"} {
			if f := cmd.Flags().Lookup(name); f != nil && f.Value.Type() != "bool" {
				if _, ok := cmd.GetFlagCompletionFunc(name); !ok {
					t.Errorf("%s does not complete --%s", cmd.CommandPath(), name)
				}
			}
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(newRoot(&cli.Env{}))
}
