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

	"github.com/jail-sandbox/jail/jail/internal/sys"
	"github.com/jail-sandbox/jail/policy"
)

// gitGroup has the changes to the data of one git repository: objects, refs, HEAD, logs, the index.
// A commit takes all of them or none, since a ref without its object breaks the repository. Hooks
// and configuration are chosen separately, except the configuration of a new repository.
type gitGroup struct {
	// path of the git directory.
	path string
	repo *repository
	// members are indexes of selection.changes.
	members []int
}

// ErrApart means that a commit or revert chose only a part of the data of a repository.
var ErrApart = errors.New("the data of a repository is taken whole or not at all")

const gitAtWork = "git has locked the repository: wait until it has ended, " +
	"and remove the lock if no git runs"

// gitGroups returns the gitGroups of a selection. A linked worktree is in the group of its
// repository, whose objects it uses. If a repository borrows objects by objects/info/alternates,
// all existing repositories are one group.
func (s *selection) gitGroups() (groups []*gitGroup) {
	borrows := func(c Change) bool { return c.repo != nil && c.repo.borrows && !c.repo.fresh }
	one := slices.ContainsFunc(s.changes, borrows)
	for i, c := range s.changes {
		if !c.inGitGroup() {
			continue
		}
		r := c.repo
		for r.linked && !r.fresh {
			r = r.outer
		}
		at := slices.IndexFunc(groups, func(g *gitGroup) bool {
			return g.path == r.path || one && !g.repo.fresh && !r.fresh
		})
		if at < 0 {
			at = len(groups)
			groups = append(groups, &gitGroup{path: r.path, repo: r})
		}
		groups[at].members = append(groups[at].members, i)
	}
	return groups
}

// inGitGroup reports whether a change belongs to a gitGroup. A lock file from the jail does not.
func (c *Change) inGitGroup() bool {
	switch {
	case c.repo == nil || c.Kind == Added && c.repo.isLock(string(c.Path)):
		return false
	case c.repo.fresh && string(c.Path) == c.repo.path:
		return true
	}
	return c.part == policy.GitData || c.repo.fresh && c.part == policy.GitSetting
}

// needs reports whether g can be taken only together with other: the same group, or if g is a new
// repository that may use objects of other.
func (g *gitGroup) needs(other *gitGroup) bool {
	r := g.repo
	return g == other || r.fresh && (r.borrows || r.linked && r.outer.path == other.path)
}

// holdTogether holds back each group that cannot be taken whole. It reports whether there was one.
func (s *selection) holdTogether(groups []*gitGroup) (held bool) {
	for _, g := range groups {
		why := s.missing(g, groups)
		for _, i := range g.members {
			if why != "" && s.take[i] && s.why[i] == "" {
				s.why[i], s.apart[i], held = why, true, true
			}
		}
	}
	return held
}

// missing returns why a group cannot be taken although a part of it is asked for, "" if it can.
func (s *selection) missing(g *gitGroup, groups []*gitGroup) string {
	if !slices.ContainsFunc(g.members, func(i int) bool { return s.take[i] && s.why[i] == "" }) {
		return ""
	}
	for _, other := range groups {
		if !g.needs(other) {
			continue
		}
		for _, i := range other.members {
			path, why := s.changes[i].Path, ""
			switch {
			case !s.take[i]:
				why = "was not asked for"
			case s.why[i] != "":
				why = "is held back, since " + s.why[i]
			case s.changes[i].repo.damaged != "":
				path, why = Name(s.changes[i].repo.damaged), "is damaged"
			default:
				continue
			}
			return fmt.Sprintf("objects, refs and index of %s are taken together, and %s %s",
				Name(cmp.Or(g.path, ".")), path, why)
		}
	}
	return ""
}

// heldAs returns the Held for a change that is held back. All changes of a repository that is held
// back as a whole get the same.
func (s *selection) heldAs(i int) Held {
	c := s.changes[i]
	h := Held{c.Path, s.why[i], c.Refused != ""}
	if r := c.freshRepository(); r != nil && h.Why == r.freshReason() {
		h.Path = Name(cmp.Or(r.path, "."))
	} else if s.apart[i] {
		h.Path = Name(cmp.Or(c.repo.path, "."))
	}
	return h
}

// nothingTaken returns the error for a commit that held back all that it was asked for. It returns
// nil if these are only named pipes, sockets and devices, and no path names them.
func (s *selection) nothingTaken(held []Held, o CommitOptions) error {
	apart, never, special := true, true, o.Paths == nil
	for i, c := range s.changes {
		if s.take[i] {
			apart = apart && s.apart[i]
			never = never && c.Refused != ""
			special = special && c.special()
		}
	}
	switch {
	case special:
		return nil
	case apart:
		return fmt.Errorf("%w: %s", ErrApart, held[0].Why)
	}
	return &protectedError{held, never}
}

// gitConflicts returns conflicts with git processes on the host in the repositories that a commit
// changes: a lock file means that git is running. If the shadow removed objects, refs and indexes
// must not have changed since the run began.
func (d decision) gitConflicts(ctx context.Context, taken []Change) (conflicts []Conflict,
	err error) {
	k := &walker{ctx: ctx, as: d.w.meta.Caller, meta: &d.w.meta}
	ours, repos, prunes := map[Name]bool{}, map[string]*repository{}, map[string]bool{}
	for _, c := range taken {
		ours[c.Path] = true
		if c.inGitGroup() || c.repo != nil && c.part == policy.GitSetting {
			repos[c.repo.path] = c.repo
			prunes[c.repo.path] = prunes[c.repo.path] || c.Kind == Deleted && c.isObject()
		}
	}
	for _, r := range repos {
		err := k.eachGitFile(d.w.source, r, r.path, func(path Name, st sys.Stat) {
			why := ""
			switch {
			case ours[path]:
			case r.isLock(string(path)):
				why = gitAtWork
			case prunes[r.path] && r.part(string(path)) == policy.GitData && k.conflict(st) != "":
				why = "git changed it since the run began, and the run removed objects"
			}
			if why != "" {
				conflicts = append(conflicts, Conflict{Path: path, Why: why, Real: nodeOf(st)})
			}
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(conflicts, func(a, b Conflict) int {
		return strings.Compare(string(a.Path), string(b.Path))
	})
	return conflicts, nil
}

// isObject reports whether a change is in the objects directory of a repository.
func (c *Change) isObject() bool {
	return c.part == policy.GitData && strings.HasPrefix(c.repo.rest(string(c.Path)), "objects/")
}

// eachGitFile calls visit for each file below path in a real repository: refs, HEAD, the index,
// lock files and others. It leaves out the directories of holdsNoRef.
func (k *walker) eachGitFile(real *os.File, r *repository, path string,
	visit func(path Name, st sys.Stat)) error {
	dir, err := openDir(real, path)
	if missing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	names, err := k.list(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := k.ctx.Err(); err != nil {
			return err
		}
		st, err := k.lookup(dir, name)
		below := join(path, name)
		switch {
		case err != nil:
			return err
		case st == nil || holdsNoRef(r.rest(below)):
		case typeOf(*st) != Dir:
			visit(Name(below), *st)
		default:
			if err := k.eachGitFile(real, r, below, visit); err != nil {
				return err
			}
		}
	}
	return nil
}

// holdsNoRef reports whether a path in a repository is a directory that git keeps no refs and locks
// in, such as hooks or one of the 256 directories of loose objects, objects/00.
func holdsNoRef(rest string) bool {
	return slices.Contains([]string{"hooks", "logs", "lfs", "annex", "modules"}, rest) ||
		strings.HasPrefix(rest, "objects/") && len(rest) == len("objects/00")
}

// gitRank returns the position of a change in the order in which a commit writes: objects before
// the indexes of their packs, and both before refs. A commit removes paths in reverse order.
func gitRank(c Change) int {
	if c.repo == nil || c.part != policy.GitData || c.After != nil && c.After.Type == Dir {
		return 0
	}
	rest := c.repo.rest(string(c.Path))
	first, _, _ := strings.Cut(rest, "/")
	switch {
	case first == "objects" && strings.HasSuffix(rest, ".idx"):
		return 1
	case strings.HasPrefix(rest, "objects/info/"), strings.HasSuffix(rest, "/multi-pack-index"):
		return 2
	case first == "objects", strings.HasPrefix(rest, "sharedindex."):
		return 0
	case rest == "shallow":
		return 3
	case first == "refs", rest == "packed-refs", first == "reftable" &&
		rest != "reftable/tables.list":
		return 4
	case first == "logs":
		return 6
	case rest == "index":
		return 7
	}
	return 5
}

// repository returns the repository to whose data an entry belongs, nil for none.
func (e pastEntry) repository() *repository {
	if e.Repo == "" {
		return nil
	}
	if e.Repo == "." {
		return &repository{}
	}
	return &repository{path: e.Repo}
}

// addedObject reports whether an entry is an object, or a directory of objects, that the commit
// added to a repository.
func (e pastEntry) addedObject() bool {
	c := Change{Path: e.Path, repo: e.repository()}
	if c.repo == nil || e.Before != nil {
		return false
	}
	c.part = policy.GitData
	return c.isObject()
}

// usedSince returns the repositories that git changed since the commit p. Their refs or indexes may
// name objects that the commit added, so a revert must keep these. ours are the paths of the
// commit. locked are conflicts with the lock files of a running git.
func (k *walker) usedSince(real *os.File, p *past, ours map[Name]bool) (
	used map[string]bool, locked []Conflict, err error,
) {
	repos := map[string]*repository{}
	used = map[string]bool{}
	for _, e := range p.Entries {
		r := e.repository()
		if r == nil {
			continue
		}
		repos[e.Repo] = r
		if !e.addedObject() || e.After.Type != Dir || used[e.Repo] {
			continue
		}
		why, err := k.foreignIn(real, e.Path, ours)
		if err != nil && !missing(err) {
			return nil, nil, err
		}
		used[e.Repo] = why != ""
	}
	for name, r := range repos {
		err := k.eachGitFile(real, r, r.path, func(path Name, st sys.Stat) {
			switch {
			case r.isLock(string(path)):
				locked = append(locked, Conflict{Path: path, Why: gitAtWork, Real: nodeOf(st)})
			case ours[path] || r.part(string(path)) != policy.GitData:
			case st.Ctime.Compare(p.Since) >= 0:
				used[name] = true
			}
		})
		if err != nil {
			return nil, nil, err
		}
	}
	return used, locked, nil
}

// repository is a directory that git accepts as a repository, whatever its name: it has HEAD, and
// either objects and refs or commondir.
type repository struct {
	// path of the git directory; "" is the workspace itself.
	path string
	// outer is the enclosing repository.
	outer *repository
	// fresh: the real directory is no repository, but its union with the shadow is one. So no
	// sequence of partial commits makes a repository without the user's consent.
	fresh bool
	// made: fresh, and the real directory does not exist.
	made bool
	// linked: it is the git directory of a linked worktree and uses the objects of outer.
	linked bool
	// borrows: it has objects of other repositories, by objects/info/alternates.
	borrows bool
	// damaged is a path in the repository that did not reach the disk, "" for none.
	damaged string
}

// damage sets damaged in r and all outer repositories.
func (r *repository) damage(path string) {
	for ; r != nil; r = r.outer {
		r.damaged = path
	}
}

// repositoryIn returns the repository that the directory at path is, or k.repo if it is none. upper
// and real are its two sides, nil if missing.
func (k *walker) repositoryIn(upper *upperDir, real *os.File, path string) (*repository, error) {
	was, now := map[string]bool{}, map[string]bool{}
	for _, name := range []string{"HEAD", "commondir", "objects", "refs"} {
		st, err := k.lookup(real, name)
		if err != nil {
			return nil, err
		}
		was[name], now[name] = st != nil, st != nil
		if st == nil && upper != nil {
			if now[name], err = hasEntry(upper, name); err != nil {
				return nil, err
			}
		}
		if !now["HEAD"] {
			return k.repo, nil
		}
	}
	if !shapedLikeGit(now) {
		return k.repo, nil
	}
	r := &repository{path: path, outer: k.repo, fresh: !shapedLikeGit(was), made: real == nil}
	r.linked = now["commondir"] && r.outer != nil && parentOf(path) == join(r.outer.path,
		"worktrees")
	var err error
	r.borrows, err = k.borrows(upper, real)
	return r, err
}

func shapedLikeGit(has map[string]bool) bool {
	return has["HEAD"] && (has["commondir"] || has["objects"] && has["refs"])
}

func hasEntry(upper *upperDir, name string) (bool, error) {
	_, st, err := upper.find(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && !whiteout(st), err
}

// borrows reports whether one of the two sides has objects/info/alternates.
func (k *walker) borrows(upper *upperDir, real *os.File) (bool, error) {
	const dir, file = "objects/info", "alternates"
	if upper != nil {
		info, err := upper.open(dir)
		if err == nil {
			_, _, err = info.find(file)
			info.Close()
		}
		if err == nil || !missing(err) {
			return err == nil, err
		}
	}
	if real == nil {
		return false, nil
	}
	_, err := lookAs(k, real, func() (sys.Stat, error) {
		return inDir(real, dir+"/"+file, sys.LstatAt)
	})
	if missing(err) {
		return false, nil
	}
	return err == nil, err
}

// outermost returns the outermost repository around r.
func (r *repository) outermost() *repository {
	for r.outer != nil {
		r = r.outer
	}
	return r
}

// rest returns a path in r relative to it, "" for r itself.
func (r *repository) rest(path string) string {
	return strings.TrimPrefix(strings.TrimPrefix(path, r.path), "/")
}

// part returns what git uses a path in r for. r may be nil.
func (r *repository) part(path string) policy.GitPart {
	if r == nil || r.rest(path) == "" {
		return policy.GitOther
	}
	return policy.GitPartOf(r.rest(path))
}

// isLock reports whether a path is a lock file of git for another file of the repository.
func (r *repository) isLock(path string) bool {
	of, ok := strings.CutSuffix(path, ".lock")
	return ok && r.part(of) != policy.GitOther
}

// gitRisks sets c.part and c.Git, and adds the risks of the path's place in a repository.
func (c *Change) gitRisks() {
	if c.repo == nil {
		return
	}
	path := string(c.Path)
	c.part = c.repo.part(path)
	c.Git = c.gitPart()
	if c.Kind == Added && c.After.Type == File && c.repo.isLock(path) {
		c.Refused = "it is a lock of git, and the git that made it has ended"
	}
	if new := c.freshRepository(); new != nil && c.Kind != Deleted {
		c.risk(policy.Hooks, true, "%s", new.freshReason())
		return
	}
	_, named := policy.Protected(path)
	why, ok := policy.Protected(".git/" + c.repo.rest(path))
	if ok && !named && c.part != policy.GitOther {
		c.risk(policy.Hooks, true, "%s", why.Reason)
	}
}

// freshRepository returns the outermost new repository that a change belongs to, nil for none. All
// paths in a new git directory belong to it. In a directory that existed before, only names that
// git uses do.
func (c *Change) freshRepository() *repository {
	if c.repo == nil || !c.repo.fresh || !c.repo.made && c.part == policy.GitOther {
		return nil
	}
	r := c.repo
	for r.outer != nil && r.outer.fresh {
		r = r.outer
	}
	return r
}

func (r *repository) freshReason() string {
	return fmt.Sprintf("%s is a new git repository, whose configuration and hooks git obeys",
		Name(cmp.Or(r.path, ".")))
}
