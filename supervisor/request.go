package supervisor

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/profiles"
	"github.com/jail-sandbox/jail/runners"
)

// A Request is what a caller asks for. Every part of it can only narrow what the ceiling and the profile grant.
type Request struct {
	ID   string        `json:"id,omitempty"`
	Tool string        `json:"tool"`
	Args runners.Texts `json:"args,omitempty"` // after the name of the tool
	// Script is a shell script to run in place of a tool; Args are then its parameters.
	Script  *Script `json:"script,omitempty"`
	Profile string  `json:"profile,omitempty"`
	// Policy is the text of a policy file to use in place of a profile, PolicyName what it is called in messages.
	Policy     string `json:"policy,omitempty"`
	PolicyName string `json:"policy_name,omitempty"`

	Dir         string `json:"dir"`                 // the caller's working directory
	Workspace   string `json:"workspace,omitempty"` // an absolute path; empty is Dir
	NoWorkspace bool   `json:"no_workspace,omitempty"`
	Fate        Fate   `json:"fate,omitempty"`

	Limits []string `json:"limits,omitempty"` // KEY=VALUE
	Env    []string `json:"env,omitempty"`    // NAME=VALUE, given with the run
	Fetch  []string `json:"fetch,omitempty"`  // hosts
	// Terminal asks for a terminal of the jail's own, of that size, for a program of the host.
	Terminal *runners.Terminal `json:"terminal,omitempty"`
	// Learn asks for what the run opens, executes and writes, to make a policy from it. The run is the same, and so are its walls.
	Learn bool `json:"learn,omitempty"`
	// Inherit is the caller's own environment, NAME=VALUE; the policy passes on what it names.
	Inherit []string `json:"inherit,omitempty"`
}

// Script is a shell script.
type Script struct {
	Name string `json:"name"` // of its file, for messages; "-c"
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
func (s *Supervisor) resolve(c Caller, req Request) (policy.Effective, error) {
	state, where := s.policies.Current(), places(c, req)
	ceiling, err := ceilingOf(state, where)
	if err != nil {
		return policy.Effective{}, err
	}
	if err := admits(state.Rules(), c, req); err != nil {
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
	eff, err := policy.Resolve(ceiling, profile, policy.Layer{Name: "request", Source: "command line", Policy: flags.Policy()})
	if err != nil {
		return eff, &Error{Code: CodeUsage, Message: err.Error(), Err: err}
	}
	return eff, nil
}

// places are what the variables of a policy stand for in this run.
func places(c Caller, req Request) syntax.Places {
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

// ceilingOf is the host's ceiling. Only a file that does not exist means that there is none; one that could never be read stops every run.
func ceilingOf(state *profiles.State, where syntax.Places) (policy.Layer, error) {
	file, ok, err := state.Ceiling(where)
	switch {
	case err != nil:
		return policy.Layer{}, failed(err, "jail policy check the ceiling", "ceiling: %v", err)
	case !ok:
		return policy.Layer{Name: policy.CeilingLayer, Source: profiles.BuiltIn, Policy: policy.Top()}, nil
	}
	return file.Layer(policy.CeilingLayer, file.Source), nil
}

func profileOf(req Request, set *profiles.Set) (policy.Layer, error) {
	if req.Policy != "" {
		name := req.PolicyName
		file, err := set.Parse(syntax.Profile, name, []byte(req.Policy))
		if err != nil {
			return policy.Layer{}, &Error{Code: CodeUsage, Message: err.Error(), Err: err, Hint: "jail policy check " + name}
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
		return policy.Layer{}, notFound("jail profile list", "no profile is called %q", name)
	case err != nil:
		return policy.Layer{}, &Error{Code: CodeUsage, Message: err.Error(), Err: err, Hint: "jail policy check, or jail profile show " + name}
	}
	return p.File.Layer("profile "+name, p.Origin), nil
}

// toolDenied says why a tool may not run, by the decision that refused it.
func toolDenied(what string, d policy.Decision) *Error {
	return refused([]runners.Denial{{Layer: "policy", What: what, Rule: d.Layer + ": " + d.Rule, Count: 1}},
		"jail profile list shows the profiles; jail policy show NAME what one grants",
		"%s is not allowed: %s (%s)", what, d.Rule, d.Layer)
}

// readFlags reads what the caller narrows.
func readFlags(req Request) (*policy.Request, error) {
	flags := policy.NewRequest()
	for _, text := range req.Limits {
		if err := flags.Limit(text); err != nil {
			return nil, usage("--limit: %v", err)
		}
	}
	for _, text := range req.Env {
		if err := flags.Env(text); err != nil {
			return nil, usage("--env: %v", err)
		}
	}
	for _, host := range req.Fetch {
		if err := flags.Fetch(host); err != nil {
			return nil, usage("--fetch: %v", err)
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
		return nil, refused([]runners.Denial{{Layer: "policy", What: "env " + denied[0], Rule: d.Layer + ": " + d.Rule, Count: 1}},
			"env.allow in the profile names the variables that a run may set", "variable %s is not allowed: %s (%s)", denied[0], d.Rule, d.Layer)
	}
	// PWD is the runner's own: it tells a C library without a working directory where it is.
	env = slices.DeleteFunc(env, func(e string) bool { return strings.HasPrefix(e, "PWD=") })
	return append(env, "PWD="+cwd), nil
}

func describe(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		return fmt.Sprintf("%s: %v", path.Path, path.Err)
	}
	return err.Error()
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
