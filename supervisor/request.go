package supervisor

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/profiles"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// A Request is what a caller asks for. Every part of it can only narrow what the ceiling and the
// profile grant.
type Request struct {
	// A name for it: an alias of its user alone, under which another user may have something
	// else. Without one it has its global id alone.
	ID string `json:"id,omitempty"`
	// A path to a .wasm file, a command of an installed bundle (grep, core-utils/grep), or a
	// program of the host where the policy has [tools] native. Empty with a script.
	Tool string `json:"tool"`
	// What follows the name of the tool.
	Args runners.Texts `json:"args,omitempty"`
	// Script is a shell script to run in place of a tool; Args are then its parameters.
	Script *Script `json:"script,omitempty"`
	// Name of a profile; empty is default.
	Profile string `json:"profile,omitempty"`
	// The text of a policy file, to use in place of a profile.
	Policy string `json:"policy,omitempty"`
	// What the policy is called in messages.
	PolicyName string `json:"policy_name,omitempty"`

	// The caller's working directory, an absolute path. Where it lies in the workspace, the
	// tool starts there.
	Dir string `json:"dir"`
	// The directory to make a shadow of, an absolute path; empty is dir. It is opened with the
	// rights of the caller.
	Workspace string `json:"workspace,omitempty"`
	// Run without a workspace.
	NoWorkspace bool `json:"no_workspace,omitempty"`
	// The working directory of the tool: a path below the workspace, or an absolute path in it,
	// of the host or of the jail (/workspace/...). Empty: where dir lies in the workspace, else
	// its root.
	Cwd string `json:"cwd,omitempty"`
	// What becomes of the shadow when the run has ended; without one it is kept if something
	// changed.
	Fate Fate `json:"fate,omitempty"`

	// Each KEY=VALUE, as in a policy file; narrows only.
	Limits []string `json:"limits,omitempty"`
	// NAME=VALUE, given with the run
	Env []string `json:"env,omitempty"`
	// Hosts; narrows only.
	Fetch []string `json:"fetch,omitempty"`
	// Terminal asks for a terminal of the jail's own, of that size, for a program of the host.
	Terminal *runners.Terminal `json:"terminal,omitempty"`
	// Tell in the result what the run opens, executes and writes, to make a policy from it.
	Learn bool `json:"learn,omitempty"`
	// Inherit is the caller's own environment, NAME=VALUE; the policy passes on what it names.
	Inherit []string `json:"inherit,omitempty"`
}

// A Script is a POSIX shell script to run in place of a tool; args are then its parameters. What
// jail sh does not support is an error with line and column before anything runs.
type Script struct {
	// of its file, for messages; "-c"
	Name string `json:"name"`
	Text string `json:"text"`
}

// Fate says what becomes of a shadow when its run has ended.
type Fate string

// Fates. Without one a shadow is kept if something changed.
const (
	FateDefault Fate = ""
	FateKeep    Fate = "keep"
	FateDiscard Fate = "discard"
	FateCommit  Fate = "commit"
)

// resolve meets the ceiling, the profile and the request.
func (s *Supervisor) resolve(c caller.Caller, req Request) (policy.Effective, error) {
	state, where := s.policies.Current(), places(c, req)
	ceiling, err := ceilingOf(state, where)
	if err != nil {
		return policy.Effective{}, err
	}
	if err := caller.MayUse(state.Rules(), c, req.Profile, req.Policy != "",
		req.PolicyName); err != nil {
		return policy.Effective{}, err
	}
	profile, err := profileOf(req, state.Set.For(where))
	if err != nil {
		return policy.Effective{}, err
	}
	flags, err := readFlags(req)
	if err != nil {
		return policy.Effective{}, err
	}
	eff, err := policy.Resolve(ceiling, profile, policy.Layer{Name: "request",
		Source: "command line", Policy: flags.Policy()})
	if err != nil {
		return eff, problem.New(problem.Usage, "%w", err)
	}
	return eff, nil
}

// places are what the variables of a policy stand for in this run.
func places(c caller.Caller, req Request) syntax.Places {
	p := syntax.Places{Home: c.Home}
	if req.NoWorkspace {
		return p
	}
	if p.Workspace = req.Workspace; p.Workspace == "" {
		p.Workspace = req.Dir
	}
	p.Workspace = filepath.Clean(p.Workspace)
	return p
}

// ceilingOf is the host's ceiling. Only a file that does not exist means that there is none; one
// that could never be read stops every run.
func ceilingOf(state *profiles.State, where syntax.Places) (policy.Layer, error) {
	file, ok, err := state.Ceiling(where)
	switch {
	case err != nil:
		return policy.Layer{}, problem.New(problem.Failed, "ceiling: %w", err).
			WithHint("jail policy check the ceiling")
	case !ok:
		return policy.Layer{Name: policy.CeilingLayer, Source: profiles.BuiltIn,
			Policy: policy.Top()}, nil
	}
	return file.Layer(policy.CeilingLayer, file.Source), nil
}

func profileOf(req Request, set *profiles.Set) (policy.Layer, error) {
	if req.Policy != "" {
		name := req.PolicyName
		file, err := set.Parse(syntax.Profile, name, []byte(req.Policy))
		if err != nil {
			return policy.Layer{}, problem.New(problem.Usage, "%w", err).
				WithHint("jail policy check " + name)
		}
		return file.Layer("policy "+name, name), nil
	}
	name := req.Profile
	if name == "" {
		name = "default"
	}
	p, err := set.Get(name)
	switch {
	case errors.Is(err, profiles.ErrNotFound):
		return policy.Layer{}, problem.New(problem.NotFound, "no profile is called %q", name).
			WithHint("jail profile list")
	case err != nil:
		return policy.Layer{}, problem.New(problem.Usage, "%w", err).
			WithHint("jail policy check, or jail profile show " + name)
	}
	return p.File.Layer("profile "+name, p.Origin), nil
}

// toolDenied says why a tool may not run, by the decision that refused it.
func toolDenied(what string, d policy.Decision) *problem.Error {
	return problem.New(problem.Refused, "%s is not allowed: %s (%s)", what, d.Rule, d.Layer).
		WithDenied([]runners.Denial{{Layer: "policy", What: what, Rule: d.Layer + ": " + d.Rule,
			Count: 1}}).
		WithHint("jail profile list shows the profiles; jail policy show NAME what one grants")
}

// readFlags reads what the caller narrows.
func readFlags(req Request) (*policy.Request, error) {
	for flag, given := range map[string][]string{"limit": req.Limits, "env": req.Env,
		"fetch": req.Fetch} {
		if len(given) > policy.MaxItems {
			return nil, problem.New(problem.Usage, "--%s is given %d times: at most %d", flag,
				len(given), policy.MaxItems)
		}
	}
	flags := policy.NewRequest()
	for _, text := range req.Limits {
		if err := flags.Limit(text); err != nil {
			return nil, problem.New(problem.Usage, "--limit: %v", err)
		}
	}
	for _, text := range req.Env {
		if err := flags.Env(text); err != nil {
			return nil, problem.New(problem.Usage, "--env: %v", err)
		}
	}
	for _, host := range req.Fetch {
		if err := flags.Fetch(host); err != nil {
			return nil, problem.New(problem.Usage, "--fetch: %v", err)
		}
	}
	if req.NoWorkspace {
		flags.Workspace(policy.WorkspaceNone)
	}
	return flags, nil
}

// environ makes the tool's whole environment.
func environ(eff policy.Effective, req Request, cwd string) ([]string, error) {
	flags, err := readFlags(req)
	if err != nil {
		return nil, err
	}
	inherited := map[string]string{}
	for _, text := range req.Inherit {
		if name, value, ok := strings.Cut(text, "="); ok {
			inherited[name] = value
		}
	}
	env, denied := eff.Policy().Env.Environ(flags.Given(), inherited)
	if len(denied) > 0 {
		d := eff.Decide(policy.EnvVar{Name: denied[0]})
		return nil, problem.New(problem.Refused, "variable %s is not allowed: %s (%s)", denied[0],
			d.Rule, d.Layer).
			WithDenied([]runners.Denial{{Layer: "policy", What: "env " + denied[0], Rule: d.Layer +
				": " + d.Rule, Count: 1}}).
			WithHint("env.allow in the profile names the variables that a run may set")
	}
	// PWD is the runner's own: it tells a C library without a working directory where it is.
	env = slices.DeleteFunc(env, func(e string) bool { return strings.HasPrefix(e, "PWD=") })
	return append(env, "PWD="+cwd), nil
}

func isNotExist(err error) bool { return errors.Is(err, os.ErrNotExist) }

// digestOf is of all that was asked for, by which the same request is known when it comes again.
func digestOf(request any) string {
	text, err := json.Marshal(request)
	if err != nil {
		panic(fmt.Sprintf("bug: a request that is not JSON: %v", err))
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
