package cmdtest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Learnt is what `jail policy learn --json` prints.
type Learnt struct {
	Policy   string
	Draft    struct{ Items []struct{ Kind, Name string } }
	Runs     int
	Trials   int
	Least    bool
	Compared map[string]bool
	ExitCode int `json:"exit_code"`
	File     string
	Observed struct {
		Files []struct {
			Path    string
			Written bool
		}
		Lost int64
	}
}

// Learn learns a tool into a file and returns what was learnt.
func Learn(h *Host, file string, args ...string) (l Learnt) {
	h.T.Helper()
	// Tens of runs, one after the other.
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(h.Bin, "jail"),
		append([]string{"policy", "learn", "--json", "-o", file}, args...)...)
	cmd.Dir, cmd.Env = h.Work, h.Env
	o := h.Run(cmd)
	if o.Code != 0 {
		h.T.Fatalf("learn %q: exit code %d: %s", args, o.Code, o.Err)
	}
	if err := json.Unmarshal([]byte(o.Out), &l); err != nil {
		h.T.Fatalf("%v: %.300s", err, o.Out)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != l.Policy {
		h.T.Fatalf("%s is not what was learnt: %v", file, err)
	}
	return l
}

// Doing is what a tool did under a policy, as far as it is always the same.
func Doing(h *Host, l Learnt, policy string, args []string) string {
	h.T.Helper()
	file := filepath.Join(h.Root, "try.toml")
	if err := os.WriteFile(file, []byte(policy), 0o644); err != nil {
		h.T.Fatal(err)
	}
	o := h.Jail(append([]string{"run", "--json", "--discard", "--policy", file}, args...)...)
	var r NativeResult
	if err := json.Unmarshal([]byte(o.Out), &r); err != nil {
		return fmt.Sprintf("no result: exit code %d: %.300s", o.Code, o.Err)
	}
	if r.Error != nil {
		return "error: " + r.Error.Message
	}
	text := fmt.Sprintf("exit %d limit %v\n", r.ExitCode, r.Limit)
	for what, value := range map[string]any{"stdout": r.Stdout, "stderr": r.Stderr,
		"changes": r.Changes} {
		if l.Compared[what] {
			text += fmt.Sprintf("%s %v\n", what, value)
		}
	}
	denied := map[string]bool{}
	for _, d := range r.Denied {
		denied[d.Layer+" "+d.What] = true
	}
	lines := strings.Split(text, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n") + strings.Join(slices.Sorted(maps.Keys(denied)), "\n")
}

// WithoutEach takes each thing that a learnt policy grants out of its text: a line of a list or of
// env.set, or a table of a mount or a rule.
func WithoutEach(text string) map[string]string {
	out := map[string]string{}
	section, lines := "", strings.SplitAfter(text, "\n")
	drop := func(what string, from, to int) {
		out[what] = strings.Join(slices.Concat(lines[:from], lines[to:]), "")
	}
	for i, line := range lines {
		if strings.HasPrefix(line, "[") {
			section = strings.TrimSpace(line)
		}
		switch {
		case section == "[[mount]]" && strings.HasPrefix(line, "target") ||
			section == "[[fetch.allow]]" && strings.HasPrefix(line, "host"):
			from, to := i, i
			for !strings.HasPrefix(lines[from], "[[") {
				from--
			}
			for strings.TrimSpace(lines[to]) != "" {
				to++
			}
			drop(strings.TrimSpace(line), from, to)
		case strings.HasPrefix(line, "    \"") && section != "[env]", section == "[env.set]" &&
			strings.Contains(line, " = "):
			drop(section+" "+strings.TrimSpace(line), i, i+1)
		}
	}
	return out
}
