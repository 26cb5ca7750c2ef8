package main

import (
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

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/learn"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/supervisor"
	"github.com/jail-sandbox/jail/supervisor/api"
	learning "github.com/jail-sandbox/jail/supervisor/learn"
)

const learnAbout = `Run a tool, watch what it uses, and write the least policy under which it does the same.

The runs are jailed: over a shadow that is thrown away, with limits, without what looks like a secret, without a network but the hosts of --fetch, and on
record. A tool of a bundle or a .wasm file gets what such a tool gets; a program of the host (an absolute path, a name that no bundle has, or --native) is
shown /usr and its like, read-only, and the directories of --read. Two runs say what of the tool's doing is always the same; then each grant is tried
without, and what the tool does the same without is left out (--no-trials leaves that, and is what a run with --fetch does unless --trials is given,
since each trial makes its requests anew). Standard input is read to its end and given to each run.

The policy goes to FILE or to standard output, with the evidence beside each line, and with what was used and is not granted: that needs a person. A
FILE that exists keeps what it grants, and gets what is missing. From a tool that fails nothing is learnt, unless --on-failure says so.`

// learnFlags are those of policy learn.
type learnFlags struct {
	workspace                   string
	noWorkspace, native         bool
	env, fetch, read            []string
	output, merge, name         string
	runs                        int
	trials, noTrials, onFailure bool
	force, json, quiet          bool
}

func (a *app) policyLearnCommand() *cobra.Command {
	var f learnFlags
	cmd := &cobra.Command{
		Use:               "learn [flags] [--] TOOL [ARG...]",
		Short:             "make the least policy for a tool by watching it",
		Long:              learnAbout,
		Example:           "  jail policy learn -o grep.toml -- grep -rn TODO .\n  jail policy learn --native -o status.toml -- git status\n  jail policy learn -o status.toml -- git log    # more of the same policy\n  jail policy learn --fetch example.com -- curl -s https://example.com/",
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: a.completeTools,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("usage: "+cmd.UseLine(), "%s: TOOL is missing", cmd.CommandPath())
			}
			return a.learn(cmd.Context(), &f, args)
		},
	}
	set := cmd.Flags()
	set.SetInterspersed(false)
	set.SortFlags = false
	set.StringVarP(&f.output, "output", "o", "", "write to `FILE`; one that exists is added to")
	set.StringVar(&f.merge, "merge", "", "add to the policy in `FILE`, and write it there unless -o says where")
	set.BoolVar(&f.force, "force", false, "replace a file that exists")
	set.StringVar(&f.name, "name", "", "`NAME` of the policy (default that of the file, or the tool's)")
	set.BoolVar(&f.native, "native", false, "learn the host's program, also where a bundle has a command of that name")
	set.StringVar(&f.workspace, "workspace", ".", "`DIR` that the tool gets a shadow of")
	set.BoolVar(&f.noWorkspace, "no-workspace", false, "run without a workspace")
	set.StringArrayVar(&f.env, "env", nil, "give the tool a variable (`NAME=VALUE`, repeatable)")
	set.StringArrayVar(&f.fetch, "fetch", nil, "let it reach `HOST[:PORT]`, or * for any public host (repeatable)")
	set.StringArrayVar(&f.read, "read", nil, "show it `DIR` of the host, to read and run from (repeatable)")
	set.IntVar(&f.runs, "runs", 2, "learn from `N` runs, at least 2")
	set.BoolVar(&f.trials, "trials", false, "try each grant without, also with --fetch")
	set.BoolVar(&f.noTrials, "no-trials", false, "grant what was observed, and try nothing without")
	set.BoolVar(&f.onFailure, "on-failure", false, "learn also from a tool that does not exit with 0")
	set.BoolVar(&f.json, "json", false, "print one object: the policy, what was observed, and what is granted")
	set.BoolVar(&f.quiet, "quiet", false, "say nothing but errors")
	return cmd
}

func (a *app) learn(ctx context.Context, f *learnFlags, args []string) error {
	job, err := a.learnJob(f, args)
	if err != nil {
		return err
	}
	var report learning.Report
	err = a.withDaemon(ctx, func(c *api.Client) (err error) {
		report, err = learning.Learn(ctx, c, job)
		return err
	})
	if job.Progress != nil {
		io.WriteString(a.stderr, "\r\x1b[K")
	}
	var unlike *learning.Unlike
	switch {
	case errors.Is(err, learning.ErrFailed):
		say(a.stderr, "error", err.Error()+"; nothing is written")
		say(a.stderr, "hint", "--on-failure learns what it needs to fail so")
		if report.ExitCode == 0 {
			return exitNo
		}
		return code(report.ExitCode)
	case errors.As(err, &unlike):
		return failed(err, "a tool whose runs differ by themselves can be learnt with --no-trials, or not at all", "%v; nothing is written", err)
	case err != nil:
		return err
	}
	return a.learnt(f, job, report)
}

// learnt writes what was learnt, and says it.
func (a *app) learnt(f *learnFlags, job learning.Job, report learning.Report) error {
	path := f.output
	if path == "" {
		path = f.merge
	}
	if path != "" {
		if err := writePolicy(path, report.Text, true); err != nil {
			return err
		}
	}
	switch {
	case f.json:
		view := struct {
			learning.Report
			File string `json:"file,omitempty"`
		}{report, path}
		return a.printJSON(view)
	case path == "":
		if err := a.print(func(w io.Writer) error { _, err := io.WriteString(w, printableText(report.Text)); return err }); err != nil {
			return err
		}
	}
	if !f.quiet {
		a.tellLearnt(job, report, path)
	}
	return nil
}

// writePolicy puts a policy into a file in one step. One that exists must be a regular file, and may be replaced only where over says so.
func writePolicy(path, text string, over bool) error {
	mode := fs.FileMode(0o644)
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return policyError(path, err)
	case !info.Mode().IsRegular():
		return usage("name the file itself", "%s is no regular file", path)
	case !over:
		return usage("--force replaces it", "%s exists", path)
	default:
		mode = info.Mode().Perm()
	}
	if err := replaceFile(path, []byte(text), mode); err != nil {
		return failed(err, "", "%s: %v", path, cause(err))
	}
	return nil
}

// maxLearnInput bounds what is read of standard input, in bytes: each run gets all of it.
const maxLearnInput = 64 << 20

func (a *app) learnJob(f *learnFlags, args []string) (job learning.Job, err error) {
	switch {
	case f.trials && f.noTrials:
		return job, usage("", "--trials and --no-trials contradict each other")
	case f.noWorkspace && f.workspace != ".":
		return job, usage("", "--workspace and --no-workspace contradict each other")
	case f.runs < 2 || f.runs > 100:
		return job, usage("", "--runs %d: from 2 to 100", f.runs)
	case f.merge != "" && f.force:
		return job, usage("", "--merge and --force contradict each other")
	}
	for _, path := range []string{f.output, f.merge} { // before a tool runs for it
		if info, err := os.Lstat(path); path != "" && err == nil && !info.Mode().IsRegular() {
			return job, usage("name the file itself", "%s is no regular file", path)
		}
	}
	req := supervisor.Request{Tool: args[0], Args: args[1:], NoWorkspace: f.noWorkspace, Env: f.env}
	shape := &requestFlags{workspace: f.workspace, noWorkspace: f.noWorkspace}
	for _, step := range []func(*requestFlags, *supervisor.Request) error{checkNarrowing, takeDirs, checkTexts} {
		if err := step(shape, &req); err != nil {
			return job, err
		}
	}
	job = learning.Job{Request: req, Runs: f.runs, Trials: !f.noTrials && (f.trials || len(f.fetch) == 0), OnFailure: f.onFailure,
		Out: a.stdout, Err: a.stderr, Names: linkNames, Progress: a.learnProgress(f.quiet || f.json)}
	if f.json {
		job.Out, job.Err = io.Discard, io.Discard
	} else if f.output == "" && f.merge == "" {
		job.Out = a.stderr // standard output is the policy's
	}
	for _, p := range []string{"/lib64/ld-linux-x86-64.so.2", "/lib/ld-musl-x86_64.so.1"} {
		if _, err := os.Stat(p); err == nil {
			job.Loaders = append(job.Loaders, p)
		}
	}
	if job.Base, err = a.learnBase(f); err != nil {
		return job, err
	}
	if job.Asked, err = a.asked(f, req); err != nil {
		return job, err
	}
	job.Stdin, err = a.learnInput()
	return job, err
}

// learnInput reads standard input, where it is no terminal.
func (a *app) learnInput() ([]byte, error) {
	if a.stdin == nil || isTerminal(a.stdin) {
		return nil, nil
	}
	text, err := io.ReadAll(io.LimitReader(a.stdin, maxLearnInput+1))
	switch {
	case err != nil:
		return nil, failed(err, "", "standard input: %v", cause(err))
	case len(text) > maxLearnInput:
		return nil, usage("learn from less", "standard input: more than %s", size(maxLearnInput))
	}
	return text, nil
}

// learnBase reads the policy that is added to, if there is one.
func (a *app) learnBase(f *learnFlags) (*learn.Base, error) {
	path := f.merge
	if path == "" && f.output != "" && !f.force {
		if _, err := os.Lstat(f.output); err == nil {
			path = f.output
		}
	}
	if path == "" {
		return nil, nil
	}
	text, err := readPolicy(path)
	if err != nil {
		return nil, err
	}
	set, err := a.loadProfiles()
	if err != nil {
		return nil, err
	}
	file, err := set.Parse(syntax.Profile, path, text)
	if err != nil {
		return nil, usage("jail policy check "+path+"; --force replaces it", "%v", err)
	}
	return &learn.Base{Text: string(text), Policy: file.Policy}, nil
}

// asked says what the runs may do.
func (a *app) asked(f *learnFlags, req supervisor.Request) (learn.Asked, error) {
	line := []string{"jail", "run", "--policy", "FILE", "--", req.Tool}
	if f.output != "" {
		line[3] = f.output
	} else if f.merge != "" {
		line[3] = f.merge
	}
	for _, arg := range req.Args {
		line = append(line, quoteArg(arg))
	}
	out := learn.Asked{NoWorkspace: f.noWorkspace, Native: a.isNative(f, req.Tool), Run: strings.Join(line, " ")}
	out.About = "Learnt from: " + shorten(strings.Join(line[5:], " "), 200)
	if out.Name = f.name; out.Name == "" {
		out.Name = policyName(f.output, req.Tool)
	}
	if err := syntax.CheckName(out.Name); err != nil {
		return out, usage("", "--name: %v", err)
	}
	for _, v := range f.env {
		name, _, _ := strings.Cut(v, "=")
		out.Given = append(out.Given, name)
	}
	for _, text := range f.fetch {
		h, err := hostPort(text)
		if err != nil {
			return out, usage("", "--fetch %s: %v", text, err)
		}
		out.Hosts = append(out.Hosts, h)
	}
	return out, a.askedMounts(f, &out)
}

// askedMounts are what the runs are shown of this host.
func (a *app) askedMounts(f *learnFlags, out *learn.Asked) error {
	if out.Native {
		for _, m := range learn.WideMounts() {
			if _, err := os.Stat(m.Source); err == nil {
				out.Mounts = append(out.Mounts, m)
			}
		}
	}
	for _, dir := range f.read {
		path, err := filepath.Abs(dir)
		if err == nil {
			_, err = os.Stat(path)
		}
		if err != nil {
			return notFound("", "--read %s: %v", dir, cause(err))
		}
		if !learn.Sayable(path) {
			return usage("", "--read %q: a policy cannot say this name", dir)
		}
		access := policy.Read
		if out.Native {
			access |= policy.Exec
		}
		m := policy.Mount{Source: path, Target: path, Access: access}
		for _, w := range (policy.Policy{Mounts: policy.Mounts{m}}).Warnings() {
			say(a.stderr, "warning", w)
		}
		out.Mounts = append(out.Mounts, m)
	}
	return nil
}

// isNative reports whether the tool is a program of the host: named by a path of its own, or by a name that no bundle has.
func (a *app) isNative(f *learnFlags, tool string) bool {
	if strings.HasSuffix(tool, ".wasm") {
		return false
	}
	_, command, two := strings.Cut(tool, "/")
	if !two {
		command = tool
	}
	return f.native || filepath.IsAbs(tool) || strings.HasPrefix(tool, "./") || strings.HasPrefix(tool, "../") || len(a.commands()(command)) == 0
}

// policyName makes a name of that of the file, or of the tool.
func policyName(file, tool string) string {
	base := strings.TrimSuffix(filepath.Base(tool), ".wasm")
	if file != "" {
		base = strings.TrimSuffix(filepath.Base(file), ".toml")
	}
	var b strings.Builder
	for _, r := range strings.ToLower(base) {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' {
			b.WriteRune(r)
		} else {
			b.WriteByte('-')
		}
	}
	if name := strings.Trim(b.String(), "-"); syntax.CheckName(name) == nil {
		return name
	}
	return "learnt"
}

// hostPort reads HOST or HOST:PORT.
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

// linkNames are the names in a program's directory that lead to the same file.
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
