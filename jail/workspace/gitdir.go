package workspace

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/jail-sandbox/jail/jail/internal/sys"
	"github.com/jail-sandbox/jail/policy"
)

// repository is a directory that git takes for one, whatever its name: it has HEAD, and objects and
// refs or a commondir that names them.
type repository struct {
	// path of the git directory; "" is the workspace itself.
	path string
	// outer is the enclosing repository.
	outer *repository
	// fresh: the real directory is no repository. The union of it and the shadow decides, so that
	// no sequence of partial commits makes a repository without a person's consent.
	fresh bool
	// made: fresh, and the real directory does not exist.
	made bool
	// linked: it belongs to a linked worktree, and its objects are those of outer.
	linked bool
	// borrows: it has objects of other repositories, by objects/info/alternates.
	borrows bool
	// damaged is a path in it that the disk lost, "" for none: it is no change, and may be an
	// object.
	damaged string
}

// damage notes a lost path in each repository that it is in.
func (r *repository) damage(path string) {
	for ; r != nil; r = r.outer {
		r.damaged = path
	}
}

// repositoryIn returns the innermost repository of a directory, or the one that the directory is.
// upper and real are its two sides, nil if missing.
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
	err := k.look(real, func() error {
		info, err := openDir(real, dir)
		if err != nil {
			return err
		}
		defer info.Close()
		_, err = sys.LstatAt(info, file)
		return err
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

// part returns git's use of a path of the innermost repository.
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

// gitRisks adds the risks of the change's place in a repository.
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

// freshRepository returns the outermost new repository that a change belongs to, nil for none:
// everything in a new git directory, and of one that was another directory before, the names that
// git knows.
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
