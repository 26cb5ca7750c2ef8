package workspace

import (
	"errors"
	"hash/maphash"
	"io/fs"
	"os"
	"slices"

	"github.com/jail-sandbox/jail/jail/internal/sys"
	"github.com/jail-sandbox/jail/policy"
)

// Inside is what a walk knows of one directory as the shadow has it, for the risks that lie in what names stand beside each other. It is
// computed only where it is needed.
type inside struct {
	k           *walker
	upper, real *os.File
	names       []string // of the upper layer
	all         []string // with those of the real directory
	byFold      map[uint64]int32
	shaped      *bool
}

var foldSeed = maphash.MakeSeed()

// risks adds what the directory says about an entry of it.
func (in *inside) risks(c *Change, name string) error {
	if c.Kind == Added || becomesDir(*c) {
		other, err := in.foldsOnto(name)
		if err != nil {
			return err
		}
		if other != "" {
			c.risk(Folds, false, "some file systems take it for %s", Name(other))
		}
	}
	shaped, err := in.gitShaped(name)
	if err == nil && shaped {
		c.risk(policy.Hooks, true, "its directory has the shape of a git repository, whose configuration and hooks git obeys")
	}
	return err
}

// foldsOnto returns another name of the directory that some file system takes for the same, or "".
func (in *inside) foldsOnto(name string) (string, error) {
	if in.byFold == nil {
		in.all = in.names
		if in.real != nil {
			real, err := in.k.list(in.real)
			if err != nil && !errors.Is(err, fs.ErrPermission) {
				return "", err
			}
			if len(real) > 0 {
				in.all = slices.Concat(in.names, real)
			}
		}
		in.byFold = make(map[uint64]int32, len(in.all))
		for i, n := range in.all {
			key := maphash.String(foldSeed, foldKey(n))
			if j, ok := in.byFold[key]; !ok {
				in.byFold[key] = int32(i)
			} else if j < 0 || in.all[j] != n {
				in.byFold[key] = -1 // several
			}
		}
	}
	i, ok := in.byFold[maphash.String(foldSeed, foldKey(name))]
	if !ok || i >= 0 && in.all[i] == name {
		return "", nil
	}
	return in.otherThan(name)
}

// otherThan looks for the name itself, among those that the shadow still has.
func (in *inside) otherThan(name string) (string, error) {
	key := foldKey(name)
	for _, n := range in.all {
		if n == name || foldKey(n) != key {
			continue
		}
		there, err := in.has(n)
		if err != nil || there {
			return n, err
		}
	}
	return "", nil
}

// has reports whether the shadow has a name in the directory.
func (in *inside) has(name string) (bool, error) {
	st, err := sys.LstatAt(in.upper, name)
	if err == nil {
		return !whiteout(st), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if opaque, err := sys.Xattr(in.upper, mark()+"opaque"); err != nil || string(opaque) == "y" {
		return false, err
	}
	real, err := in.k.lookup(in.real, name)
	return real != nil, err
}

// gitNames are the entries of a repository that git obeys.
var gitNames = []string{"HEAD", "config", "config.worktree", "hooks", "info", "commondir", "modules", "worktrees", "objects", "refs"}

// gitShaped reports whether the directory is one that git takes for a repository, whatever its name is, and the entry one that counts in it.
func (in *inside) gitShaped(name string) (bool, error) {
	if !slices.Contains(gitNames, name) {
		return false, nil
	}
	if in.shaped == nil {
		all := true
		for _, part := range []string{"HEAD", "objects", "refs"} {
			there, err := in.has(part)
			if err != nil {
				return false, err
			}
			all = all && there
		}
		in.shaped = &all
	}
	return *in.shaped, nil
}

// send gives a change out, with the risks that its name has.
func (k *walker) send(c *Change) error {
	c.nameRisks()
	if c.Path != "" && k.hide.Match(string(c.Path)) {
		c.Refused, c.hidden = "the policy hides this name from the tool", true
	}
	if k.hooks != "" && below(string(c.Path), k.hooks) && string(c.Path) != k.hooks {
		c.risk(policy.Hooks, true, "lies in what git obeys, of a repository by another name")
	} else if k.hooks != "" && !below(string(c.Path), k.hooks) {
		k.hooks = ""
	}
	slices.SortStableFunc(c.Risks, func(a, b Risk) int {
		switch {
		case a.Hold == b.Hold:
			return 0
		case a.Hold:
			return -1
		}
		return 1
	})
	return k.emit(*c)
}
