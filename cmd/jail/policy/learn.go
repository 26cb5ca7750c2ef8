package policy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/complete"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/cmd/jail/internal/policies"
	"github.com/jail-sandbox/jail/cmd/jail/internal/request"
	"github.com/jail-sandbox/jail/cmd/jail/internal/terminal"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/learn"
	"github.com/jail-sandbox/jail/policy/meaning"
	"github.com/jail-sandbox/jail/policy/paths"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/supervisor/api"
	learning "github.com/jail-sandbox/jail/supervisor/learn"
	"github.com/jail-sandbox/jail/supervisor/message"
)

const learnAbout = `Run a tool, observe what it uses, and write the least policy under which it does the same.

The runs are jailed: over a shadow that is deleted, with limits, without files that look like secrets, with no network but the hosts of --fetch, and
recorded. A tool of a bundle or a .wasm file gets what such a tool gets; a program of the host (an absolute path, a name that no bundle has, or --native) is
shown /usr and similar directories, read-only, and the directories of --read. Two runs find the effects that are always the same; then a trial without each grant
removes the grants that do not matter. --no-trials skips the trials. With --fetch they are skipped unless --trials is given, since each trial repeats the
requests. Standard input is read to its end, and each run gets all of it.

The policy goes to FILE or to standard output, with the evidence beside each line. It lists uses that are not granted, for a person to decide. A FILE that
exists keeps its grants, and gets the missing ones. Nothing is learned from a tool that fails, unless --on-failure is given.`

type learnFlags struct {
	workspace                   string
	noWorkspace, native         bool
	env, fetch, read            []string
	output, merge, name         string
	runs                        int
	trials, noTrials, onFailure bool
	force, json, quiet          bool
}

func newLearn(env *cli.Env) *cobra.Command {
	var f learnFlags
	cmd := &cobra.Command{
		Use:   "learn [flags] [--] TOOL [ARG...]",
		Short: "observe a tool, and write the least policy for it",
		Long:  learnAbout,
		Example: "  jail policy learn -o grep.toml -- grep -rn TODO .\n" +
			"  jail policy learn --native -o status.toml -- git status\n" +
			"  jail policy learn -o status.toml -- git log    # more of the same policy\n" +
			"  jail policy learn --fetch example.com -- curl -s https://example.com/",
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: complete.Tool(env),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return exit.Usage("usage: "+cmd.UseLine(), "%s: TOOL is missing", cmd.CommandPath())
			}
			return runLearn(cmd.Context(), env, &f, args)
		},
	}
	set := cmd.Flags()
	set.SetInterspersed(false)
	set.SortFlags = false
	set.StringVarP(&f.output, "output", "o", "", "write to `FILE`; one that exists is added to")
	set.StringVar(&f.merge, "merge", "",
		"add to the policy in `FILE`, and write it there unless -o says where")
	set.BoolVar(&f.force, "force", false, "replace a file that exists")
	set.StringVar(&f.name, "name", "",
		"`NAME` of the policy (default that of the file, or the tool's)")
	set.BoolVar(&f.native, "native", false,
		"learn the host's program, also where a bundle has a command of that name")
	set.StringVar(&f.workspace, "workspace", ".", "`DIR` that the tool gets a shadow of")
	set.BoolVar(&f.noWorkspace, "no-workspace", false, "run without a workspace")
	set.StringArrayVar(&f.env, "env", nil, "give the tool a variable (`NAME=VALUE`, repeatable)")
	set.StringArrayVar(&f.fetch, "fetch", nil,
		"let it reach `HOST[:PORT]`, or * for any public host (repeatable)")
	set.StringArrayVar(&f.read, "read", nil,
		"show it `DIR` of the host, to read and run from (repeatable)")
	set.IntVar(&f.runs, "runs", 2, "learn from `N` runs, at least 2")
	set.BoolVar(&f.trials, "trials", false, "try each grant without, also with --fetch")
	set.BoolVar(&f.noTrials, "no-trials", false, "grant what was observed, and try nothing without")
	set.BoolVar(&f.onFailure, "on-failure", false,
		"learn also from a tool that does not exit with 0")
	set.BoolVar(&f.json, "json", false,
		"print one object: the policy, what was observed, and what is granted")
	set.BoolVar(&f.quiet, "quiet", false, "print errors only")
	return cmd
}

func runLearn(ctx context.Context, env *cli.Env, f *learnFlags, args []string) error {
	job, err := learnJob(env, f, args)
	if err != nil {
		return err
	}
	var report learning.Report
	err = env.WithDaemon(ctx, func(c *api.Client) (err error) {
		report, err = learning.Learn(ctx, c, job)
		return err
	})
	if job.Progress != nil {
		io.WriteString(env.Stderr, "\r\x1b[K")
	}
	var unlike *learning.Unlike
	switch {
	case errors.Is(err, learning.ErrFailed):
		output.Say(env.Stderr, "error", err.Error()+"; nothing is written")
		output.Say(env.Stderr, "hint", "--on-failure learns what it needs to fail so")
		if report.ExitCode == 0 {
			return exit.No
		}
		return exit.Code(report.ExitCode)
	case errors.As(err, &unlike):
		return exit.Failed(err,
			"a tool whose runs differ by themselves can be learnt with --no-trials, or not at all",
			"%v; nothing is written", err)
	case err != nil:
		return err
	}
	return learnt(env, f, job, report)
}

// learnt writes the learned policy and prints a summary.
func learnt(env *cli.Env, f *learnFlags, job learning.Job, report learning.Report) error {
	path := cmp.Or(f.output, f.merge)
	if path != "" {
		if err := policies.Write(path, report.Text, true); err != nil {
			return err
		}
	}
	switch {
	case f.json:
		view := struct {
			learning.Report
			File string `json:"file,omitempty"`
		}{report, path}
		return env.PrintJSON(view)
	case path == "":
		if err := env.Print(func(w io.Writer) {
			io.WriteString(w, output.PrintableText(report.Text))
		}); err != nil {
			return err
		}
	}
	if !f.quiet {
		tellLearnt(env, job, report, path)
	}
	return nil
}

// maxLearnInput bounds the bytes of standard input, which each run gets whole.
const maxLearnInput = 64 << 20

func learnJob(env *cli.Env, f *learnFlags, args []string) (job learning.Job, err error) {
	switch {
	case f.trials && f.noTrials:
		return job, exit.Usage("", "--trials and --no-trials contradict each other")
	case f.noWorkspace && f.workspace != ".":
		return job, exit.Usage("", "--workspace and --no-workspace contradict each other")
	case f.runs < 2 || f.runs > 100:
		return job, exit.Usage("", "--runs %d: from 2 to 100", f.runs)
	case f.merge != "" && f.force:
		return job, exit.Usage("", "--merge and --force contradict each other")
	}
	// Check the files before a tool runs.
	for _, path := range []string{f.output, f.merge} {
		if info, err := os.Lstat(path); path != "" && err == nil && !info.Mode().IsRegular() {
			return job, exit.Usage("name the file itself", "%s is no regular file", path)
		}
	}
	req := message.Request{Tool: args[0], Args: args[1:], NoWorkspace: f.noWorkspace, Env: f.env}
	if err := request.Over(f.workspace, &req); err != nil {
		return job, err
	}
	job = learning.Job{Request: req, Runs: f.runs, Trials: !f.noTrials &&
		(f.trials || len(f.fetch) == 0), OnFailure: f.onFailure,
		Out: env.Stdout, Err: env.Stderr, Names: linkNames, Progress: learnProgress(env, f.quiet ||
			f.json)}
	if f.json {
		job.Out, job.Err = io.Discard, io.Discard
	} else if f.output == "" && f.merge == "" {
		// The policy is printed on standard output.
		job.Out = env.Stderr
	}
	for _, p := range []string{"/lib64/ld-linux-x86-64.so.2", "/lib/ld-musl-x86_64.so.1"} {
		if _, err := os.Stat(p); err == nil {
			job.Loaders = append(job.Loaders, p)
		}
	}
	if job.Base, err = learnBase(env, f); err != nil {
		return job, err
	}
	if job.Asked, err = asked(env, f, req); err != nil {
		return job, err
	}
	job.Stdin, err = learnInput(env)
	return job, err
}

// learnInput reads standard input. It returns nil for a terminal.
func learnInput(env *cli.Env) ([]byte, error) {
	if env.Stdin == nil || terminal.Is(env.Stdin) {
		return nil, nil
	}
	text, err := io.ReadAll(io.LimitReader(env.Stdin, maxLearnInput+1))
	switch {
	case err != nil:
		return nil, exit.Failed(err, "", "standard input: %v", exit.Cause(err))
	case len(text) > maxLearnInput:
		return nil, exit.Usage("learn from less",
			"standard input: more than %s", output.Size(maxLearnInput))
	}
	return text, nil
}

// learnBase reads the policy that the result is merged into, or returns nil for none.
func learnBase(env *cli.Env, f *learnFlags) (*learn.Base, error) {
	path := f.merge
	if path == "" && f.output != "" && !f.force {
		if _, err := os.Lstat(f.output); err == nil {
			path = f.output
		}
	}
	if path == "" {
		return nil, nil
	}
	text, err := policies.Read(path)
	if err != nil {
		return nil, err
	}
	set, err := policies.Load(env)
	if err != nil {
		return nil, err
	}
	file, err := set.Parse(syntax.Profile, path, text)
	if err != nil {
		return nil, exit.Usage("jail policy check "+path+"; --force replaces it", "%v", err)
	}
	return &learn.Base{Text: string(text), Policy: file.Policy}, nil
}

// asked returns what the learning runs may use.
func asked(env *cli.Env, f *learnFlags, req message.Request) (learn.Asked, error) {
	line := []string{"jail", "run", "--policy", "FILE", "--", req.Tool}
	if f.output != "" {
		line[3] = f.output
	} else if f.merge != "" {
		line[3] = f.merge
	}
	for _, arg := range req.Args {
		line = append(line, meaning.ShellWord(arg))
	}
	out := learn.Asked{NoWorkspace: f.noWorkspace, Native: isNative(env, f, req.Tool),
		Run: strings.Join(line, " ")}
	out.About = "Learnt from: " + shorten(strings.Join(line[5:], " "), 200)
	if out.Name = f.name; out.Name == "" {
		out.Name = nameFrom(cmp.Or(strings.TrimSuffix(f.output, ".toml"),
			strings.TrimSuffix(req.Tool, ".wasm")), "learnt")
	}
	if err := syntax.CheckName(out.Name); err != nil {
		return out, exit.Usage("", "--name: %v", err)
	}
	for _, v := range f.env {
		name, _, _ := strings.Cut(v, "=")
		out.Given = append(out.Given, name)
	}
	for _, text := range f.fetch {
		h, err := hostPort(text)
		if err != nil {
			return out, exit.Usage("", "--fetch %s: %v", text, err)
		}
		out.Hosts = append(out.Hosts, h)
	}
	return out, askedMounts(env, f, &out)
}

// askedMounts sets the mounts of the host that the learning runs see.
func askedMounts(env *cli.Env, f *learnFlags, out *learn.Asked) error {
	if out.Native {
		for _, m := range learn.WideMounts() {
			if _, err := os.Stat(m.Source); err == nil {
				out.Mounts = append(out.Mounts, m)
			}
		}
	}
	for _, dir := range f.read {
		path, err := readPath(dir)
		if err != nil {
			return err
		}
		if !learn.Sayable(path) {
			return exit.Usage("", "--read %q: a policy cannot say this name", dir)
		}
		access := policy.Read
		if out.Native {
			access |= policy.Exec
		}
		m := policy.Mount{Source: path, Target: path, Access: access}
		for _, w := range (policy.Policy{Mounts: policy.Mounts{m}}).Warnings() {
			output.Say(env.Stderr, "warning", w)
		}
		out.Mounts = append(out.Mounts, m)
	}
	return nil
}

// isNative reports whether the tool is a program of the host: a path, or a name that no bundle has.
func isNative(env *cli.Env, f *learnFlags, tool string) bool {
	if strings.HasSuffix(tool, ".wasm") {
		return false
	}
	_, command, two := strings.Cut(tool, "/")
	if !two {
		command = tool
	}
	return f.native || filepath.IsAbs(tool) || strings.HasPrefix(tool, "./") ||
		strings.HasPrefix(tool, "../") || len(policies.Commands(env)(command)) == 0
}

// readPath returns the absolute path of a --read argument, which must exist.
func readPath(dir string) (string, error) {
	path, err := filepath.Abs(dir)
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		return "", exit.NotFound("", "--read %s: %v", dir, exit.Cause(err))
	}
	return path, nil
}

// nameFrom returns a policy name made from a file's name, or other if that is not possible.
func nameFrom(path, other string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '-'
	}, strings.ToLower(filepath.Base(path)))
	if name = strings.Trim(name, "-_"); syntax.CheckName(name) != nil {
		return other
	}
	return name
}

// hostPort parses HOST or HOST:PORT. Without a port it returns 80 and 443.
func hostPort(text string) (learn.HostPort, error) {
	if strings.Contains(text, "/") {
		return learn.HostPort{}, errors.New("want HOST or HOST:PORT, and no URL")
	}
	host, port, has := strings.Cut(text, ":")
	out := learn.HostPort{Host: host, Ports: []uint16{80, 443}}
	if has {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return out, fmt.Errorf("port %q is no number from 1 to 65535", port)
		}
		out.Ports = []uint16{uint16(n)}
	}
	_, err := policy.ParseHost(host)
	return out, err
}

// linkNames returns the links in a program's directory that lead to the same file.
func linkNames(path string) []string {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		name := filepath.Join(filepath.Dir(path), e.Name())
		if name == path || e.Type()&fs.ModeSymlink == 0 || !learn.Sayable(name) {
			continue
		}
		if to, err := filepath.EvalSymlinks(name); err == nil && to == real {
			out = append(out, name)
		}
	}
	return out
}

// learnProgress returns a function that shows progress on a terminal; nil if stderr is none.
func learnProgress(env *cli.Env, silent bool) func(string) {
	if silent || !terminal.Is(env.Stderr) {
		return nil
	}
	return func(text string) { io.WriteString(env.Stderr, "\r\x1b[Kjail: "+output.Printable(text)) }
}

// tellLearnt prints what was observed and granted.
func tellLearnt(env *cli.Env, job learning.Job, r learning.Report, path string) {
	where := "."
	if path != "" {
		where = ": " + path
	}
	fmt.Fprintf(env.Stderr, "jail: learnt from %s, %s%s\n", output.Count(r.Runs, "run", "runs"),
		output.Count(r.Trials, "trial", "trials"), output.Printable(where))
	rows := append([][]string{{"", "OBSERVED", "GRANTED"}}, learntRows(job, r)...)
	output.Table(env.Stderr, rows)
	for _, n := range r.Draft.Person {
		output.Say(env.Stderr, "not granted, needs a person", n)
	}
	output.Say(env.Stderr, "not observed", strings.Join(r.Draft.Unseen, "; "))
	if !r.Least {
		output.Say(env.Stderr, "hint", "what it could do without was not, or not wholly, tried")
	}
}

func learntRows(job learning.Job, r learning.Report) [][]string {
	d := r.Draft
	opened, executed, inside, written := 0, 0, 0, 0
	for _, f := range r.Observed.Files {
		switch {
		case paths.Within(policy.WorkspaceDir, f.Path):
			if inside++; f.Written {
				written++
			}
		case f.Executed > 0:
			executed++
			opened++
		case !paths.Within("/proc", f.Path):
			opened++
		}
	}
	memory, mounts := 0, 0
	for _, i := range d.Of(learn.KindMount) {
		if i.Mount.Source == "" {
			memory++
		} else {
			mounts++
		}
	}
	rows := [][]string{
		{"workspace", fmt.Sprintf("%d opened, %d written", inside, written), d.Access.String()},
		{"files", fmt.Sprintf("%d opened", opened), output.Count(mounts, "mount", "mounts")},
		{"memory", "-", output.Count(memory, "place", "places")},
	}
	if d.Native {
		rows = append(rows, []string{"programs", fmt.Sprintf("%d executed", executed),
			output.Count(len(d.Of(learn.KindNative)), "name", "names")})
	} else {
		rows = append(rows, []string{"imports",
			fmt.Sprintf("%d functions", len(r.Observed.Imports)), "the interface of tools"})
	}
	rows = append(rows,
		[]string{"variables", "-",
			fmt.Sprint(len(d.Of(learn.KindEnv)) + len(d.Of(learn.KindGiven)))},
		[]string{"system calls", fmt.Sprintf("%d refused", refusedCalls(d)), groupNames(d)},
		[]string{"network", output.Count(len(r.Fetches), "request", "requests"),
			output.Count(len(d.Of(learn.KindFetch)), "host", "hosts")})
	if job.Base == nil {
		for _, l := range d.Limits {
			rows = append(rows, []string{"limit " + l.Name, l.Why, learn.Amount(l)})
		}
	}
	return rows
}

func refusedCalls(d learn.Draft) int {
	n := 0
	for _, p := range d.Person {
		if strings.HasPrefix(p, "seccomp: ") {
			n++
		}
	}
	return n
}

func groupNames(d learn.Draft) string {
	var names []string
	for _, i := range d.Of(learn.KindGroup) {
		names = append(names, i.Name)
	}
	return cmp.Or(strings.Join(names, " "), "-")
}

func shorten(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}
