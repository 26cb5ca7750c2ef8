package policy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/cmd/jail/internal/policies"
	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/meaning"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

func newTest(env *cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "test [flags] FILE...",
		Short: "test policies against files of expectations",
		Long: `Test a policy against a file of expectations: my.expect is about my.toml, or about
the profile that its first line names (policy NAME). Each line is one expectation:

  allow|deny|ask QUESTION       read PATH, write PATH, exec TOOL, connect HOST:PORT, connect GET https://HOST/PATH,
                                env NAME, commit PATH, limit NAME=AMOUNT
  run TOOL [ARG...] => END      exit N, refused, or limit NAME; in a workspace of its own
  file NAME TEXT                put a file into that workspace

Questions are answered under the ceiling of this host, without a run; only lines with run start
one. --no-run skips such lines, and reports them. The exit code is 1 if an expectation fails, else
0.`,
		Example: "  jail policy test my.expect\n  jail policy test --no-run profiles/*.expect",
		Args:    command.AtLeast("FILE"),
	}
	noRun := cmd.Flags().Bool("no-run", false, "decide what needs no kernel, and start nothing")
	return command.Judge(env, cmd, "print a list of objects",
		func(cmd *cobra.Command, args []string) (all []tested, good bool, err error) {
			good = true
			for _, path := range args {
				one, err := testPolicy(cmd.Context(), env, path, *noRun)
				if err != nil {
					return nil, false, err
				}
				good = good && !slices.ContainsFunc(one.Findings,
					func(f meaning.Finding) bool { return !f.OK })
				all = append(all, one)
			}
			return all, good, nil
		}, writeTested)
}

// A tested file has the results of its expectations.
type tested struct {
	File     string            `json:"file"`
	Policy   string            `json:"policy"`
	Findings []meaning.Finding `json:"findings"`
	// the number of runs that were not started
	Left int `json:"left_out"`
}

func writeTested(w io.Writer, all []tested) {
	for _, t := range all {
		kept := 0
		for _, f := range t.Findings {
			if f.OK {
				kept++
				continue
			}
			fmt.Fprintln(w, output.Printable(fmt.Sprintf("%s:%d: %s: got %s", t.File,
				f.Line, f.Text, f.Got)))
		}
		text := fmt.Sprintf("%s: %d of %d kept by %s", t.File, kept, len(t.Findings), t.Policy)
		if t.Left > 0 {
			text += fmt.Sprintf(", %s not started", output.Count(t.Left, "run", "runs"))
		}
		fmt.Fprintln(w, output.Printable(text))
	}
}

func testPolicy(ctx context.Context, env *cli.Env, path string, noRun bool) (tested, error) {
	out := tested{File: path, Findings: []meaning.Finding{}}
	text, err := policies.Read(path)
	if err != nil {
		return out, err
	}
	want, err := meaning.ParseExpectations(path, text)
	if err != nil {
		return out, exit.Usage("jail policy test --help", "%v", err)
	}
	if out.Policy = want.Policy; out.Policy == "" {
		out.Policy = beside(path)
	}
	eff, err := effective(env, out.Policy)
	if err != nil {
		return out, err
	}
	var files []meaning.Expectation
	for _, e := range want.Lines {
		var f meaning.Finding
		switch {
		case e.Want == "file":
			files = append(files, e)
			continue
		case e.Want == "run" && noRun:
			out.Left++
			continue
		case e.Want == "run":
			f, err = runExpected(ctx, env, out.Policy, e, files)
		default:
			f, err = e.Judge(eff, policies.Commands(env))
		}
		if err != nil {
			return out, err
		}
		out.Findings = append(out.Findings, f)
	}
	return out, nil
}

// beside returns the default policy of a test file: the file of its name with .toml.
func beside(path string) string {
	file := strings.TrimSuffix(path, filepath.Ext(path)) + ".toml"
	if !filepath.IsAbs(file) {
		file = "./" + file
	}
	return file
}

func effective(env *cli.Env, name string) (policy.Effective, error) {
	set, file, err := policies.OpenAlone(env, name)
	if err != nil {
		return policy.Effective{}, err
	}
	return policies.UnderCeiling(env, set, file.Layer("policy "+name, file.Source))
}

// runExpected runs a tool in a fresh directory with the given files and compares the outcome.
func runExpected(ctx context.Context, env *cli.Env, name string, e meaning.Expectation,
	files []meaning.Expectation) (f meaning.Finding, err error) {
	f = meaning.Finding{Line: e.Line, Text: e.Text}
	dir, err := os.MkdirTemp("", "jail-policy-test-")
	if err != nil {
		return f, exit.Failed(err, "", "a directory for the run: %v", exit.Cause(err))
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	for _, file := range files {
		at := filepath.Join(dir, file.File)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755),
			os.WriteFile(at, []byte(file.Content), 0o644)); err != nil {
			return f, exit.Failed(err, "", "%s:%d: %v", file.File, file.Line, exit.Cause(err))
		}
	}
	req := message.Request{ID: string(jail.NewID()), Tool: e.Command[0], Args: e.Command[1:],
		Dir: dir, Fate: message.FateDiscard}
	if policies.NamesFile(name) {
		text, err := policies.Read(name)
		if err != nil {
			return f, err
		}
		req.Policy, req.PolicyName = string(text)+"\n", name
	} else {
		req.Profile = name
	}
	var res message.Result
	var printed bytes.Buffer
	err = env.WithDaemon(ctx, func(c *api.Client) (err error) {
		res, err = c.RunSized(ctx, req, strings.NewReader(""), io.Discard, &printed, nil)
		return err
	})
	if err != nil {
		return f, err
	}
	got := meaning.Outcome{Exit: res.ExitCode}
	switch {
	case res.Limit != nil:
		got = meaning.Outcome{Limit: res.Limit.Name}
	case res.Error != nil && res.Error.Code == problem.Refused:
		got = meaning.Outcome{Refused: true}
	}
	f.OK, f.Got = got == e.Outcome, got.String()
	switch {
	case res.Error != nil:
		f.Got += ": " + res.Error.Message
	case !f.OK && printed.Len() > 0:
		f.Got += ": " + syntax.FirstLine(printed.String())
	}
	return f, nil
}
