package images

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jail-sandbox/jail/jail/asuser"
	"github.com/jail-sandbox/jail/jail/atomicfile"
	"github.com/jail-sandbox/jail/supervisor/bundle/trust"
	"github.com/jail-sandbox/jail/supervisor/flock"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

const namesFile = "names.json"

// names returns the list of named images from names.json, or nil if the file is missing.
func (s *Store) names() (all []About, err error) {
	err = atomicfile.ReadJSON(filepath.Join(s.dir, namesFile), &all)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return all, err
}

// changeNames passes the list of named images from names.json to change, and saves the list that
// change returns. A file lock prevents concurrent changes. If change fails, changeNames returns its
// error and saves nothing.
func (s *Store) changeNames(change func([]About) ([]About, error)) error {
	turn, err := flock.Open(filepath.Join(s.dir, "lock"))
	if err != nil {
		return err
	}
	defer turn.Close()
	all, err := s.names()
	if err == nil {
		all, err = change(all)
	}
	if err != nil {
		return err
	}
	return atomicfile.WriteJSON(filepath.Join(s.dir, namesFile), all, 0o600, atomicfile.Durable)
}

// An ImageOffer describes an image to add under a name.
type ImageOffer struct {
	// oci:DIR with an absolute path, which is read with the caller's rights, and :TAG or
	// @sha256:DIGEST after it.
	Layout string `json:"layout"`
	// Source is where the image came from, for the record; empty for the directory in layout.
	Source string `json:"source,omitempty"`
	// Signed is the statement about the manifest that jail image sign makes; empty for an unsigned
	// image.
	Signed string `json:"signed,omitempty"`
}

// Add unpacks an image of a caller's directory for every user, under a name. check is called before
// the name is saved: it fills in the publisher and records the image, or refuses it.
func (s *Store) Add(ctx context.Context, c asuser.Caller, name string, o ImageOffer,
	check func(*About) error) (added About, err error) {
	ref, err := Parse(o.Layout)
	if err != nil {
		return added, err
	}
	if !nameForm().MatchString(name) {
		return added, problem.New(problem.Usage,
			"image %.100q: a name has at most 64 lower-case letters, digits, dots, hyphens and "+
				"underscores", name)
	}
	if ref.Dir == "" {
		return added, problem.New(problem.Usage, "image %s: it comes from a directory, oci:DIR", name)
	}
	held, err := s.fromLayout(ctx, c, ref, host)
	if err != nil {
		return added, err
	}
	defer held.Close()
	added = held.About
	added.Name, added.Signed = name, o.Signed
	added.Source = cmp.Or(o.Source, added.Source)
	added.Time = time.Now().UTC().Truncate(time.Second)
	var old []About
	err = s.changeNames(func(all []About) ([]About, error) {
		old = all
		if err := check(&added); err != nil {
			return nil, err
		}
		all = slices.DeleteFunc(slices.Clone(all), func(a About) bool { return a.Name == name })
		all = append(all, added)
		slices.SortFunc(all, func(a, b About) int { return strings.Compare(a.Name, b.Name) })
		return all, nil
	})
	if err != nil {
		// The image stays if it has another name.
		held.Close()
		return added, errors.Join(err, s.dropUnnamed([]About{added}))
	}
	return added, s.dropUnnamed(old)
}

// List returns the named images, and those that a user's runs unpacked from directories.
func (s *Store) List(uid string) (all []About, err error) {
	if all, err = s.names(); err != nil {
		return nil, err
	}
	own, err := s.of(uid)
	for _, k := range own {
		all = append(all, k.About)
	}
	return all, err
}

// Remove removes a name. With the last name of an image it removes the unpacked files, unless a run
// uses them. record is called first; if it fails, nothing is removed.
func (s *Store) Remove(name string, record func(About) error) (gone About, err error) {
	var old []About
	err = s.changeNames(func(all []About) ([]About, error) {
		i := slices.IndexFunc(all, func(a About) bool { return a.Name == name })
		if i < 0 {
			return nil, problem.New(problem.NotFound, "no image is called %.100q", name).
				WithHint("jail image list")
		}
		old, gone = all, all[i]
		if err := record(gone); err != nil {
			return nil, err
		}
		return slices.Delete(slices.Clone(all), i, i+1), nil
	})
	if err != nil {
		return gone, err
	}
	return gone, s.dropUnnamed(old)
}

// Forget removes an image that a user's runs unpacked from a directory. The error has the code busy
// if a run uses it.
func (s *Store) Forget(uid, digest string) (gone About, err error) {
	all, err := s.of(uid)
	if err != nil {
		return gone, err
	}
	i := slices.IndexFunc(all, func(k kept) bool { return k.Digest == digest })
	if i < 0 {
		return gone, problem.New(problem.NotFound, "no image of yours has the digest %.100s", digest).
			WithHint("jail image list")
	}
	if err := s.remove(uid, digest); errors.Is(err, errInUse) {
		return gone, problem.New(problem.Busy, "image %s is in use", digest).
			WithHint("try again when its runs have ended: jail ps")
	} else if err != nil {
		return gone, err
	}
	return all[i].About, nil
}

// dropUnnamed removes the unpacked files of those images in old that no longer have a name. One
// that a run uses stays until the store is opened again.
func (s *Store) dropUnnamed(old []About) error {
	now, err := s.names()
	if err != nil {
		return err
	}
	for _, a := range old {
		if slices.ContainsFunc(now, func(n About) bool { return n.Digest == a.Digest }) {
			continue
		}
		if err := s.remove(host, a.Digest); err != nil && !errors.Is(err, errInUse) {
			return err
		}
	}
	return nil
}

// SignedName returns the name of an image in a signed statement. No bundle can have it, so that a
// signature on a bundle never counts for an image.
func SignedName(name string) string { return "image:" + name }

// Signer returns the signed statement about an image and its publisher. It fails unless the
// publisher's keys signed this name with this digest. It does not check whether the statement has
// expired.
func Signer(rings trust.Rings, name, digest, signed string) (trust.Statement, string, error) {
	if signed == "" {
		return trust.Statement{}, "", fmt.Errorf("image %s: %w: it is not signed", name,
			trust.ErrSignature)
	}
	s, ring, err := rings.Verify(signed)
	if err == nil && (s.Name != SignedName(name) || s.Manifest != digest) {
		err = fmt.Errorf("%w: %.100s of %s is signed, and the image is %s of %s",
			trust.ErrSignature, s.Name, s.Manifest, SignedName(name), digest)
	}
	if err != nil {
		return s, "", fmt.Errorf("image %s: %w", name, err)
	}
	return s, ring.Publisher, nil
}
