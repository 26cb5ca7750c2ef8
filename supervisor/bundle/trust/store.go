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

// Load reads the rings in dir and the official one that jail ships. If owned is set, a file that
// others than root may write is an error. If dir does not exist, only the shipped ring is returned.
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
			// A ring that is being written is skipped.
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
		// An update of jail may ship a newer ring than the saved one.
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

// Admit returns an error unless a ring may be added or may replace its publisher's. A replacement
// needs a higher version and enough signatures of both rings' roots, whatever explicit says; a ring
// without roots is never replaced. A first ring needs explicit, by which an operator vouches for
// it. Except for the ring in use, the ring must not have expired, nor have a key of another
// publisher.
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

// Save writes a ring that Admit accepted.
func Save(dir string, r Ring) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(dir, r.Publisher+ringSuffix), []byte(r.Text), 0o644,
		atomicfile.Durable)
}

// Remove removes a publisher's ring, and so the trust in all of its bundles.
func Remove(dir, publisher string) error {
	if err := checkPublisher(publisher); err != nil {
		return err
	}
	return os.Remove(filepath.Join(dir, publisher+ringSuffix))
}
