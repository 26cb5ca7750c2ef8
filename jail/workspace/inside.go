package workspace

import (
	"errors"
	"hash/maphash"
	"io/fs"
	"os"
	"slices"
)

// inside is the knowledge of a walk about one directory of the shadow, for risks of names beside
// each other. It is computed on demand.
type inside struct {
	k     *walker
	upper *upperDir
	real  *os.File
	// names of the upper layer.
	names []string
	// all names, with those of the real directory.
	all    []string
	byFold map[uint64]int32
}

var foldSeed = maphash.MakeSeed()

// risks adds the risks of an entry beside the others of the directory.
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
	return nil
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
				// -1 is several.
				in.byFold[key] = -1
			}
		}
	}
	i, ok := in.byFold[maphash.String(foldSeed, foldKey(name))]
	if !ok || i >= 0 && in.all[i] == name {
		return "", nil
	}
	return in.otherThan(name)
}

// otherThan searches the names that the shadow still has.
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
	_, st, err := in.upper.find(name)
	if err == nil {
		return !whiteout(st), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if in.upper.opaque {
		return false, nil
	}
	real, err := in.k.lookup(in.real, name)
	return real != nil, err
}

// send yields a change with the risks of its name.
func (k *walker) send(c *Change) error {
	k.finish(c)
	for _, dir := range k.later {
		if err := k.emit(dir); err != nil {
			return err
		}
	}
	k.later = nil
	return k.emit(*c)
}

// sendLater emits a discarded directory as soon as there is a change in it, for which a commit
// needs it. The caller calls done when it leaves the directory.
func (k *walker) sendLater(c *Change) (done func()) {
	k.finish(c)
	n := len(k.later)
	k.later = append(k.later, *c)
	return func() { k.later = k.later[:min(n, len(k.later))] }
}

// finish adds what the name and the place of a change say of it.
func (k *walker) finish(c *Change) {
	c.repo = k.repo
	c.nameRisks()
	c.gitRisks()
	if c.Path != "" && k.hide.Match(string(c.Path)) {
		c.Refused, c.hidden = "the policy hides this name from the tool", true
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
}
