package prepare

import (
	"cmp"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/profiles"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// requestLayer and invocationLayer are the names of the layers that a run's own request adds.
const requestLayer, invocationLayer = "request", "invocation"

// maxNarrow is how many narrowing policies a request may have.
const maxNarrow = 16

// resolve returns the meet of the ceiling, the profile, the request's narrowing policies, and its
// flags.
func (s *Preparer) resolve(c caller.Caller, req message.Request) (policy.Effective, error) {
	set, layers, err := s.granted(c, req)
	if err != nil {
		return policy.Effective{}, err
	}
	if layers[1], err = s.widened(c, req, layers[1]); err != nil {
		return policy.Effective{}, err
	}
	flags, err := readFlags(req)
	if err != nil {
		return policy.Effective{}, err
	}
	if len(req.Narrow) > maxNarrow {
		return policy.Effective{}, problem.New(problem.Usage, "%d policies that narrow: at most %d",
			len(req.Narrow), maxNarrow)
	}
	for _, n := range req.Narrow {
		layer, err := parsed(set, n.Name, n.Policy)
		if err != nil {
			return policy.Effective{}, err
		}
		layers = append(layers, layer)
	}
	return resolve(append(layers, policy.Layer{Name: requestLayer, Source: "command line",
		Policy: flags.Policy()}))
}

// granted returns the layers that a caller may use: the ceiling, and the profile or policy of the
// request. It also returns the profiles with the variables of the request filled in.
func (s *Preparer) granted(c caller.Caller, req message.Request) (*profiles.Set, []policy.Layer,
	error) {
	state, where := s.o.Policies(), places(c, req)
	ceiling, err := ceilingOf(state, where)
	if err != nil {
		return nil, nil, err
	}
	if err := caller.MayUse(state.Rules(), c, req.Profile, req.Policy != "",
		req.PolicyName); err != nil {
		return nil, nil, err
	}
	set := state.Set.For(where)
	profile, err := profileOf(req, set)
	return set, []policy.Layer{ceiling, profile}, err
}

// resolve returns the meet of layers. One is the caller's, so an error is a usage error.
func resolve(layers []policy.Layer) (policy.Effective, error) {
	eff, err := policy.Resolve(layers...)
	if err != nil {
		return eff, problem.New(problem.Usage, "%w", err)
	}
	return eff, nil
}

// places returns the values of the variables in policies for this run.
func places(c caller.Caller, req message.Request) syntax.Places {
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

// ceilingOf returns the host's ceiling. Without a ceiling file it grants everything; a file that
// could never be read is an error, which stops every run.
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

// maxGrants is how many grants of a policy one run may name.
const maxGrants = 20

// widened returns the profile's layer with the grants of the run added.
func (s *Preparer) widened(c caller.Caller, req message.Request,
	profile policy.Layer) (policy.Layer, error) {
	if len(req.Grants) == 0 {
		return profile, nil
	}
	if len(req.Grants) > maxGrants || req.Policy != "" {
		return profile, problem.New(problem.Usage,
			"grants: a run names at most %d, with a profile and no policy file", maxGrants)
	}
	for _, id := range req.Grants {
		w, err := s.grant(c, req, id)
		if err != nil {
			return profile, err
		}
		profile.Policy = profile.Policy.Widen(w)
		profile.Name += " with grant " + id
	}
	return profile, nil
}

func (s *Preparer) grant(c caller.Caller, req message.Request, id string) (policy.Widening, error) {
	agent := ""
	if req.Agent != nil {
		agent = req.Agent.ID
	}
	w, err := s.o.Widening(c.UID, id, profileName(req), agent)
	if err != nil {
		return w, err
	}
	return w, s.MayWiden(c, w)
}

// Granted returns an error if a run that has started would no longer get a grant of a policy.
func (s *Preparer) Granted(c caller.Caller, req message.Request, id string) error {
	_, err := s.grant(c, req, id)
	return err
}

// MayWiden returns an error unless the runs of a user may have a grant: the user may bring policy
// files, and the ceiling is as wide.
func (s *Preparer) MayWiden(c caller.Caller, w policy.Widening) error {
	state := s.o.Policies()
	if err := caller.MayUse(state.Rules(), c, "", true, "by a grant"); err != nil {
		return err
	}
	ceiling, err := ceilingOf(state, syntax.Places{Home: c.Home})
	if err == nil && !w.LessEq(ceiling.Policy) {
		err = problem.New(problem.Refused, "the grant is wider than the ceiling of this host").
			WithHint("jail policy show shows the ceiling; ask for less")
	}
	return err
}

// Profile returns an error unless a user may use a profile.
func (s *Preparer) Profile(c caller.Caller, name string) error {
	state := s.o.Policies()
	if err := caller.MayUse(state.Rules(), c, name, false, ""); err != nil {
		return err
	}
	req := message.Request{Profile: name}
	_, err := profileOf(req, state.Set.For(places(c, req)))
	return err
}

// Ceiling returns the host's ceiling, without variables of a run filled in.
func (s *Preparer) Ceiling() (policy.Policy, error) {
	layer, err := ceilingOf(s.o.Policies(), syntax.Places{})
	return layer.Policy, err
}

func profileOf(req message.Request, set *profiles.Set) (policy.Layer, error) {
	if req.Policy != "" {
		return parsed(set, req.PolicyName, req.Policy)
	}
	name := profileName(req)
	p, err := set.Get(name)
	switch {
	case errors.Is(err, profiles.ErrNotFound):
		return policy.Layer{}, problem.New(problem.NotFound, "no profile is called %.80q", name).
			WithHint("jail profile list")
	case err != nil:
		return policy.Layer{}, problem.New(problem.Usage, "%w", err).
			WithHint("jail policy check, or jail profile show " + name)
	}
	return p.File.Layer("profile "+name, p.Origin), nil
}

// parsed returns the text of a policy file as a layer.
func parsed(set *profiles.Set, name, text string) (policy.Layer, error) {
	file, err := set.Parse(syntax.Profile, name, []byte(text))
	if err != nil {
		return policy.Layer{}, problem.New(problem.Usage, "%w", err).
			WithHint("jail policy check " + name)
	}
	return file.Layer("policy "+name, name), nil
}

// profileName returns the name of the request's profile or policy for records.
func profileName(req message.Request) string {
	if req.Policy != "" {
		return req.PolicyName
	}
	return cmp.Or(req.Profile, "default")
}

// notAllowed returns the error for something that a policy's decision refused.
func notAllowed(what string, d policy.Decision) *problem.Error {
	return problem.New(problem.Refused, "%s is not allowed: %s (%s)", what, d.Rule, d.Layer).
		WithDenied("policy", what, d.Layer+": "+d.Rule).
		WithHint("jail profile list shows the profiles; jail policy show NAME what one grants")
}

// readFlags returns the limits, variables, hosts and other flags of a request as a policy.
func readFlags(req message.Request) (*policy.Request, error) {
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
	if req.Outer != "" {
		if err := flags.Outer(req.Outer); err != nil {
			return nil, problem.New(problem.Usage, "--outer: %v", err)
		}
	}
	if req.Agent != nil && !req.Agent.Network {
		flags.NoFetch()
	}
	if req.NoWorkspace {
		flags.Workspace(policy.WorkspaceNone)
	}
	return flags, nil
}

// environ returns the tool's whole environment. It fails for a variable that the policy does not
// allow.
func environ(eff policy.Effective, req message.Request, cwd string) ([]string, error) {
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
			WithDenied("policy", "env "+denied[0], d.Layer+": "+d.Rule).
			WithHint("env.allow in the profile names the variables that a run may set")
	}
	// The runner sets PWD: it tells a C library without a working directory where it is.
	env = slices.DeleteFunc(env, func(e string) bool { return strings.HasPrefix(e, "PWD=") })
	return append(env, "PWD="+cwd), nil
}

// WorkspaceFile is the name of a workspace's own policy file, and WorkspaceLayer the name of its
// layer.
const (
	WorkspaceFile  = ".jail.toml"
	WorkspaceLayer = "workspace"
)

// narrowByWorkspace adds the workspace's own policy file as a layer, if there is one. The file can
// only narrow, since a tool or a stranger's repository may have written it. If it cannot be read or
// parsed, the run is refused, since it may forbid something that matters.
func (s *Preparer) narrowByWorkspace(j *Job) error {
	// The session did this when it started.
	if j.Source == nil || j.In != nil {
		return nil
	}
	info, err := j.Source.Stat()
	if err != nil {
		return problem.New(problem.Failed, "workspace: %w", err)
	}
	var text []byte
	// It is read with the caller's rights: errors must not show a file that the caller may not
	// read.
	doErr := j.Caller.Do(func() error {
		text, err = profiles.ReadWorkspace(j.Source, WorkspaceFile, j.Caller.UID,
			info.Sys().(*syscall.Stat_t).Uid)
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) && doErr == nil {
		return nil
	}
	if err = errors.Join(err, doErr); problem.Short(err) != nil {
		return err
	} else if err != nil {
		return problem.New(problem.Refused, "the workspace's own policy file is refused: %s",
			problem.Describe(err)).
			WithHint("mend it or take it away; it can only narrow what the profile grants")
	}
	path := j.Source.Name() + "/" + WorkspaceFile
	file, err := s.o.Policies().Set.For(places(j.Caller, j.Req)).Parse(syntax.Request, path, text)
	if err != nil {
		return problem.New(problem.Refused, "the workspace's own policy file is refused: %v", err).
			WithHint("mend it or take it away; it can only narrow what the profile grants")
	}
	return j.narrowBy(file.Layer(WorkspaceLayer, path))
}

// narrowBy adds a layer to the job's policy, and closes the workspace if the layer takes it away.
func (j *Job) narrowBy(layer policy.Layer) error {
	eff, err := policy.Resolve(append(j.Policy.Layers(), layer)...)
	if err != nil {
		return problem.New(problem.Refused, "%v", err)
	}
	j.Policy = eff
	if j.Policy.Policy().Workspace.Access != policy.WorkspaceNone {
		return nil
	}
	if j.Req.Workspace != "" {
		return notAllowed("a workspace", j.Policy.Decide(policy.Open{Path: policy.WorkspaceDir,
			Want: policy.Read}))
	}
	err = j.Source.Close()
	j.Source = nil
	return err
}

// Container returns the policy of a container: the meet of the ceiling and the profile.
func (s *Preparer) Container(c caller.Caller, profile string) (policy.Effective, error) {
	_, layers, err := s.granted(c, message.Request{Profile: profile, NoWorkspace: true})
	if err != nil {
		return policy.Effective{}, err
	}
	return resolve(layers)
}
