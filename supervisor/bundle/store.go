package bundle

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail/atomicfile"
	"github.com/jail-sandbox/jail/supervisor/bundle/trust"
	"github.com/jail-sandbox/jail/supervisor/flock"
)

// ErrNotAccepted is wrapped by errors about a bundle that asks for more than was accepted.
var ErrNotAccepted = errors.New("asks for more than was accepted")

// ErrTaken is wrapped by errors about a name that belongs to another publisher.
var ErrTaken = errors.New("the name is another publisher's")

// officialNames are the bundles that ship with jail. Other publishers may not use these names.
var officialNames = []string{"core-utils", "data-utils", "search", "python", "js"}

// Kinds of NotFoundError.
const (
	pulledBundle = "pulled bundle"
	// Publisher is for a publisher without a ring.
	Publisher = "publisher"
)

// A Store installs pulled bundles into a directory:
//
//	index.json          which bundles are installed, and the newest versions that were seen
//	keys/NAME.ring      whose signatures count
//	store/DIGEST/NAME/  the files of a bundle, below the digest of its manifest
//
// All of it can be read by everybody and written by root. A folder in store that the index does not
// name is nothing.
type Store struct {
	Dir string
	// Shipped are the directories of the bundles that came with jail.
	Shipped []string
	// Check is called for each module before the bundle is installed.
	Check func(ModuleEntry, []byte) error
}

// An Offer is a bundle that is to be installed, but for its files.
type Offer struct {
	// bundle.json, byte for byte.
	Manifest []byte `json:"manifest"`
	// The signed statement about the manifest.
	Signed string `json:"signed"`
	// Where it was pulled from, for the record.
	Source string `json:"source"`
	// Digest of the manifest, where its needs are agreed to.
	Accept string `json:"accept,omitempty"`
}

// KeysDir returns the directory of the rings.
func (s *Store) KeysDir() string { return filepath.Join(s.Dir, "keys") }

func (s *Store) folder(manifest, name string) string {
	return filepath.Join(s.Dir, "store", strings.TrimPrefix(manifest, "sha256:"), name)
}

// locked calls f while it holds the store's lock.
func (s *Store) locked(f func() error) error {
	if err := os.MkdirAll(filepath.Join(s.Dir, "store"), 0o755); err != nil {
		return err
	}
	lock, err := flock.Open(filepath.Join(s.Dir, "lock"))
	if err != nil {
		return err
	}
	defer lock.Close()
	return f()
}

// Install verifies an offer, reads its files from r in the order of Manifest.Files, and installs
// the bundle in place of the one of its name. It verifies the signature, then the manifest by the
// signed digest, then each file by the manifest's digest before the file is used. record is called
// when all is verified; if it fails, nothing is installed.
func (s *Store) Install(o Offer, r io.Reader, now time.Time,
	record func(Installed) error) (in Installed, err error) {
	err = s.locked(func() error {
		in, err = s.install(o, r, now, record)
		return err
	})
	return in, err
}

func (s *Store) install(o Offer, r io.Reader, now time.Time,
	record func(Installed) error) (Installed, error) {
	rings, err := trust.Load(s.KeysDir(), true)
	if err != nil {
		return Installed{}, err
	}
	ix, err := readIndex(s.Dir, true)
	if err != nil {
		return Installed{}, err
	}
	v, err := Judge(rings, o.Manifest, o.Signed)
	if err != nil {
		return Installed{}, err
	}
	in := Installed{Name: v.Name, Version: v.Version, Publisher: v.Ring.Publisher,
		Manifest: v.Statement.Manifest, Source: o.Source, Time: now.UTC().Truncate(time.Second)}
	for _, check := range []func() error{
		func() error { return v.Ring.Fresh(now) },
		func() error { return v.Statement.Fresh(now) },
		v.Manifest.Portable,
		func() error { return ix.allows(in.Publisher, v.Statement) },
		func() error { return s.free(ix, in) },
		func() error { return s.agreed(ix, v.Manifest, in, o.Accept) },
	} {
		if err := check(); err != nil {
			return in, err
		}
	}
	fresh, err := s.unpack(v.Manifest, o, r)
	if fresh != "" {
		defer os.RemoveAll(fresh)
	}
	if err != nil {
		return in, err
	}
	if err := record(in); err != nil {
		return in, err
	}
	if err := s.place(fresh, in); err != nil {
		return in, err
	}
	return in, errors.Join(ix.with(in).write(s.Dir), s.sweep(ix.with(in), now))
}

// A Verdict is a manifest that enough keys of a publisher have signed.
type Verdict struct {
	Manifest
	Statement trust.Statement
	Ring      trust.Ring
}

// Judge verifies a manifest by the signed statement about it. The errors wrap ErrAltered,
// ErrManifest or those of trust.Rings.Verify.
func Judge(rings trust.Rings, manifest []byte, signed string) (Verdict, error) {
	statement, ring, err := rings.Verify(signed)
	if err != nil {
		return Verdict{}, err
	}
	sum := sha256.Sum256(manifest)
	if int64(len(manifest)) != statement.Size ||
		"sha256:"+hex.EncodeToString(sum[:]) != statement.Manifest {
		return Verdict{}, fmt.Errorf("%w: %s is signed, and the manifest is sha256:%x", ErrAltered,
			statement.Manifest, sum)
	}
	m, err := Parse(manifest)
	if err == nil && (m.Name != statement.Name || m.Version != statement.Version) {
		err = fmt.Errorf("%w: it is of %s %s, and what is signed of %s %s", ErrManifest, m.Name,
			m.Version, statement.Name, statement.Version)
	}
	return Verdict{m, statement, ring}, err
}

// free returns an error if the name of a bundle belongs to another publisher.
func (s *Store) free(ix index, in Installed) error {
	if old, ok := ix.find(in.Name); ok && old.Publisher != in.Publisher {
		return fmt.Errorf("bundle %s of %s: %w: %s's is installed", in.Name, in.Publisher, ErrTaken,
			old.Publisher)
	}
	if in.Publisher == trust.Official {
		return nil
	}
	if slices.Contains(officialNames, in.Name) {
		return fmt.Errorf("bundle %s of %s: %w: it is one of jail's own", in.Name, in.Publisher,
			ErrTaken)
	}
	for _, dir := range s.Shipped {
		if _, err := os.Lstat(filepath.Join(dir, in.Name)); err == nil {
			return fmt.Errorf("bundle %s of %s: %w: one of that name came with jail", in.Name,
				in.Publisher, ErrTaken)
		}
	}
	return nil
}

// agreed returns an error unless the bundle's needs were accepted: with the installed version, or
// now, for this manifest.
func (s *Store) agreed(ix index, m Manifest, in Installed, accept string) error {
	if accept != "" && accept != in.Manifest {
		return fmt.Errorf("bundle %s: %w: %s was accepted, and this is %s", in.Name, ErrNotAccepted,
			accept, in.Manifest)
	}
	var had []string
	if old, ok := ix.find(in.Name); ok && old.Publisher == in.Publisher {
		if b, err := load(s.folder(old.Manifest, old.Name), true); err == nil {
			had = b.Reach()
		}
	}
	more := slices.DeleteFunc(m.Reach(), func(r string) bool { return slices.Contains(had, r) })
	if len(more) > 0 && accept == "" {
		return fmt.Errorf("bundle %s: %w: %s (manifest %s)", in.Name, ErrNotAccepted,
			strings.Join(more, ", "), in.Manifest)
	}
	return nil
}

// Reach returns what a bundle uses outside of its own directory, a phrase each, for a person to
// accept: hosts, mounts, and imports other than plain WASI.
func (m Manifest) Reach() []string {
	var all []string
	if m.Needs != nil {
		for _, h := range m.Needs.Hosts {
			all = append(all, "host "+h)
		}
		for _, p := range m.Needs.Mounts {
			all = append(all, "mount "+p)
		}
	}
	for _, mod := range m.Modules {
		for _, name := range mod.Imports {
			if !strings.HasPrefix(name, "wasi_snapshot_preview1.") || strings.HasPrefix(name,
				"wasi_snapshot_preview1.sock_") {
				all = append(all, "import "+name)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// unpack writes and verifies the files in a new folder and returns the folder. The folder may be
// set on error; the caller removes it.
func (s *Store) unpack(m Manifest, o Offer, r io.Reader) (string, error) {
	fresh, err := os.MkdirTemp(filepath.Join(s.Dir, "store"), ".new-")
	if err != nil {
		return "", err
	}
	dir := filepath.Join(fresh, m.Name)
	if err := errors.Join(os.Chmod(fresh, 0o755), os.Mkdir(dir, 0o755),
		os.Chmod(dir, 0o755)); err != nil {
		return fresh, err
	}
	for _, f := range m.Files() {
		if err := writeFile(filepath.Join(dir, f.Name), io.LimitReader(r, f.Size), f); err != nil {
			return fresh, err
		}
	}
	if n, err := r.Read(make([]byte, 1)); n > 0 || err != io.EOF {
		return fresh, fmt.Errorf("bundle %s: %w: something follows its last file", m.Name,
			ErrAltered)
	}
	for name, text := range map[string]string{ManifestFile: string(o.Manifest),
		SignatureFile: o.Signed} {
		if err := writeFile(filepath.Join(dir, name), strings.NewReader(text), File{}); err != nil {
			return fresh, err
		}
	}
	// load is the function that reads the bundle for its runs.
	b, err := load(dir, true)
	if err != nil {
		return fresh, err
	}
	return fresh, errors.Join(b.each(s.Check), atomicfile.SyncDir(dir), atomicfile.SyncDir(fresh))
}

// writeFile makes a new file. If want has a digest, the content must match it.
func writeFile(path string, r io.Reader, want File) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o644)
	if err != nil {
		return err
	}
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, h), r)
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	switch {
	case err != nil:
		return err
	case want.SHA256 == "":
		return nil
	case n != want.Size:
		return fmt.Errorf("file %s: %w: it ends after %d bytes of %d", want.Name, ErrAltered, n,
			want.Size)
	case hex.EncodeToString(h.Sum(nil)) != want.SHA256:
		return fmt.Errorf("file %s: %w: its sha256 is %x instead of %s", want.Name, ErrAltered,
			h.Sum(nil), want.SHA256)
	}
	return nil
}

// place renames an unpacked folder to its final name.
func (s *Store) place(fresh string, in Installed) error {
	home := filepath.Dir(s.folder(in.Manifest, in.Name))
	// A folder with the same content may exist, or part of one.
	if err := os.RemoveAll(home); err != nil {
		return err
	}
	if err := os.Rename(fresh, home); err != nil {
		return err
	}
	return atomicfile.SyncDir(filepath.Dir(home))
}

// keepOld is how long a folder stays after the index no longer names it, since somebody may be
// about to read it.
const keepOld = time.Hour

// sweep removes folders that the index has not named for keepOld.
func (s *Store) sweep(ix index, now time.Time) error {
	entries, err := os.ReadDir(filepath.Join(s.Dir, "store"))
	if err != nil {
		return err
	}
	var all []error
	for _, e := range entries {
		info, err := e.Info()
		used := slices.ContainsFunc(ix.Bundles,
			func(in Installed) bool { return in.Manifest == "sha256:"+e.Name() })
		if err == nil && !used && now.Sub(info.ModTime()) > keepOld {
			all = append(all, os.RemoveAll(filepath.Join(s.Dir, "store", e.Name())))
		}
	}
	return errors.Join(all...)
}

// Remove removes a pulled bundle. If forget is set, the newest version seen is forgotten, and an
// older one can be installed again. Errors are a *NotFoundError, or come from the disk or record.
func (s *Store) Remove(name string, forget bool, record func(Installed) error) (in Installed,
	err error) {
	err = s.locked(func() error {
		ix, err := readIndex(s.Dir, true)
		if err != nil {
			return err
		}
		var ok bool
		if in, ok = ix.find(name); !ok {
			return &NotFoundError{Kind: pulledBundle, Name: name}
		}
		if err := record(in); err != nil {
			return err
		}
		next := ix.without(name)
		if forget {
			next = next.forget(in.Publisher, name)
		}
		if err := next.write(s.Dir); err != nil {
			return err
		}
		return os.RemoveAll(filepath.Dir(s.folder(in.Manifest, in.Name)))
	})
	return in, err
}

// SetRing puts a ring into use. explicit is set if an operator vouches for it. See
// trust.Rings.Admit.
func (s *Store) SetRing(r trust.Ring, explicit bool, now time.Time, record func() error) error {
	return s.locked(func() error {
		rings, err := trust.Load(s.KeysDir(), true)
		if err != nil {
			return err
		}
		if err := rings.Admit(r, explicit, now); err != nil {
			return err
		}
		if err := record(); err != nil {
			return err
		}
		return trust.Save(s.KeysDir(), r)
	})
}

// RemoveRing removes a publisher's ring. The publisher's bundles then no longer run.
func (s *Store) RemoveRing(publisher string, record func() error) error {
	return s.locked(func() error {
		rings, err := trust.Load(s.KeysDir(), true)
		if err != nil {
			return err
		}
		if _, ok := rings[publisher]; !ok {
			return &NotFoundError{Kind: Publisher, Name: publisher}
		}
		if err := record(); err != nil {
			return err
		}
		return trust.Remove(s.KeysDir(), publisher)
	})
}
