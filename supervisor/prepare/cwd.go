package prepare

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/paths"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// hintCwd is the hint for setting another working directory.
const hintCwd = "--cwd DIR names a directory below the workspace, --cwd . its root"

// findCwd returns the working directory of the tool: the requested one, else the caller's own if it
// lies in the workspace, else the root of the workspace. Without a workspace it is the image's, or
// /.
func (j *Job) findCwd() (string, error) {
	if j.Source == nil {
		if j.Req.Cwd != "" {
			return "", problem.New(problem.Usage,
				"directory %s: there is no workspace that it could be in", j.Req.Cwd)
		}
		return j.Host.Image.cwd(), nil
	}
	rel, err := j.placeOf()
	if err != nil {
		return "", err
	}
	cwd := path.Join(policy.WorkspaceDir, rel)
	return cwd, j.checkCwd(rel, cwd)
}

// placeOf returns the working directory as a path below the workspace.
func (j *Job) placeOf() (string, error) {
	asked := j.Req.Cwd
	if asked == "" {
		if j.Req.Workspace == "" {
			return ".", nil
		}
		rel, ok, err := j.beneath(j.Req.Dir)
		if !ok {
			rel = "."
		}
		return rel, err
	}
	if strings.ContainsRune(asked, 0) {
		return "", problem.New(problem.Usage, "directory %q: a name holds no NUL byte", asked)
	}
	if rel, ok, err := j.beneath(asked); ok || err != nil {
		return rel, err
	}
	rel := path.Clean(asked)
	if path.IsAbs(rel) {
		// Rel fails only if one of two paths is relative.
		rel, _ = filepath.Rel(policy.WorkspaceDir, rel)
	}
	if !filepath.IsLocal(rel) {
		e := problem.New(problem.Usage, "directory %s: it is not in the workspace", asked)
		e.Hint = hintCwd
		return "", e
	}
	return rel, nil
}

// beneath returns the path of a directory of the host relative to the workspace, with links
// resolved. ok is false if dir is not absolute, lies outside, does not exist, or is closed to the
// caller.
func (j *Job) beneath(dir string) (rel string, ok bool, err error) {
	if !filepath.IsAbs(dir) {
		return "", false, nil
	}
	f, err := j.Caller.OpenDir(dir)
	is := func(target error) bool { return errors.Is(err, target) }
	switch {
	case slices.ContainsFunc([]error{fs.ErrNotExist, fs.ErrPermission, syscall.ENOTDIR,
		syscall.ENAMETOOLONG, syscall.ELOOP}, is):
		return "", false, nil
	case err != nil:
		return "", false, problem.New(problem.Failed, "directory %s: %w", dir, err)
	}
	defer f.Close()
	root, rootErr := os.Readlink(fdPath(j.Source))
	at, err := os.Readlink(fdPath(f))
	if err = errors.Join(rootErr, err); err != nil {
		return "", false, problem.New(problem.Failed, "directory %s: %w", dir, err)
	}
	rel, err = filepath.Rel(root, at)
	return rel, err == nil && filepath.IsLocal(rel), nil
}

// fdPath returns the path of an open directory in /proc, which is valid even if it is renamed.
func fdPath(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }

// checkCwd returns an error if the working directory is hidden or missing. In a session it checks
// only for hidden ones, since the shadow may differ from the real directory. Where a link leads is
// known only in the jail: the runner checks that before it starts the tool.
func (j *Job) checkCwd(rel, cwd string) error {
	if rel == "." {
		return nil
	}
	if policy.Hidden(j.Policy.Policy().Workspace.Hide).Match(rel) {
		d := j.Policy.Decide(policy.Open{Path: cwd, Want: policy.Read})
		return problem.New(problem.Refused, "directory %s: the policy hides it: %s (%s)", cwd,
			d.Rule, d.Layer).
			WithDenied("policy", "directory "+cwd, d.Layer+": "+d.Rule).
			WithHint(hintCwd)
	}
	if j.In != nil {
		return nil
	}
	return j.Caller.Do(func() error {
		root, err := os.OpenRoot(fdPath(j.Source))
		if err != nil {
			return nil
		}
		defer root.Close()
		switch info, err := root.Stat(rel); {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
			return NoCwd(cwd, syscall.ENOENT)
		case err == nil && !info.IsDir():
			return NoCwd(cwd, syscall.ENOTDIR)
		}
		return nil
	})
}

// NoCwd returns the error for a tool that could not enter its working directory.
func NoCwd(dir string, why syscall.Errno) *problem.Error {
	switch why {
	case syscall.ENOENT, syscall.ENOTDIR, syscall.ELOOP, syscall.ENAMETOOLONG:
		return problem.New(problem.NotFound,
			"directory %s: there is no such directory in the workspace", dir).
			WithHint(hintCwd)
	case syscall.EACCES, syscall.EPERM:
		return problem.New(problem.Refused, "directory %s: the tool may not enter it", dir).
			WithHint(hintCwd)
	}
	return problem.New(problem.Failed, "directory %s: %w", dir, why)
}

// A target is the path at which a tool finds the workspace. Policies always name workspace files
// below [policy.WorkspaceDir].
type target string

// targetOf returns the target of a workspace: [policy.WorkspaceDir], or the path of the real
// directory, without links, if the policy says so. A directory that lies in a tree of the host that
// the policy mounts, such as /usr, stays at [policy.WorkspaceDir].
func targetOf(eff policy.Effective, source *os.File) target {
	if source == nil || eff.Policy().Workspace.Target != policy.TargetSame {
		return policy.WorkspaceDir
	}
	own, err := os.Readlink(fdPath(source))
	if err != nil || slices.ContainsFunc(eff.Policy().Mounts, func(m policy.Mount) bool {
		return m.Source != "" && paths.Within(m.Target, own)
	}) {
		return policy.WorkspaceDir
	}
	return target(own)
}

// ofModule returns the target for a WebAssembly module. Its view has no mount inside another one,
// so it finds a directory that lies in a mount of the policy, such as /tmp, at
// [policy.WorkspaceDir].
func (t target) ofModule(mounts policy.Mounts) target {
	if slices.ContainsFunc(mounts, func(m policy.Mount) bool {
		return paths.Within(m.Target, string(t))
	}) {
		return policy.WorkspaceDir
	}
	return t
}

// inJail returns the path in the jail of a path in a policy.
func (t target) inJail(name string) string { return moved(policy.WorkspaceDir, string(t), name) }

// inPolicy returns the path by which a policy names a file of the jail.
func (t target) inPolicy(name string) string { return moved(string(t), policy.WorkspaceDir, name) }

// moved returns name with its leading directory from replaced by to, or name if it is not below
// from.
func moved(from, to, name string) string {
	rel, ok := paths.Rel(from, name)
	if !ok {
		return name
	}
	return paths.Join(to, rel)
}
