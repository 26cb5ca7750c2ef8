package bundle

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jail-sandbox/jail/jail/atomicfile"
	"github.com/jail-sandbox/jail/policy/strict"
	"github.com/jail-sandbox/jail/supervisor/bundle/trust"
)

const (
	indexFile   = "index.json"
	indexFormat = 1
	maxIndex    = 4 << 20
)

// Installed says how a bundle came to be installed.
type Installed struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// Whose keys signed it.
	Publisher string `json:"publisher"`
	// Its digest.
	Manifest string `json:"manifest"`
	// Where it was pulled from.
	Source string    `json:"source"`
	Time   time.Time `json:"time"`
}

// seen is the newest version of a bundle that was ever installed. It outlives the bundle, so that
// nobody is moved back to a version with known holes.
type seen struct {
	Publisher string `json:"publisher"`
	Name      string `json:"name"`
	Version   string `json:"version"`
	Manifest  string `json:"manifest"`
}

// index is the list of installed bundles. It is one file, so that changes are atomic.
type index struct {
	Format  int         `json:"format"`
	Bundles []Installed `json:"bundles"`
	Seen    []seen      `json:"seen"`
}

func readIndex(tools string, owned bool) (index, error) {
	empty := index{Format: indexFormat, Bundles: []Installed{}, Seen: []seen{}}
	text, err := (&Bundle{Dir: tools, owned: owned}).read(indexFile, maxIndex)
	if errors.Is(err, fs.ErrNotExist) {
		return empty, nil
	}
	if err != nil {
		return empty, err
	}
	path := filepath.Join(tools, indexFile)
	var ix index
	if err := strict.JSON(text, &ix); err != nil && !errors.Is(err, strict.ErrMore) {
		return empty, fmt.Errorf("%s: %w", path, err)
	} else if err != nil || ix.Format != indexFormat {
		return empty, fmt.Errorf("%s: %w: not an index of format %d", path, ErrAltered, indexFormat)
	}
	for _, in := range ix.Bundles {
		if !safeName(in.Name) || trust.CheckDigest(in.Manifest) != nil {
			return empty, fmt.Errorf("%s: %w: a bundle %.70q of manifest %.80q", path, ErrAltered,
				in.Name, in.Manifest)
		}
	}
	for _, s := range ix.Seen {
		if !safeVersion(s.Version) {
			return empty, fmt.Errorf("%s: %w: version %.40q", path, ErrAltered, s.Version)
		}
	}
	return ix, nil
}

func (ix index) write(tools string) error {
	text, err := json.MarshalIndent(ix, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(tools, indexFile), append(text, '\n'), 0o644,
		atomicfile.Durable)
}

func (ix index) find(name string) (Installed, bool) {
	i := slices.IndexFunc(ix.Bundles, func(in Installed) bool { return in.Name == name })
	if i < 0 {
		return Installed{}, false
	}
	return ix.Bundles[i], true
}

// with returns the index with a bundle added, or replaced if the name is in use.
func (ix index) with(in Installed) index {
	next := ix.without(in.Name)
	next.Bundles = append(next.Bundles, in)
	slices.SortFunc(next.Bundles, func(a, b Installed) int {
		return strings.Compare(a.Name, b.Name)
	})
	next = next.forget(in.Publisher, in.Name)
	next.Seen = append(next.Seen, seen{in.Publisher, in.Name, in.Version, in.Manifest})
	return next
}

func (ix index) without(name string) index {
	ix.Bundles = slices.DeleteFunc(slices.Clone(ix.Bundles),
		func(in Installed) bool { return in.Name == name })
	return ix
}

// forget returns the index without the newest version seen of a bundle, so that an operator can go
// back to an older one.
func (ix index) forget(publisher, name string) index {
	ix.Seen = slices.DeleteFunc(slices.Clone(ix.Seen),
		func(s seen) bool { return s.Publisher == publisher && s.Name == name })
	return ix
}

// allows returns an error that wraps trust.ErrRollback for a version below the newest seen, and for
// the same version with another manifest.
func (ix index) allows(publisher string, s trust.Statement) error {
	for _, old := range ix.Seen {
		if old.Publisher != publisher || old.Name != s.Name {
			continue
		}
		switch c := compareVersions(s.Version, old.Version); {
		case c < 0:
			return fmt.Errorf("bundle %s %s of %s: %w: %s", s.Name, s.Version, publisher,
				trust.ErrRollback, old.Version)
		case c == 0 && s.Manifest != old.Manifest:
			return fmt.Errorf(
				"bundle %s %s of %s: %w: version %s was seen with another content, %s", s.Name,
				s.Version, publisher, trust.ErrRollback, old.Version, old.Manifest)
		}
	}
	return nil
}

// compareVersions compares versions that safeVersion accepts. The result is negative if a is older.
func compareVersions(a, b string) int {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(as), len(bs)) {
		// Digits only, at most nine.
		x, _ := strconv.Atoi(as[i])
		y, _ := strconv.Atoi(bs[i])
		if x != y {
			return x - y
		}
	}
	return len(as) - len(bs)
}
