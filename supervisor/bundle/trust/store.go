package trust

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail/asuser"
	"github.com/jail-sandbox/jail/jail/atomicfile"
)

const ringSuffix = ".ring"

// Load reads the rings that an operator added, and the one that jail ships. Where owned is set, a
// file that another than root could have written is an error. A directory that does not exist holds
// none.
func Load(dir string, owned bool) (Rings, error) {
	shipped, err := shipped()
	if err != nil {
		return nil, err
	}
	rings := Rings{Official: shipped}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		publisher, ok := strings.CutSuffix(e.Name(), ringSuffix)
		if !ok || e.Name()[0] == '.' {
			// One that was being written.
			continue
		}
		text, err := readFile(filepath.Join(dir, e.Name()), owned)
		if err != nil {
			return nil, err
		}
		ring, err := ParseRing(text)
		if err == nil && ring.Publisher != publisher {
			err = fmt.Errorf("%w: it is of %s", ErrRing, ring.Publisher)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(dir, e.Name()), err)
		}
		// An update of jail may bring a newer one than was pulled.
		if publisher != Official || ring.Version >= shipped.Version {
			rings[publisher] = ring
		}
	}
	return rings, nil
}

func readFile(path string, owned bool) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !info.Mode().IsRegular() || owned && (!ok || !asuser.Rules(st.Uid) ||
		info.Mode().Perm()&0o022 != 0) {
		return "", fmt.Errorf("%s: %w: it is no file that only root can write", path, ErrRing)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxText+1))
	return string(text), err
}

// Admit decides whether a ring may be added to those in use, or take the place of the one that its
// publisher has. explicit is an operator's word that a ring is that publisher's: without it only a
// newer ring that the roots of the old one signed is taken.
func (rs Rings) Admit(next Ring, explicit bool, now time.Time) error {
	old, known := rs[next.Publisher]
	switch {
	case known && old.Text == next.Text:
		return nil
	case known && (len(old.Keys) > 0 || len(old.Roots) > 0):
		if err := old.replace(next, now); err != nil {
			return err
		}
	case !explicit:
		return fmt.Errorf("%w: no ring of %s is known that could vouch for it", ErrSignature,
			next.Publisher)
	default:
		if err := next.Fresh(now); err != nil {
			return err
		}
	}
	for publisher, other := range rs {
		if publisher == next.Publisher {
			continue
		}
		for _, vkey := range next.Keys {
			for _, theirs := range other.Keys {
				if strings.SplitN(vkey, "+", 3)[2] == strings.SplitN(theirs, "+", 3)[2] {
					return fmt.Errorf("%w: key %s is a key of %s already", ErrRing, KeyID(vkey),
						publisher)
				}
			}
		}
	}
	return nil
}

// Save writes a ring that was admitted.
func Save(dir string, r Ring) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(dir, r.Publisher+ringSuffix), []byte(r.Text), 0o644,
		atomicfile.Durable)
}

// Remove takes a publisher's ring away, and so the trust in all of its bundles.
func Remove(dir, publisher string) error {
	if err := checkPublisher(publisher); err != nil {
		return err
	}
	return os.Remove(filepath.Join(dir, publisher+ringSuffix))
}
