package policy

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/complete"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/cmd/jail/internal/policies"
	"github.com/jail-sandbox/jail/policy/meaning"
)

// explainFlags are the flags of jail policy explain, which describe the run.
type explainFlags struct {
	policies.Of
	profile, policy   string
	why               []string
	write, self, json bool
}

func newExplain(env *cli.Env) *cobra.Command {
	var f explainFlags
	cmd := &cobra.Command{
		Use:   "explain [flags] [NAME|FILE]",
		Short: "explain what a run may do, by which layer and line, and why",
		Long: `Explain what a run with a profile (default: default) or a policy file may do: each
right with the layer and the line that granted it, and those that narrowed it. --why tells whether
one operation is allowed, what each layer answers, and the smallest change that would change the
answer. A question is read:PATH, write:PATH, exec:TOOL, connect:HOST:PORT, "connect:GET
https://HOST/PATH", env:NAME, commit:PATH, limit:NAME or limit:NAME=AMOUNT; a path that is not
absolute lies in the workspace. The answer to connect names the entry of the operator's
fetch.toml, if the host is an internal one.

With --self, inside a jail, the answers are about that jail. The exit code is 1 if one of the
answers is no, else 0.`,
		Example: "  jail policy explain python\n" +
			"  jail policy explain --why connect:api.github.com:443 --why limit:memory ./my.toml\n" +
			"  jail policy explain --tool python/python3 --limit memory=64MiB python\n" +
			"  jail policy explain --self --why write:/etc/passwd",
		Args: command.AtMost(1),
	}
	set := cmd.Flags()
	set.SortFlags = false
	set.StringVar(&f.profile, "profile", "", "the profile `NAME`, as run has it")
	set.StringVar(&f.policy, "policy", "", "the policy `FILE`, as run has it")
	set.StringVar(&f.Tool, "tool", "",
		"with what the policy says of one `TOOL`: bundle/command or a path")
	set.StringArrayVar(&f.why, "why", nil,
		"answer a `QUESTION`, such as read:/etc/passwd (repeatable)")
	set.StringArrayVar(&f.Limits, "limit", nil,
		"narrow a limit, as run does (`KEY=VALUE`, repeatable)")
	set.StringArrayVar(&f.Fetch, "fetch", nil,
		"narrow the network to `HOST`, as run does (repeatable)")
	set.BoolVar(&f.NoWorkspace, "no-workspace", false, "of a run without a workspace")
	set.BoolVar(&f.write, "write", false,
		"write the change that would allow it into FILE, and leave the rest of it as it is")
	set.BoolVar(&f.self, "self", false, "inside a jail: explain that jail")
	set.BoolVar(&f.json, "json", false, "print an object")
	complete.First(env, cmd, complete.Profiles)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		name, err := f.target(args)
		if err != nil {
			return err
		}
		return explain(env, name, f)
	}
	return cmd
}

func (f explainFlags) target(args []string) (string, error) {
	names := append([]string{}, args...)
	for _, n := range []string{f.profile, f.policy} {
		if n != "" {
			names = append(names, n)
		}
	}
	switch {
	case len(names) > 1:
		return "", exit.Usage("",
			"one profile or policy file can be explained at a time, and there are %s",
			strings.Join(names, " and "))
	case f.self && len(names)+len(f.Limits)+len(f.Fetch) > 0:
		return "", exit.Usage("",
			"--self is about the jail that it is asked in, which has its policy already")
	case f.write && (len(f.why) != 1 || f.self):
		return "", exit.Usage("", "--write needs one --why, and a policy file")
	case len(names) == 0:
		return "default", nil
	}
	if f.policy != "" && !policies.NamesFile(f.policy) {
		return "./" + f.policy, nil
	}
	return names[0], nil
}

func explain(env *cli.Env, name string, f explainFlags) error {
	layers := policies.OwnLayers
	if !f.self {
		layers = func() ([]meaning.Source, error) { return policies.Layers(env, name, f.Of) }
	}
	sources, err := layers()
	if err != nil {
		return err
	}
	if len(f.why) > 0 {
		return explainWhy(env, sources, f)
	}
	x, err := meaning.Explain(sources)
	if err != nil {
		return exit.Usage("", "%v", err)
	}
	return env.Show(f.json, x, func(w io.Writer) { writeExplanation(w, x) })
}

func explainWhy(env *cli.Env, sources []meaning.Source, f explainFlags) error {
	var answers []meaning.Answer
	yes := true
	for _, text := range f.why {
		answer, err := policies.Why(env, text, sources)
		if err != nil {
			return err
		}
		answers, yes = append(answers, answer), yes && answer.Allowed
	}
	if f.write {
		return writeChange(env, answers[0])
	}
	err := env.Show(f.json, answers, func(w io.Writer) {
		for _, answer := range answers {
			io.WriteString(w, output.PrintableText(answer.Text()))
		}
	})
	if err == nil && !yes {
		return exit.No
	}
	return err
}

// writeChange applies the change that would allow the answer's question to the policy's file.
func writeChange(env *cli.Env, answer meaning.Answer) error {
	if answer.Allowed {
		return exit.Usage("", "%s is allowed already", answer.Question)
	}
	for _, step := range answer.Change {
		edit, ok := step.Edit()
		switch {
		case !ok || !step.Verified:
			return exit.Usage("jail policy explain --why says what would",
				"in %s: %s", step.Layer, step.What)
		case !policies.NamesFile(step.File):
			return exit.Usage("copy it to a file of your own: jail profile show NAME",
				"%s is no file that can be written", step.File)
		}
		if err := policies.Rewrite(step.File, edit); err != nil {
			return err
		}
		fmt.Fprintf(env.Stderr, "jail: %s: wrote %s\n", output.Printable(step.File),
			output.Printable(strings.Join(step.Lines, " ")))
	}
	return nil
}

func originText(o *meaning.Origin) string {
	switch {
	case o == nil:
		return ""
	case o.At == nil:
		return o.Layer
	}
	return fmt.Sprintf("%s, %s:%d", o.Layer, o.At.File, o.At.Line)
}

func writeExplanation(w io.Writer, x meaning.Explanation) {
	rows := [][]string{{"ITEM", "IN FORCE", "GIVEN BY", "NARROWED BY"}}
	for _, i := range x.Items {
		rows = append(rows, explainRow(i.Key, i))
	}
	for _, i := range x.Lost {
		row := explainRow(i.Key, i)
		row[1] = "not, or not all of: " + row[1]
		rows = append(rows, row)
	}
	output.Table(w, rows)
	for _, text := range x.Warnings {
		fmt.Fprintln(w, "warning: "+output.Printable(text))
	}
	fmt.Fprintln(w, x.Digest)
}

func explainRow(key string, i meaning.Item) []string {
	var narrowed []string
	for _, n := range i.Narrowed {
		narrowed = append(narrowed, originText(&n))
	}
	return []string{key, i.Value, cmp.Or(originText(i.Given), "-"),
		cmp.Or(strings.Join(narrowed, "; "), "-")}
}
