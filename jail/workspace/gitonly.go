package workspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/jail-sandbox/jail/jail/gitrepo"
	"github.com/jail-sandbox/jail/jail/internal/sys"
	"github.com/jail-sandbox/jail/policy"
)

// ErrGitOnly means that a commit with GitOnly cannot take the branch. The error says why.
var ErrGitOnly = errors.New("the branch is not taken")

func notTaken(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrGitOnly, fmt.Sprintf(format, args...))
}

// A GitRef is the ref that a commit with GitOnly changes: its full name, and its object ids in the
// real repository before and after. Before is "" for a new ref.
type GitRef struct {
	Ref    string `json:"ref"`
	Before string `json:"before,omitempty"`
	After  string `json:"after"`
}

func (r GitRef) String() string {
	return fmt.Sprintf("%s from %s to %s", r.Ref, cmp.Or(r.Before, "nothing"), r.After)
}

// Branch returns the ref that Commit would change with these options, which have GitOnly. It writes
// nothing, and returns an error if Commit would.
func Branch(ctx context.Context, w *Workspace, o CommitOptions) (GitRef, error) {
	return locking(w, "branch", func() (GitRef, error) {
		lock, err := opening{w}.locked(o.Live)
		if err != nil {
			return GitRef{}, err
		}
		defer lock.Close()
		before, err := w.home.readTaken()
		if err != nil {
			return GitRef{}, err
		}
		d, err := decision{w: w, taken: before}.decide(ctx, o)
		return d.branch, err
	})
}

// decideGit is decide for a commit with GitOnly. It chooses one new file for each object that the
// real repository lacks, and the file of the ref.
func (d decision) decideGit(ctx context.Context, out *decided, changes []Change,
	o CommitOptions) error {
	repo, err := d.oneRepository(changes, o.Paths)
	if err != nil {
		return err
	}
	if o.Git == nil {
		return notTaken("this build reads no repositories")
	}
	upper, err := d.w.layer.openUpper()
	if err != nil {
		return err
	}
	defer upper.Close()
	p := &gitPlan{source: d.w.source, ctx: ctx,
		k:    &walker{ctx: ctx, as: d.w.meta.Caller, meta: &d.w.meta},
		repo: repo, changes: changes, dirs: map[string]bool{}, texts: map[Name]string{}}
	// The stats of all refs are taken before they are read, so that a later change is a conflict.
	before := map[Name]sys.Stat{}
	if err := p.k.eachGitFile(d.w.source, repo, repo.path, func(path Name, st sys.Stat) {
		before[path] = st
	}); err != nil {
		return err
	}
	files, err := d.w.gitFiles(upper, repo)
	if err != nil {
		return err
	}
	taken, err := o.Git.Take(ctx, files, *o.GitOnly)
	refusal := gitrepo.Refusal("")
	if errors.As(err, &refusal) {
		err = notTaken("%s", refusal)
	}
	if err != nil {
		return err
	}
	out.branch = GitRef{Ref: taken.Ref, Before: taken.Before, After: taken.After}
	if o.Branch != nil && *o.Branch != out.branch {
		return fmt.Errorf("%w: %s was reviewed, there is %s", ErrDigest, *o.Branch, out.branch)
	}
	for _, object := range taken.Objects {
		if err := p.object(object); err != nil {
			return err
		}
	}
	if err := p.ref(taken, before); err != nil {
		return err
	}
	slices.SortFunc(p.out, func(a, b Change) int {
		return strings.Compare(string(a.Path), string(b.Path))
	})
	for _, c := range p.out {
		if why := holdBack(c, o); why != "" {
			return &protectedError{held: []Held{{Path: c.Path, Why: why}}}
		}
	}
	locked, err := d.gitConflicts(ctx, p.out)
	if err == nil && locked != nil {
		err = &ConflictError{Conflicts: locked}
	}
	if err != nil {
		return err
	}
	out.result.Committed, out.result.Git, out.texts = p.out, taken.Line, p.texts
	return enoughRoom(d.w.source, p.out)
}

// ofShadow returns those of the changes that the shadow has, too. A commit with GitOnly also writes
// files that the tool did not make.
func (d decided) ofShadow(changes []Change) []Change {
	return slices.DeleteFunc(slices.Clone(changes), func(c Change) bool {
		return d.shadow[c.Path] == nil
	})
}

// oneRepository returns the repository for a commit with GitOnly: the one that paths names, or the
// only one with changes. Otherwise it returns an ErrGitOnly.
func (d decision) oneRepository(changes []Change, paths []Name) (*repository, error) {
	var found []*repository
	for _, c := range changes {
		if c.Git == "" || slices.Contains(found, c.repo) {
			continue
		}
		at := c.repo.path
		named := slices.ContainsFunc(paths, func(p Name) bool {
			path := strings.TrimSuffix(string(p), "/")
			return path == at || join(path, ".git") == at
		})
		if paths == nil || named {
			found = append(found, c.repo)
		}
	}
	switch {
	case len(paths) > 1:
		return nil, notTaken("one PATH may name the repository")
	case len(found) == 0 && paths != nil:
		return nil, notTaken("the run changed no data of a repository at %s", cmp.Or(paths[0], "."))
	case len(found) == 0:
		return nil, notTaken("the run changed no data of a repository")
	case len(found) > 1:
		return nil, notTaken("%d repositories changed, %s for example: name one as PATH",
			len(found), Name(cmp.Or(found[0].path, ".")))
	case found[0].fresh:
		return nil, notTaken("%s", found[0].freshReason())
	case found[0].damaged != "":
		return nil, notTaken("%s is damaged", Name(found[0].damaged))
	}
	return found[0], nil
}

// gitPlan collects the changes of a commit with GitOnly.
type gitPlan struct {
	// source is the real directory.
	source  *os.File
	ctx     context.Context
	k       *walker
	repo    *repository
	changes []Change
	out     []Change
	// dirs are the directories that exist or that the plan makes.
	dirs  map[string]bool
	texts map[Name]string
}

// Modes that git gives to new files and directories.
const (
	objectMode = 0o444
	refMode    = 0o644
	gitDirMode = 0o755
)

// object adds the file of one object. If the object is loose in the shadow, that file is used.
func (p *gitPlan) object(o gitrepo.TakenObject) error {
	if err := p.ctx.Err(); err != nil {
		return err
	}
	rest, ok := o.Path()
	path := Name(join(p.repo.path, rest))
	if !ok {
		return notTaken("an object has no name")
	}
	if o.SHA256 == "" {
		return p.file(Change{Path: path, Kind: Added}, objectMode, string(o.File))
	}
	i, found := slices.BinarySearchFunc(p.changes, path, func(c Change, path Name) int {
		return comparePaths(c.Path, path)
	})
	if !found {
		return notTaken("%s is no change of the run", path)
	}
	c := p.changes[i]
	switch {
	case c.Refused != "":
		return notTaken("%s: %s", path, c.Refused)
	case c.Kind != Added || c.After.Type != File || c.After.SHA256 != o.SHA256:
		return fmt.Errorf("%s: %w", path, ErrDigest)
	}
	after := *c.After
	after.Mode = objectMode
	return p.add(Change{Path: path, Kind: Added, After: &after})
}

// ref adds the file of the ref. before has the stats of the ref files before they were read.
func (p *gitPlan) ref(taken gitrepo.Taken, before map[Name]sys.Stat) error {
	path := Name(join(p.repo.path, taken.Ref))
	c, mode := Change{Path: path, Kind: Added}, uint32(refMode)
	if st, ok := before[path]; ok {
		c.Kind, c.Before, c.seen, mode = Modified, nodeOf(st), st, st.Perm()&0o777
		if typeOf(st) != File {
			return notTaken("%s is no file", path)
		}
	}
	return p.file(c, mode, taken.After+"\n")
}

// file adds a change whose new content is text, not a file of the shadow.
func (p *gitPlan) file(c Change, mode uint32, text string) error {
	c.After = textNode(text, mode)
	p.texts[c.Path] = text
	return p.add(c)
}

// add adds a change, and the directories above it that the real repository lacks.
func (p *gitPlan) add(c Change) error {
	c.repo, c.part = p.repo, policy.GitData
	c.Git = c.gitPart()
	p.out = append(p.out, c)
	for dir := parentOf(string(c.Path)); !p.dirs[dir] && dir != p.repo.path; dir = parentOf(dir) {
		p.dirs[dir] = true
		f, err := p.k.openDirAt(p.source, dir)
		if err == nil {
			f.Close()
			break
		}
		if !missing(err) {
			return err
		}
		made := Change{Path: Name(dir), Kind: Added, After: &Node{Type: Dir, Mode: gitDirMode},
			repo: p.repo, part: policy.GitData}
		made.Git = made.gitPart()
		p.out = append(p.out, made)
	}
	return nil
}
