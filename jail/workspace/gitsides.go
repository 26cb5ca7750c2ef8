package workspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/jail-sandbox/jail/jail/gitrepo"
	"github.com/jail-sandbox/jail/jail/internal/sys"
	"github.com/jail-sandbox/jail/policy"
)

// GitReader reads a git repository that a tool wrote. Since the content is hostile, a daemon's
// reader is a confined process; see package gitreader.
type GitReader interface {
	Explain(ctx context.Context, files gitrepo.Files) (gitrepo.Report, error)
	// Take finds the objects and the ref that a commit of a branch needs. An error that is a
	// gitrepo.Refusal says why the branch cannot be taken.
	Take(ctx context.Context, files gitrepo.Files, want gitrepo.Want) (gitrepo.Taken, error)
}

// GitPart is the part of a repository that a change belongs to, if the report of the repository
// sums up that part.
type GitPart string

// Parts of a repository. HEAD and similar files belong to the refs.
const (
	GitObjects GitPart = "objects"
	GitLogs    GitPart = "logs"
	GitRefs    GitPart = "refs"
	GitIndex   GitPart = "index"
)

// gitPart returns the part of a repository that a change belongs to, "" for none.
func (c *Change) gitPart() GitPart {
	if c.repo == nil || c.part != policy.GitData || c.repo.linked {
		return ""
	}
	rest := c.repo.rest(string(c.Path))
	switch first, _, _ := strings.Cut(rest, "/"); {
	case first == "objects":
		return GitObjects
	case first == "logs":
		return GitLogs
	case first == "refs", rest == "packed-refs", rest == "info/refs",
		strings.HasSuffix(rest, "HEAD"), rest == "COMMIT_EDITMSG":
		return GitRefs
	case rest == "index", strings.HasPrefix(rest, "sharedindex."):
		return GitIndex
	}
	return ""
}

// gitSurvey collects the repositories with changes in a diff, with a report about each.
type gitSurvey struct {
	repos   []*repository
	reports map[*repository]*gitrepo.Report
}

// maxRepositories bounds the repositories that are read for one diff.
const maxRepositories = 20

func (s *gitSurvey) add(c Change) {
	if c.Git == "" {
		return
	}
	p := s.reports[c.repo]
	if p == nil {
		if s.reports == nil {
			s.reports = map[*repository]*gitrepo.Report{}
		}
		p = &gitrepo.Report{}
		s.reports[c.repo] = p
		s.repos = append(s.repos, c.repo)
	}
	switch c.Git {
	case GitIndex:
		p.Index = true
	case GitObjects, GitLogs:
		if node := c.After; node != nil && node.Type == File {
			p.Files++
			p.Bytes += node.Size
		} else if c.After == nil && c.Before.Type == File {
			p.Files++
		}
	}
}

// explain has the reader read each repository with changes, and returns the reports. It returns nil
// without a reader.
func (s *gitSurvey) explain(ctx context.Context, w *Workspace, reader GitReader) (
	all []gitrepo.Report, err error,
) {
	if len(s.repos) == 0 || reader == nil {
		return nil, nil
	}
	upper, err := w.layer.openUpper()
	if err != nil {
		return nil, err
	}
	defer upper.Close()
	for i, r := range s.repos {
		counted := s.reports[r]
		var report gitrepo.Report
		switch {
		case i >= maxRepositories:
			report.NotUnderstood = fmt.Sprintf("more than %d repositories changed", maxRepositories)
		case r.damaged != "":
			report.NotUnderstood = fmt.Sprintf("%s is damaged", Name(r.damaged))
		default:
			files, filesErr := w.gitFiles(upper, r)
			if filesErr != nil {
				return nil, filesErr
			}
			report, err = reader.Explain(ctx, files)
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if err != nil {
				// The list of changed files is complete without the reader.
				report = gitrepo.Report{NotUnderstood: err.Error()}
			}
		}
		report.Path = cmp.Or(r.path, ".")
		report.Index, report.Files, report.Bytes = counted.Index, counted.Files, counted.Bytes
		report.Write()
		all = append(all, report)
	}
	return all, nil
}

// gitFiles opens the files of both sides of one repository for a GitReader: the real ones with the
// caller's rights, and the shadow's as overlayfs merges the layers.
type gitFiles struct {
	k     *walker
	upper *upperDir
	real  *os.File
	// path of the git directory.
	path string
}

func (w *Workspace) gitFiles(upper *upperDir, r *repository) (gitFiles, error) {
	before, err := w.home.readTaken()
	k := &walker{as: w.meta.Caller, meta: &w.meta, taken: before,
		out: newLeftOut(w.meta, w.layer.damaged)}
	return gitFiles{k, upper, w.source, r.path}, err
}

// dropped reports whether the tool deleted a path that the layer does not have. The tool made it, a
// commit of the live workspace wrote it to the real directory, and then the tool deleted it.
func (g gitFiles) dropped(path string) bool { return g.k.taken.all[Name(path)].Shadow != nil }

// Open opens a regular file of one side and returns its size.
func (g gitFiles) Open(side gitrepo.Side, path string) (f *os.File, size int64, err error) {
	path = join(g.path, path)
	if side == gitrepo.Shadow {
		f, err = g.openShadow(path)
	} else {
		f, err = g.openReal(path)
	}
	if err != nil {
		return nil, 0, gitError(err)
	}
	st, err := sys.Fstat(f)
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, st.Size, nil
}

func gitError(err error) error {
	if missing(err) {
		return fs.ErrNotExist
	}
	return err
}

func (g gitFiles) openReal(path string) (*os.File, error) {
	return doAs(g.k.as, func() (*os.File, error) { return inDir(g.real, path, openGitFile) })
}

// openGitFile opens a regular file for reading. For others it returns gitrepo.ErrDirectory or
// gitrepo.ErrIrregular.
func openGitFile(dir *os.File, name string) (*os.File, error) {
	f, err := openRegular(dir, name)
	if irregular, ok := errors.AsType[*irregularError](err); ok {
		if irregular.is == Dir {
			return nil, gitrepo.ErrDirectory
		}
		return nil, gitrepo.ErrIrregular
	}
	return f, err
}

func (g gitFiles) openShadow(path string) (*os.File, error) {
	up, real, err := g.dirOf(path)
	if err != nil {
		return nil, err
	}
	if up != nil {
		defer up.Close()
		_, name := split(path)
		at, st, err := up.find(name)
		switch {
		case err == nil && whiteout(st):
			return nil, fs.ErrNotExist
		case err == nil:
			return openGitFile(at, name)
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
	}
	if !real || g.dropped(path) && !g.k.out.discarded(path) {
		return nil, fs.ErrNotExist
	}
	return g.openReal(path)
}

// dirOf opens the parent directory of a path in the upper layer, nil if the layer has none. real
// reports whether the real directory shows through there.
func (g gitFiles) dirOf(path string) (up *upperDir, real bool, err error) {
	if at := covering(g.k.out.damaged, path); at != "" {
		return nil, false, fmt.Errorf("%s is damaged", Name(at))
	}
	if g.k.out.discarded(path) {
		// For a discarded change the real path shows through.
		return nil, true, nil
	}
	up, real, lacking, err := g.upper.through(parentOf(path))
	return up, real && (up != nil || !g.dropped(lacking)), err
}

// List returns the names in a directory of one side.
func (g gitFiles) List(side gitrepo.Side, path string) (names []string, err error) {
	path = join(g.path, path)
	up, real := (*upperDir)(nil), true
	if side == gitrepo.Shadow {
		// The parent of path/. is the directory itself.
		if up, real, err = g.dirOf(path + "/."); err != nil {
			return nil, gitError(err)
		}
	}
	found := up != nil
	gone := map[string]bool{}
	if up != nil {
		defer up.Close()
		upper, err := up.names()
		if err != nil {
			return nil, err
		}
		for _, name := range upper {
			if gone[name] {
				continue
			}
			_, st, err := up.find(name)
			if err != nil {
				return nil, err
			}
			gone[name] = true
			if !whiteout(st) {
				names = append(names, name)
			}
		}
	}
	if real {
		var below []string
		dir, err := g.k.openDirAt(g.real, path)
		if err == nil {
			defer dir.Close()
			found = true
			below, err = g.k.list(dir)
		}
		if err != nil && !missing(err) {
			return nil, err
		}
		for _, name := range below {
			if at := join(path, name); !gone[name] && (side == gitrepo.Real || !g.dropped(at) ||
				g.k.out.discarded(at)) {
				names = append(names, name)
			}
		}
	}
	if !found {
		return nil, fs.ErrNotExist
	}
	slices.Sort(names)
	return names, nil
}

// openDirAt opens a directory of the real side with the caller's rights.
func (k *walker) openDirAt(real *os.File, path string) (*os.File, error) {
	return doAs(k.as, func() (*os.File, error) { return openDir(real, path) })
}
