package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/meaning"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/profiles"
	"github.com/jail-sandbox/jail/supervisor/bundle"
)

// explainFlags say which run it is that is explained.
type explainFlags struct {
	profile, policy, tool string
	limits, fetch         []string
	noWorkspace           bool
	why                   []string
	write, self, json     bool
}

func (a *app) policyExplainCommand() *cobra.Command {
	var f explainFlags
	cmd := &cobra.Command{
		Use:   "explain [flags] [NAME|FILE]",
		Short: "say what a run may do, by which layer and line, and why",
		Long: `Say what a run with a profile (default: default) or a policy file may do: each item with the layer and the line that gave it, and those that
narrowed it. With --why, whether one thing is allowed, what each layer says of it, and the least change that would turn the answer. A question is
read:PATH, write:PATH, exec:TOOL, connect:HOST:PORT, "connect:GET https://HOST/PATH", env:NAME, commit:PATH, limit:NAME or limit:NAME=AMOUNT; a path
that is not absolute lies in the workspace.

With --self, inside a jail, the answers are about that jail. Exits with 0, and with 1 if one of the questions is answered with no.`,
		Example: "  jail policy explain python\n  jail policy explain --why connect:api.github.com:443 --why limit:memory ./my.toml\n" +
			"  jail policy explain --tool python/python3 --limit memory=64MiB python\n  jail policy explain --self --why write:/etc/passwd",
		Args: atMost(1),
	}
	set := cmd.Flags()
	set.SortFlags = false
	set.StringVar(&f.profile, "profile", "", "the profile `NAME`, as run has it")
	set.StringVar(&f.policy, "policy", "", "the policy `FILE`, as run has it")
	set.StringVar(&f.tool, "tool", "", "with what the policy says of one `TOOL`: bundle/command or a path")
	set.StringArrayVar(&f.why, "why", nil, "answer a `QUESTION`, such as read:/etc/passwd (repeatable)")
	set.StringArrayVar(&f.limits, "limit", nil, "narrow a limit, as run does (`KEY=VALUE`, repeatable)")
	set.StringArrayVar(&f.fetch, "fetch", nil, "narrow the network to `HOST`, as run does (repeatable)")
	set.BoolVar(&f.noWorkspace, "no-workspace", false, "of a run without a workspace")
	set.BoolVar(&f.write, "write", false, "write the change that would allow it into FILE, and leave the rest of it as it is")
	set.BoolVar(&f.self, "self", false, "inside a jail: explain that jail")
	set.BoolVar(&f.json, "json", false, "print an object")
	a.completeFirst(cmd, a.profileNames)
	a.completeProfiles(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		name, err := f.target(args)
		if err != nil {
			return err
		}
		return a.explain(name, f)
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
		return "", usage("", "one profile or policy file can be explained at a time, and there are %s", strings.Join(names, " and "))
	case f.self && len(names)+len(f.limits)+len(f.fetch) > 0:
		return "", usage("", "--self is about the jail that it is asked in, which has its policy already")
	case f.write && (len(f.why) != 1 || f.self):
		return "", usage("", "--write needs one --why, and a policy file")
	case len(names) == 0:
		return "default", nil
	}
	if f.policy != "" && !namesFile(f.policy) {
		return "./" + f.policy, nil
	}
	return names[0], nil
}

func (a *app) explain(name string, f explainFlags) error {
	sources, err := a.sources(name, f)
	if err != nil {
		return err
	}
	if len(f.why) > 0 {
		return a.explainWhy(sources, f)
	}
	x, err := meaning.Explain(sources)
	if err != nil {
		return usage("", "%v", err)
	}
	return a.show(f.json, x, func(w io.Writer) error { return writeExplanation(w, x) })
}

// sources are the layers of the run: ceiling, profile, request, and after each what it says of the tool.
func (a *app) sources(name string, f explainFlags) ([]meaning.Source, error) {
	if f.self {
		return a.ownSources()
	}
	set, err := a.loadProfiles()
	if err != nil {
		return nil, err
	}
	ceiling, ceilingFile, err := a.ceilingFile(set)
	if err != nil {
		return nil, err
	}
	file, err := openPolicy(set, name)
	if err != nil {
		return nil, err
	}
	r := policy.NewRequest()
	for _, text := range f.limits {
		if err := r.Limit(text); err != nil {
			return nil, usage("", "--limit: %v", err)
		}
	}
	for _, host := range f.fetch {
		if err := r.Fetch(host); err != nil {
			return nil, usage("", "--fetch: %v", err)
		}
	}
	if f.noWorkspace {
		r.Workspace(policy.WorkspaceNone)
	}
	label := "profile " + name
	if namesFile(name) {
		label = "policy " + name
	}
	all := []meaning.Source{{Layer: ceiling, File: ceilingFile}, {Layer: file.Layer(label, file.Source), File: &file},
		{Layer: policy.Layer{Name: "request", Source: "command line", Policy: r.Policy()}}}
	if own, err := a.workspaceSource(set, file.Policy); err != nil {
		return nil, err
	} else if own != nil && !f.noWorkspace {
		all = append(all, *own)
	}
	if f.tool == "" {
		return all, nil
	}
	return withTool(all, f.tool), nil
}

func withTool(all []meaning.Source, tool string) []meaning.Source {
	var out []meaning.Source
	for _, s := range all {
		out = append(out, s)
		for _, t := range s.Layer.Tools {
			if t.Tool.Match(tool) {
				out = append(out, meaning.Source{File: s.File, Layer: policy.Layer{
					Name: fmt.Sprintf("%s, tool %q", s.Layer.Name, t.Tool), Source: s.Layer.Source, Policy: t.Policy}})
			}
		}
	}
	return out
}

// ownSources is the one layer that is known inside a jail: what is in force there.
func (a *app) ownSources() ([]meaning.Source, error) {
	text, err := os.ReadFile(jail.PolicyFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, notFound("--self is for programs of the host that run in a jail", "there is no %s, so this is no jail that tells its policy", jail.PolicyFile)
	}
	if err != nil {
		return nil, failed(err, "", "%s: %v", jail.PolicyFile, cause(err))
	}
	var own struct{ Policy policy.Policy }
	if err := json.Unmarshal(text, &own); err != nil {
		return nil, failed(err, "", "%s: %v", jail.PolicyFile, err)
	}
	return []meaning.Source{{Layer: policy.Layer{Name: "this jail", Source: jail.PolicyFile, Policy: own.Policy}}}, nil
}

// commands finds the bundles that have a command.
func (a *app) commands() meaning.Commands {
	set, err := bundle.Open(a.config.Bundles...)
	return func(command string) []string {
		if err != nil {
			return nil
		}
		var out []string
		for _, b := range set.List() {
			for _, c := range b.Commands() {
				if c.Name == command {
					out = append(out, b.Name)
				}
			}
		}
		return out
	}
}

func (a *app) explainWhy(sources []meaning.Source, f explainFlags) error {
	var answers []meaning.Answer
	yes := true
	for _, text := range f.why {
		answer, err := a.why(text, sources)
		if err != nil {
			return err
		}
		answers, yes = append(answers, answer), yes && answer.Allowed
	}
	if f.write {
		return a.writeChange(answers[0])
	}
	err := a.show(f.json, answers, func(w io.Writer) error {
		for _, answer := range answers {
			if _, err := io.WriteString(w, printableText(answer.Text())); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && !yes {
		return exitNo
	}
	return err
}

// why answers one question.
func (a *app) why(text string, sources []meaning.Source) (meaning.Answer, error) {
	verb, object, _ := strings.Cut(text, ":")
	var p policy.Policy
	for _, s := range sources {
		if s.File != nil && s.File.Kind == syntax.Profile {
			p = s.Layer.Policy
		}
	}
	ask, err := meaning.ParseAsk(verb, object, p, a.commands())
	if err != nil {
		return meaning.Answer{}, usage("a question is read:PATH, write:PATH, exec:TOOL, connect:HOST:PORT, env:NAME, commit:PATH or limit:NAME", "--why %s: %v", text, err)
	}
	answer, err := meaning.Why(ask, sources)
	if err != nil {
		return meaning.Answer{}, usage("", "%v", err)
	}
	return answer, nil
}

// writeChange makes the change that would allow something in the file of the policy.
func (a *app) writeChange(answer meaning.Answer) error {
	if answer.Allowed {
		return usage("", "%s is allowed already", answer.Question)
	}
	for _, step := range answer.Change {
		edit, ok := step.Edit()
		switch {
		case !ok || !step.Verified:
			return usage("jail policy explain --why says what would", "in %s: %s", step.Layer, step.What)
		case !namesFile(step.File):
			return usage("copy it to a file of your own: jail profile show NAME", "%s is no file that can be written", step.File)
		}
		if err := rewrite(step.File, edit); err != nil {
			return err
		}
		fmt.Fprintf(a.stderr, "jail: %s: wrote %s\n", printable(step.File), printable(strings.Join(step.Lines, " ")))
	}
	return nil
}

// rewrite changes a file in one step: who reads it meanwhile reads the one or the other.
func rewrite(path string, edit syntax.Edit) error {
	text, err := readPolicy(path)
	if err != nil {
		return err
	}
	after, err := edit.Apply(text)
	if err != nil {
		return usage("write it by hand", "%s: %v", path, err)
	}
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() {
		return usage("name the file itself", "%s is no regular file", path)
	}
	if err := replaceFile(path, after, info.Mode().Perm()); err != nil {
		return failed(err, "", "%s: %v", path, cause(err))
	}
	return nil
}

func replaceFile(path string, text []byte, mode fs.FileMode) (err error) {
	dir := "."
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		dir = path[:i+1]
	}
	f, err := os.CreateTemp(dir, ".jail-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, writeErr := f.Write(text)
	if err := errors.Join(writeErr, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
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

func writeExplanation(w io.Writer, x meaning.Explanation) error {
	rows := [][]string{{"ITEM", "IN FORCE", "GIVEN BY", "NARROWED BY"}}
	for _, i := range x.Items {
		rows = append(rows, explainRow(i.Key, i))
	}
	for _, i := range x.Lost {
		row := explainRow(i.Key, i)
		row[1] = "not, or not all of: " + row[1]
		rows = append(rows, row)
	}
	if err := table(w, rows); err != nil {
		return err
	}
	for _, text := range x.Warnings {
		fmt.Fprintln(w, "warning: "+printable(text))
	}
	_, err := fmt.Fprintln(w, x.Digest)
	return err
}

func explainRow(key string, i meaning.Item) []string {
	var narrowed []string
	for _, n := range i.Narrowed {
		narrowed = append(narrowed, originText(&n))
	}
	return []string{key, i.Value, dash(originText(i.Given)), dash(strings.Join(narrowed, "; "))}
}

// ceilingFile is ceiling with the file that it was read from, nil where there is none.
func (a *app) ceilingFile(set *profiles.Set) (policy.Layer, *syntax.File, error) {
	layer, err := a.ceiling(set)
	if err != nil || layer.Source == profiles.BuiltIn {
		return layer, nil, err
	}
	text, err := profiles.ReadTrusted(a.config.Ceiling)
	if err != nil {
		return layer, nil, failed(err, "", "ceiling: %v", err)
	}
	file, err := set.Parse(syntax.Ceiling, a.config.Ceiling, text)
	if err != nil {
		return layer, nil, failed(err, "jail policy check "+a.config.Ceiling, "%v", err)
	}
	return file.Layer(layer.Name, a.config.Ceiling), &file, nil
}
