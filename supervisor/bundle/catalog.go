package bundle

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/supervisor/bundle/trust"
)

// Places are the locations of bundles.
type Places struct {
	// Dirs are the directories of bundles that came with jail, in order.
	Dirs []string
	// Tools is the directory of the Store of pulled bundles; "" for none.
	Tools string
}

// OpenPlaces opens the bundles that came with jail, as Open does, and pulled ones. owned refuses
// files that others than root may write; services that run as root set it. Pulled bundles must have
// a valid signature. A newer bundle of jail's own replaces the one that came with jail.
func OpenPlaces(p Places, owned bool) (*Set, error) {
	s, err := open(owned, p.Dirs)
	if err != nil || p.Tools == "" {
		return s, err
	}
	if err := s.addStore(p.Tools, owned); err != nil {
		return nil, fmt.Errorf("pulled bundles: %w", err)
	}
	return s, nil
}

func (s *Set) addStore(tools string, owned bool) error {
	ix, err := readIndex(tools, owned)
	if err != nil || len(ix.Bundles) == 0 {
		return err
	}
	store := &Store{Dir: tools}
	rings, err := trust.Load(store.KeysDir(), owned)
	if err != nil {
		return err
	}
	for _, in := range ix.Bundles {
		b, err := load(store.folder(in.Manifest, in.Name), owned)
		if err == nil {
			err = b.vouched(rings, in)
		}
		if err == nil {
			err = s.put(b, in)
		}
		if err != nil {
			s.problems = append(s.problems,
				fmt.Errorf("bundle %s of %s: %w", in.Name, in.Publisher, err))
		}
	}
	return nil
}

// vouched verifies the signature of an installed bundle again, but not whether the statement has
// expired, which only matters for an installation.
func (b *Bundle) vouched(rings trust.Rings, in Installed) error {
	v, err := Judge(rings, []byte(b.Text), b.Signed)
	if err != nil {
		return err
	}
	if v.Ring.Publisher != in.Publisher || v.Statement.Manifest != in.Manifest {
		return fmt.Errorf("%w: the index has %s of %s", ErrAltered, in.Manifest, in.Publisher)
	}
	b.Origin = &in
	return nil
}

func (s *Set) put(b *Bundle, in Installed) error {
	i := slices.IndexFunc(s.bundles, func(old *Bundle) bool { return old.Name == b.Name })
	switch {
	case i < 0:
		s.bundles = append(s.bundles, b)
	case in.Publisher == trust.Official && compareVersions(b.Version, s.bundles[i].Version) > 0:
		s.bundles[i] = b
	case in.Publisher == trust.Official:
		// The bundle is of the official ring, and jail was updated since.
	default:
		return fmt.Errorf("%w: one came with jail", ErrTaken)
	}
	s.sort()
	return nil
}

// A Catalog returns the current Set. It reads the bundles again after an installation, removal or
// change of keys.
type Catalog struct {
	places Places
	owned  bool

	mu    sync.Mutex
	set   *Set
	stamp stamps
	// settled is set if the stamp was settled when the set was read.
	settled bool
}

// settledAfter is how old a change must be so that a later one has another time stamp: before Linux
// 6.13 the kernel's times advance in ticks, and some file systems have coarser ones.
const settledAfter = 2 * time.Second

// stamps are the stamps of the index and of the directory of keys.
type stamps [2]stamp

type stamp struct {
	ino          uint64
	mtime, ctime syscall.Timespec
}

// settled reports whether any later change will have another stamp.
func (s stamps) settled() bool {
	for _, st := range s {
		if time.Since(time.Unix(st.ctime.Unix())) < settledAfter {
			return false
		}
	}
	return true
}

// OpenCatalog opens a catalog for a service that runs as root.
func OpenCatalog(p Places) (*Catalog, error) {
	c := &Catalog{places: p, owned: true}
	_, err := c.Now()
	return c, err
}

// Now returns the current set. The pointer is the same as before if nothing changed.
func (c *Catalog) Now() (*Set, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// This comes before the set is read, so that a change meanwhile is seen the next time.
	now, err := c.look()
	if err != nil {
		return nil, err
	}
	if c.set != nil && now == c.stamp && c.settled {
		return c.set, nil
	}
	settled := now.settled()
	set, err := OpenPlaces(c.places, c.owned)
	if err != nil {
		return nil, err
	}
	if now == c.stamp && reflect.DeepEqual(set, c.set) {
		// The set was read again and has not changed. Callers compare the pointers.
		set = c.set
	}
	c.set, c.stamp, c.settled = set, now, settled
	return set, nil
}

func (c *Catalog) look() (s stamps, err error) {
	if c.places.Tools == "" {
		return s, nil
	}
	for i, name := range []string{indexFile, "keys"} {
		path := filepath.Join(c.places.Tools, name)
		var st syscall.Stat_t
		if err := syscall.Lstat(path, &st); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			return s, &fs.PathError{Op: "lstat", Path: path, Err: err}
		}
		s[i] = stamp{st.Ino, st.Mtim, st.Ctim}
	}
	return s, nil
}

// Reload makes the next call read the bundles again.
func (c *Catalog) Reload() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.set = nil
}

// Find calls Set.Find on the current set.
func (c *Catalog) Find(name string) (Command, error) {
	set, err := c.Now()
	if err != nil {
		return Command{}, err
	}
	return set.Find(name)
}

// List returns the bundles of the current set. If it cannot be read, List returns none, rather than
// a tool that was withdrawn.
func (c *Catalog) List() []*Bundle {
	set, err := c.Now()
	if err != nil {
		return nil
	}
	return set.List()
}
