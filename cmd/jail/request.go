package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/supervisor"
)

// requestFlags are the flags that say what to run and with what.
type requestFlags struct {
	profile, policy        string
	workspace              string
	noWorkspace            bool
	keep, discard, commit  bool
	limits, env, fetch     []string
	id                     string
	json, quiet            bool
	profileSet, policyFile bool
}

func (f *requestFlags) add(cmd *cobra.Command, printsJSON string) {
	set := cmd.Flags()
	set.SetInterspersed(false) // what follows the tool's name is the tool's
	set.SortFlags = false
	set.StringVar(&f.profile, "profile", "default", "profile `NAME` to run with")
	set.StringVar(&f.policy, "policy", "", "policy `FILE` to run with, instead of a profile")
	set.StringVar(&f.workspace, "workspace", ".", "`DIR` that the tool gets a shadow of")
	set.BoolVar(&f.noWorkspace, "no-workspace", false, "run without a workspace")
	set.BoolVar(&f.keep, "keep", false, "keep the shadow, even if nothing changed")
	set.BoolVar(&f.discard, "discard", false, "throw the shadow away")
	set.BoolVar(&f.commit, "commit", false, "commit what changed, if the tool exits with 0")
	set.StringArrayVar(&f.limits, "limit", nil, "narrow a limit, such as memory=64MiB (`KEY=VALUE`, repeatable)")
	set.StringArrayVar(&f.env, "env", nil, "give the tool a variable (`NAME=VALUE`, repeatable)")
	set.StringArrayVar(&f.fetch, "fetch", nil, "narrow the network to `HOST` (repeatable)")
	set.StringVar(&f.id, "id", "", "name the run `ID` (default a random one)")
	set.BoolVar(&f.json, "json", false, printsJSON)
	set.BoolVar(&f.quiet, "quiet", false, "say nothing but errors")
}

// request makes the request, and refuses what can be refused without asking anyone.
func (a *app) request(cmd *cobra.Command, f *requestFlags, args []string) (supervisor.Request, error) {
	req, err := a.settings(cmd, f)
	if err != nil {
		return req, err
	}
	if len(args) == 0 {
		return req, usage("usage: "+cmd.UseLine(), "%s: TOOL is missing", cmd.CommandPath())
	}
	req.Tool, req.Args = args[0], args[1:]
	return req, checkTexts(f, &req)
}

// settings make of the flags what there is of a request without a tool.
func (a *app) settings(cmd *cobra.Command, f *requestFlags) (supervisor.Request, error) {
	f.profileSet, f.policyFile = cmd.Flags().Changed("profile"), cmd.Flags().Changed("policy")
	req := supervisor.Request{ID: f.id, Profile: f.profile, NoWorkspace: f.noWorkspace, Limits: f.limits, Env: f.env, Fetch: f.fetch}
	for _, step := range []func(*requestFlags, *supervisor.Request) error{checkExclusive, takeID, checkNarrowing, takeDirs, takePolicy, checkTexts} {
		if err := step(f, &req); err != nil {
			return req, err
		}
	}
	for _, v := range a.environ {
		if utf8.ValidString(v) { // what is no text cannot travel whole, and half of it would be something else
			req.Inherit = append(req.Inherit, v)
		}
	}
	return req, nil
}

func checkExclusive(f *requestFlags, req *supervisor.Request) error {
	fates := []struct {
		on   bool
		fate supervisor.Fate
	}{{f.keep, supervisor.FateKeep}, {f.discard, supervisor.FateDiscard}, {f.commit, supervisor.FateCommit}}
	for _, x := range fates {
		if x.on && req.Fate != "" {
			return usage("", "--%s and --%s contradict each other", req.Fate, x.fate)
		}
		if x.on {
			req.Fate = x.fate
		}
	}
	switch {
	case f.profileSet && f.policyFile:
		return usage("", "--profile and --policy contradict each other")
	case f.noWorkspace && f.workspace != ".":
		return usage("", "--workspace and --no-workspace contradict each other")
	}
	return nil
}

// takeID chooses the run's name here, so that the client can end the run by it.
func takeID(_ *requestFlags, req *supervisor.Request) error {
	if req.ID == "" {
		req.ID = string(jail.NewID())
		return nil
	}
	if _, err := jail.ParseID(req.ID); err != nil {
		return usage("", "--id: %v", err)
	}
	return nil
}

func checkNarrowing(_ *requestFlags, req *supervisor.Request) error {
	r := policy.NewRequest()
	for _, flag := range []struct {
		name string
		take func(string) error
		all  []string
	}{{"limit", r.Limit, req.Limits}, {"env", r.Env, req.Env}, {"fetch", r.Fetch, req.Fetch}} {
		for _, text := range flag.all {
			if err := flag.take(text); err != nil {
				return usage("", "--%s: %v", flag.name, err)
			}
		}
	}
	return nil
}

func takeDirs(f *requestFlags, req *supervisor.Request) error {
	dir, err := os.Getwd()
	switch {
	case err == nil:
		req.Dir = dir
	case f.noWorkspace || filepath.IsAbs(f.workspace):
		req.Dir = "/"
	default:
		return notFound("go to another directory", "the current directory: %v", cause(err))
	}
	if f.workspace != "." {
		req.Workspace = f.workspace
		if !filepath.IsAbs(f.workspace) {
			req.Workspace = filepath.Join(dir, f.workspace)
		}
	}
	return nil
}

func takePolicy(f *requestFlags, req *supervisor.Request) error {
	if !f.policyFile {
		return nil
	}
	text, err := readPolicy(f.policy)
	if err != nil {
		return err
	}
	// A file with nothing in it is a policy that lacks everything, and not the absence of one.
	req.Profile, req.Policy, req.PolicyName = "", string(text)+"\n", f.policy
	return nil
}

// readPolicy reads a file that somebody named as a policy.
func readPolicy(path string) ([]byte, error) {
	// Not to wait for who writes to a FIFO that lies about; what a shell or a caller hands over is in /dev/fd.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, policyError(path, err)
	}
	defer f.Close()
	switch info, err := f.Stat(); {
	case err != nil:
		return nil, policyError(path, err)
	case info.IsDir():
		return nil, usage("name a file in it", "policy %s: it is a directory", path)
	case info.Mode()&fs.ModeNamedPipe != 0 && !strings.HasPrefix(path, "/dev/") && !strings.HasPrefix(path, "/proc/"):
		return nil, usage("put the policy into a file, or hand it over as /dev/stdin", "policy %s: it is a FIFO", path)
	}
	text, err := io.ReadAll(io.LimitReader(f, syntax.MaxBytes+1))
	switch {
	case err != nil:
		return nil, policyError(path, err)
	case len(text) > syntax.MaxBytes:
		return nil, usage("", "policy %s: larger than %s", path, size(syntax.MaxBytes))
	case !utf8.Valid(text):
		return nil, usage("", "policy %s: it is not UTF-8", path)
	}
	return text, nil
}

func policyError(path string, err error) error {
	e := describe(err)
	e.Message = fmt.Sprintf("policy %s: %v", path, cause(err))
	if errors.Is(err, fs.ErrNotExist) {
		e.Hint = "jail profile list shows the profiles; a file is named by its path from here"
	}
	return e
}

// checkTexts refuses what would not arrive as it is: the tool's arguments may be any bytes, names and variables are text.
func checkTexts(_ *requestFlags, req *supervisor.Request) error {
	for what, text := range map[string]string{"tool": req.Tool, "workspace": req.Workspace, "current directory": req.Dir,
		"policy": req.PolicyName, "--env": strings.Join(req.Env, "")} {
		if !utf8.ValidString(text) {
			return usage("", "%s %q: it is not UTF-8", what, text)
		}
	}
	return nil
}
