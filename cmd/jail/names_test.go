package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
)

// TestBadIDs: each command that takes an id or a name refuses what can be none before anything is
// asked, in one sentence that names the text, and without its control characters.
func TestBadIDs(t *testing.T) {
	commands := []string{"branch diff x", "session exec"}
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		words := strings.Fields(cmd.Use)
		if slices.ContainsFunc(words, func(word string) bool {
			return word == "ID" || word == "ID..." || word == "PUBLISHER" || word == "BUNDLE" ||
				word == "NAME" && cmd.Name() != "new"
		}) {
			commands = append(commands, strings.TrimPrefix(cmd.CommandPath(), "jail "))
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(newRoot(&cli.Env{}))
	if len(commands) < 40 {
		t.Errorf("only %d commands: %q", len(commands), commands)
	}
	// What follows the id or the name.
	more := map[string][]string{"session exec": {"true"}, "approvals settle": {"applied"},
		"agent send": {"x"}, "agent import": {"-"}, "agent retry": {"1"}, "image add": {"oci:/x"},
		"image sign": {"oci:/x"}, "gate read": {"m"}, "gate propose": {"a"},
		"tool key add": {"/dev/null"}}
	for _, line := range commands {
		for _, text := range []string{"/", ".", "..", "../x", strings.Repeat("x", 5000), "a\x1b[31mb",
			"a\nb", "a\u009bb"} {
			args := append(append(strings.Fields(line), text), more[line]...)
			if text == "../x" && !strings.Contains(line, "branch") {
				continue
			}
			var out, said bytes.Buffer
			code := program(t.Context(), args, strings.NewReader(""), &out, &said,
				[]string{"JAIL_STATE=/nonexistent"})
			first, _, _ := strings.Cut(said.String(), "\n")
			if code != 2 || !strings.HasPrefix(first, "jail: error: ") || len(first) > 400 ||
				strings.Contains(first, "/v1") || strings.ContainsAny(said.String(), "\x1b\u009b") ||
				strings.Count(said.String(), "\n") > 2 || out.Len() > 0 {
				t.Errorf("%.60q: %d, %.400q%.100q", args, code, said.String(), out.String())
			}
		}
	}
}
