package prepare

import (
	"errors"
	"io/fs"
	"syscall"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/profiles"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// WorkspaceFile is the policy file that a workspace may have of its own, and WorkspaceLayer the
// name of what it says as a layer.
const (
	WorkspaceFile  = ".jail.toml"
	WorkspaceLayer = "workspace"
)

// narrowByWorkspace meets what the workspace's own policy file says, if it has one. The
// file can take away and never grant, since a tool or a stranger's repository may have written it.
// A file that cannot be read or understood refuses the run: it may take away something that
// matters.
func (s *Preparer) narrowByWorkspace(j *Job) error {
	// The session has done this for its invocations.
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

// narrowBy meets one more layer, and lets go of a workspace that it does not leave to the run.
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
