package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/supervisor/agents/agentapi"
	"github.com/jail-sandbox/jail/supervisor/agents/manifest"
)

// ask makes cmd call f with its arguments and print the answer with write, or as JSON. prints names
// the answer in the help.
func ask[T any](env *cli.Env, cmd *cobra.Command, prints string,
	f func(ctx context.Context, c *agentapi.Client, args []string) (T, error),
	write func(w io.Writer, answer T)) *cobra.Command {
	with := func(ctx context.Context, f func(*agentapi.Client) error) error {
		return withAgents(ctx, env, f)
	}
	return command.Answer(env, cmd, prints, with, f, write)
}

func newList(env *cli.Env) *cobra.Command {
	return ask(env, &cobra.Command{
		Use:     "list",
		Short:   "list your agents",
		Long:    "List your agents, each with its channels, its state, and how many events wait.",
		Example: "  jail agent list --json",
		Args:    command.Exactly(),
	}, "print a list of objects",
		func(ctx context.Context, c *agentapi.Client, _ []string) ([]agentapi.Agent, error) {
			return c.List(ctx)
		}, writeAgents)
}

func writeAgents(w io.Writer, all []agentapi.Agent) {
	rows := [][]string{{"NAME", "CHANNEL", "STATE", "WAITING", "DEAD", "CHANGED", "NOTE"}}
	for _, a := range all {
		if len(a.Instances) == 0 {
			rows = append(rows, []string{a.Name, "-", a.State, "-", "-", "-",
				output.Printable(cmp.Or(a.Problem, rights(a)))})
		}
		for i, of := range a.Instances {
			rows = append(rows, []string{output.Once(i, a.Name), place(of), state(of),
				strconv.Itoa(of.Waiting), strconv.Itoa(of.Dead), output.Age(of.Changed),
				shortened(cmp.Or(of.Error, a.Problem, of.Note, rights(a)), 60)})
		}
	}
	output.Table(w, rows)
}

// rights returns a note for an agent without a jail, else "".
func rights(a agentapi.Agent) string {
	switch {
	case a.Builtin:
		return "built-in, has your rights"
	case a.Runtime == manifest.Host:
		return "has your rights"
	}
	return ""
}

// state returns the state of an instance as lists show it.
func state(i agentapi.Instance) string {
	if i.Paused {
		return i.State + ", paused"
	}
	return i.State
}

func shortened(text string, most int) string {
	text = output.Printable(text)
	if r := []rune(text); len(r) > most {
		return string(r[:most]) + "…"
	}
	return text
}

func newShow(env *cli.Env) *cobra.Command {
	return ask(env, &cobra.Command{
		Use:   "show NAME",
		Short: "show what an agent is, and may do",
		Long: "Show what an agent is: its files, what runs, its bindings and bounds, and the state " +
			"of its instances.",
		Example: "  jail agent show triage",
		Args:    named("NAME"),
	}, "print an object",
		func(ctx context.Context, c *agentapi.Client, args []string) (agentapi.Agent, error) {
			return c.Agent(ctx, args[0])
		}, writeAgent)
}

func newStatus(env *cli.Env) *cobra.Command {
	return ask(env, &cobra.Command{
		Use:   "status NAME",
		Short: "show the state, the inbox and the alarms of an agent",
		Long: "Show the state of each instance of an agent: whether it is awake, what waits, its " +
			"alarms, failures, and the tokens of today.",
		Example: "  jail agent status triage --json",
		Args:    named("NAME"),
	}, "print an object",
		func(ctx context.Context, c *agentapi.Client, args []string) (agentapi.Agent, error) {
			return c.Status(ctx, args[0])
		}, writeAgent)
}

// writeAgent writes the properties of an agent, one per line.
func writeAgent(w io.Writer, a agentapi.Agent) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-12s %s\n", name, output.Printable(fmt.Sprintf(format, args...)))
	}
	line("agent", "%s", a.ID)
	line("state", "%s", a.State)
	if a.About != "" {
		line("about", "%s", a.About)
	}
	if a.Runtime == manifest.Host {
		line("rights", "all of its user: it runs in no jail")
	}
	if a.Problem != "" {
		line("problem", "%s", a.Problem)
	}
	if !a.Builtin {
		line("files", "%s", a.Dir)
		line("digest", "%s", a.Digest)
	}
	if len(a.Manifest) > 0 {
		var m manifest.Manifest
		if err := json.Unmarshal(a.Manifest, &m); err != nil {
			line("problem", "manifest: %v", err)
		}
		line("runs", "%s", strings.TrimSpace(strings.Join(append(append([]string{}, m.Native...),
			append([]string{m.Module}, m.Args...)...), " ")))
		if m.Profile+m.Policy != "" {
			line("bounds", "%s", strings.TrimSpace(cmp.Or(m.Profile, m.Policy)+" "+
				strings.Join(m.Limits, " ")))
		}
		line("handle", "@%s", m.Handle)
		c := m.Capabilities
		for i, name := range []string{"network", "ai", "storage"} {
			if []bool{c.Network, c.AI, c.Storage}[i] {
				line("may use", "%s", name)
			}
		}
		for _, what := range beyondBindings(&m) {
			line("may use", "%s", what)
		}
	}
	if t := a.Tokens; t.Input+t.Output > 0 || t.Limit > 0 {
		line("tokens today", "%d in, %d out%s", t.Input, t.Output, bound(t.Limit))
	}
	for _, i := range a.Instances {
		fmt.Fprintf(w, "\nchannel %s: %s\n", output.Printable(place(i)), state(i))
		writeInstance(line, i)
	}
}

func bound(n int64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" of %d", n)
}

func writeInstance(line func(name, format string, args ...any), i agentapi.Instance) {
	line("  instance", "%s", i.Instance)
	line("  committed", "event %d", i.Committed)
	line("  waiting", "%s, %s", output.Count(i.Waiting, "event", "events"),
		output.Size(i.WaitingBytes))
	if i.Dead > 0 {
		line("  dead", "%s: jail agent events %s", output.Count(i.Dead, "event", "events"), i.Agent)
	}
	if i.Note != "" {
		line("  says", "%s", i.Note)
	}
	if i.Failures > 0 {
		line("  failed", "%s in a row", output.Count(i.Failures, "time", "times"))
	}
	if !i.NotBefore.IsZero() {
		line("  next try", "%s", i.NotBefore.Format(time.RFC3339))
	}
	if i.Error != "" {
		line("  error", "%s", i.Error)
	}
	if i.Memory > 0 {
		line("  uses", "%s, %s of processor time", output.Size(i.Memory), output.Millis(i.CPUMS))
	}
	for _, a := range i.Alarms {
		when := "waits as event " + strconv.FormatUint(a.Pending, 10)
		if a.Pending == 0 {
			when = a.At.Format(time.RFC3339)
		}
		if a.EveryMS > 0 {
			when += ", every " + output.Millis(a.EveryMS)
		}
		line("  alarm", "%s %s", cmp.Or(a.Name, "(heartbeat)"), when)
	}
}

// place returns the channel of an instance and, for a facet, its path.
func place(i agentapi.Instance) string {
	if i.Facet == "" {
		return i.Channel
	}
	return i.Channel + ", facet " + i.Facet
}
