// Package images keeps the root file systems of OCI images for use as roots of jails. Each image is
// unpacked once.
package images

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail/asuser"
	"github.com/jail-sandbox/jail/jail/atomicfile"
	"github.com/jail-sandbox/jail/jail/rootfs"
	"github.com/jail-sandbox/jail/supervisor/flock"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// Bounds of images.
const (
	// maxBytes bounds the archives of one image, and its unpacked files, in bytes.
	maxBytes = 8 << 30
	// maxEntries bounds the files of one image.
	maxEntries = 1_000_000
	// maxUserBytes bounds the total bytes of a user's images that have no name. The least recently
	// used ones are removed for a new one.
	maxUserBytes = 16 << 30
	// keepFree is how many bytes of the disk unpacking leaves free.
	keepFree = 512 << 20
	// maxTop bounds the entries in the root directory of an image.
	maxTop = 1024
	// maxUnpacking is how many images may be unpacked at one time.
	maxUnpacking = 4
	// maxConfig bounds the bytes of text in an image's configuration.
	maxConfig = 256 << 10
)

// host is the owner folder of images that were added by name. Every user may use them.
const host = "host"

// Prefixes of folders in a store that are not images.
const (
	unplaced = ".new-"
	removed  = ".old-"
)

// A Store holds unpacked images in a directory that only the daemon's user may enter:
//
//	names.json               the list of named images
//	<owner>/<digest>/root    the root file system of an image, by the digest of its manifest
//	<owner>/<digest>/about   the About of the image
//
// owner is the uid of the user who brought the image, or host for a named one. Users share only
// named images, since a digest alone must not give access to layers that a user does not have. A
// run holds a shared lock on the folder of its image, which prevents its removal.
type Store struct {
	dir string
	// bounds apply to one image, and userBytes to all unnamed images of one user.
	bounds    rootfs.Bounds
	userBytes int64
	// unpacking admits one goroutine per image, and a bounded number in all.
	unpacking *turns
	// room is locked while images of a user are removed for a new one.
	room sync.Mutex
}

// An About describes an unpacked image.
type About struct {
	// Name is the name of an added image; empty for an image that a run unpacked from a directory.
	Name string `json:"name,omitempty"`
	// Digest is the digest of the image's manifest, "sha256:…".
	Digest string `json:"digest"`
	// Source is where it came from.
	Source string `json:"source"`
	// Publisher is the publisher whose keys signed the image; empty without a signature.
	Publisher string `json:"publisher,omitempty"`
	// Signed is the signed statement about the image; empty without a signature.
	Signed string `json:"signed,omitempty"`
	// Time is when the image was unpacked or added, in UTC.
	Time time.Time `json:"time"`
	// Usage is the disk usage of the unpacked image.
	Usage rootfs.TreeUsage `json:"usage"`
	// Layers is the number of layers of the image.
	Layers int `json:"layers"`
	// Config is the image's configuration.
	Config Config `json:"config"`
	// Top are the directories and regular files in its root.
	Top []string `json:"top"`
}

// A Config holds the settings in an image for running its programs.
type Config struct {
	// NAME=VALUE
	Env        []string `json:"env,omitempty"`
	Entrypoint []string `json:"entrypoint,omitempty"`
	Cmd        []string `json:"cmd,omitempty"`
	WorkingDir string   `json:"working_dir,omitempty"`
	// User is the user that other runtimes run the programs as. A jail uses the tool's user.
	User string `json:"user,omitempty"`
}

// A Held is an image that a run uses. It is not removed until it is closed.
type Held struct {
	About
	// Root is the directory of its root file system.
	Root string
	lock *os.File
}

// Close releases the image, so that it may be removed. h may be nil.
func (h *Held) Close() {
	if h != nil {
		h.lock.Close()
	}
}

// Open opens the store in a directory, and removes what an earlier daemon left incomplete.
func Open(dir string) (*Store, error) {
	s := &Store{dir: dir, bounds: rootfs.Bounds{Bytes: maxBytes, Entries: maxEntries, Free: keepFree},
		userBytes: maxUserBytes, unpacking: newTurns(maxUnpacking)}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	owners, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, o := range owners {
		if !o.IsDir() {
			continue
		}
		entries, err := os.ReadDir(filepath.Join(dir, o.Name()))
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), unplaced) || strings.HasPrefix(e.Name(), removed) {
				if err := sweep(filepath.Join(dir, o.Name(), e.Name())); err != nil {
					return nil, err
				}
			}
		}
	}
	// Remove images that lost their names while a run used them.
	unnamed, err := s.of(host)
	if err != nil {
		return nil, err
	}
	all := make([]About, len(unnamed))
	for i, k := range unnamed {
		all[i] = k.About
	}
	return s, s.dropUnnamed(all)
}

// sweep removes a folder unless another daemon holds its lock.
func sweep(dir string) error {
	lock, err := flock.Dir(dir, syscall.LOCK_EX)
	if errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	return os.RemoveAll(dir)
}

// Use returns the image of a reference for a run of a caller. It unpacks an image of a directory
// first if the user has not unpacked it before. The caller closes the image.
func (s *Store) Use(ctx context.Context, c asuser.Caller, ref Reference) (*Held, error) {
	if ref.Name != "" {
		return s.named(ref.Name)
	}
	return s.fromLayout(ctx, c, ref, strconv.FormatUint(uint64(c.UID), 10))
}

func (s *Store) named(name string) (*Held, error) {
	all, err := s.names()
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(a About) bool { return a.Name == name })
	// The signature and publisher recorded with the name count, not those at the unpacking.
	missing := problem.New(problem.NotFound, "no image is called %q", name).
		WithHint("jail image list shows which there are; oci:DIR names a directory")
	if i < 0 {
		return nil, missing
	}
	held, err := s.hold(host, all[i].Digest)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, missing
	}
	if held != nil {
		held.Name, held.Signed, held.Publisher = name, all[i].Signed, all[i].Publisher
	}
	return held, err
}

func (s *Store) folder(owner, digest string) string {
	return filepath.Join(s.dir, owner, strings.TrimPrefix(digest, "sha256:"))
}

// hold locks an unpacked image for use. The error is fs.ErrNotExist if it is missing.
func (s *Store) hold(owner, digest string) (*Held, error) {
	dir := s.folder(owner, digest)
	lock, err := flock.Dir(dir, syscall.LOCK_SH)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		// It is being removed.
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, err
	}
	h := &Held{lock: lock, Root: filepath.Join(dir, "root")}
	path := filepath.Join(dir, "about")
	if err = atomicfile.ReadJSON(path, &h.About); err == nil {
		// The time of the file is the time of the last use.
		now := time.Now()
		err = os.Chtimes(path, now, now)
	}
	if err != nil {
		lock.Close()
		return nil, err
	}
	return h, nil
}

// fromLayout returns an image of a caller's directory, unpacked for an owner. The directory must
// always have the manifest and configuration; the layers are read only to unpack.
func (s *Store) fromLayout(ctx context.Context, c asuser.Caller, ref Reference,
	owner string) (*Held, error) {
	dir, err := c.OpenDir(ref.Dir)
	if err != nil {
		return nil, unreadable(ref.Dir, err)
	}
	defer dir.Close()
	from := layout{dir, c}
	u, err := from.find(ref)
	if err != nil {
		return nil, explain(err)
	}
	held, err := s.hold(owner, u.digest)
	if !errors.Is(err, fs.ErrNotExist) {
		return held, err
	}
	done, err := s.unpacking.take(ctx, s.folder(owner, u.digest))
	if err != nil {
		return nil, err
	}
	defer done()
	// Another run may have unpacked the image while this one waited.
	if held, err = s.hold(owner, u.digest); !errors.Is(err, fs.ErrNotExist) {
		return held, err
	}
	if held, err = s.unpack(ctx, from, u, owner); err != nil {
		return nil, explain(err)
	}
	if err := s.makeRoom(owner); err != nil {
		held.Close()
		return nil, errors.Join(err, s.remove(owner, u.digest))
	}
	return held, nil
}

func unreadable(dir string, err error) error {
	if short := problem.Short(err); short != nil {
		return err
	}
	code := problem.Refused
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		code = problem.NotFound
	}
	return problem.New(code, "image oci:%s: %v", dir, problem.Describe(err)).
		WithHint("the directory is read with your own rights")
}

// explain turns an error about an image into a problem with a hint. Other errors are returned
// unchanged.
func explain(err error) error {
	e := problem.New(problem.Refused, "%w", err)
	switch is := func(target error) bool { return errors.Is(err, target) }; {
	case is(errImage):
		e.Hint = "nothing was unpacked; copy the image anew, or ask who made it"
	case is(rootfs.ErrLayer):
		e.Hint = "nothing was unpacked; ask who made the image"
	case is(rootfs.ErrTooLarge):
		e.Hint = "jail image remove, and other files of the host, make room; a smaller image may fit"
	default:
		return err
	}
	return e
}

// unpack makes the folder of an image, complete or not at all. The caller closes the image.
func (s *Store) unpack(ctx context.Context, from layout, u unpackable, owner string) (*Held, error) {
	about := About{Digest: u.digest, Source: "oci:" + from.dir.Name(), Time: time.Now().UTC(),
		Layers: len(u.layers), Config: Config{Env: u.config.Env, Entrypoint: u.config.Entrypoint,
			Cmd: u.config.Cmd, WorkingDir: u.config.WorkingDir, User: u.config.User}}
	if err := about.Config.check(); err != nil {
		return nil, fmt.Errorf("image %s: %w: %w", u.digest, errImage, err)
	}
	parent := filepath.Join(s.dir, owner)
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return nil, err
	}
	fresh, err := os.MkdirTemp(parent, unplaced)
	if err != nil {
		return nil, err
	}
	// The lock keeps others from removing the image until it is held by its name.
	working, err := flock.Dir(fresh, syscall.LOCK_SH)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(fresh))
	}
	defer working.Close()
	if err := s.fill(ctx, fresh, from, u, about); err != nil {
		return nil, errors.Join(err, os.RemoveAll(fresh))
	}
	if err := os.Rename(fresh, s.folder(owner, u.digest)); err != nil {
		// Another daemon may have unpacked the same image meanwhile.
		if cleanErr := os.RemoveAll(fresh); !errors.Is(err, fs.ErrExist) || cleanErr != nil {
			return nil, errors.Join(err, cleanErr)
		}
	}
	if err := atomicfile.SyncDir(parent); err != nil {
		return nil, err
	}
	return s.hold(owner, u.digest)
}

// fill unpacks an image into a folder and writes the about file.
func (s *Store) fill(ctx context.Context, folder string, from layout, u unpackable,
	about About) error {
	dir := filepath.Join(folder, "root")
	if err := errors.Join(os.Mkdir(dir, 0o755), os.Chmod(dir, 0o755)); err != nil {
		return err
	}
	root, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if about.Usage, err = s.layers(ctx, from, u, root); err != nil {
		return err
	}
	if about.Top, err = top(root); err != nil {
		return fmt.Errorf("image %s: %w", u.digest, err)
	}
	if err := atomicfile.WriteJSON(filepath.Join(folder, "about"), about, 0o600,
		atomicfile.Volatile); err != nil {
		return err
	}
	// After a crash, a folder with its final name must be complete.
	return rootfs.Sync(root)
}

func (s *Store) layers(ctx context.Context, from layout, u unpackable,
	root *os.File) (rootfs.TreeUsage, error) {
	tree, err := rootfs.New(root, s.bounds)
	if err != nil {
		return rootfs.TreeUsage{}, err
	}
	defer tree.Close()
	for i := range u.layers {
		steps := []func(context.Context, io.Reader) error{tree.Delete, tree.Add}
		if i == 0 {
			// The first layer has nothing to delete.
			steps = steps[1:]
		}
		for _, step := range steps {
			err := from.layer(u, i, func(r io.Reader) error { return step(ctx, r) })
			if err != nil {
				return tree.Used(), fmt.Errorf("image %s: layer %d: %w", u.digest, i+1, err)
			}
		}
	}
	return tree.Used(), nil
}

// top returns the names of the directories and regular files of a root.
func top(root *os.File) (names []string, err error) {
	entries, err := root.ReadDir(maxTop + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(entries) > maxTop {
		return nil, fmt.Errorf("%w: its root has more than %d entries", errImage, maxTop)
	}
	names = []string{}
	for _, e := range entries {
		if e.IsDir() || e.Type().IsRegular() {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}

// check refuses a configuration with NUL bytes, too much text, malformed variables, or a working
// directory that is not absolute.
func (c Config) check() error {
	size := 0
	for _, list := range [][]string{c.Env, c.Entrypoint, c.Cmd, {c.WorkingDir, c.User}} {
		for _, text := range list {
			if size += len(text) + 1; strings.ContainsRune(text, 0) {
				return errors.New("its configuration has a zero byte in a text")
			}
		}
	}
	if size > maxConfig {
		return fmt.Errorf("its configuration has more than %d bytes of text", maxConfig)
	}
	for _, v := range c.Env {
		if name, _, ok := strings.Cut(v, "="); !ok || name == "" {
			return fmt.Errorf("variable %.100q of its configuration is not NAME=VALUE", v)
		}
	}
	if c.WorkingDir != "" && !filepath.IsAbs(c.WorkingDir) {
		return fmt.Errorf("its working directory %.200q is no absolute path", c.WorkingDir)
	}
	return nil
}

// kept is an unpacked image and the time of its last use.
type kept struct {
	About
	used time.Time
}

// of returns the images of an owner, the least recently used first.
func (s *Store) of(owner string) (all []kept, err error) {
	entries, err := os.ReadDir(filepath.Join(s.dir, owner))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		path := filepath.Join(s.dir, owner, e.Name(), "about")
		var k kept
		var info fs.FileInfo
		if err = atomicfile.ReadJSON(path, &k.About); err == nil {
			info, err = os.Stat(path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		k.used = info.ModTime()
		all = append(all, k)
	}
	slices.SortFunc(all, func(a, b kept) int {
		return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.Digest, b.Digest))
	})
	return all, nil
}

// makeRoom removes the least recently used images of a user that are not in use, until the rest
// fits the bound. The error says that the images in use alone exceed it.
func (s *Store) makeRoom(owner string) error {
	if owner == host {
		return nil
	}
	s.room.Lock()
	defer s.room.Unlock()
	all, err := s.of(owner)
	if err != nil {
		return err
	}
	total := int64(0)
	for _, k := range all {
		total += k.Usage.Bytes
	}
	for _, k := range all {
		if total <= s.userBytes {
			return nil
		}
		err := s.remove(owner, k.Digest)
		switch {
		case errors.Is(err, errInUse):
			continue
		case err != nil:
			return err
		}
		total -= k.Usage.Bytes
	}
	if total <= s.userBytes {
		return nil
	}
	return problem.New(problem.Refused, "images: those that your runs use take %d MiB with this one, "+
		"where %d are allowed", total>>20, s.userBytes>>20).
		WithHint("try again when other runs have ended, or use a smaller image")
}

var errInUse = errors.New("the image is in use")

// remove removes an image. It returns errInUse if a run holds it, and nil if it is missing.
func (s *Store) remove(owner, digest string) error {
	dir := s.folder(owner, digest)
	lock, err := flock.Dir(dir, syscall.LOCK_EX)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return errInUse
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	old, err := os.MkdirTemp(filepath.Dir(dir), removed)
	if err != nil {
		return err
	}
	// After the rename nobody finds the image.
	if err := os.Rename(dir, filepath.Join(old, "image")); err != nil {
		return errors.Join(err, os.Remove(old))
	}
	return os.RemoveAll(old)
}

// turns lets one goroutine at a time work on each key, and a bounded number on all keys. Its
// methods may be called from several goroutines.
type turns struct {
	mu   sync.Mutex
	busy map[string]chan struct{}
	all  chan struct{}
}

func newTurns(most int) *turns {
	return &turns{busy: map[string]chan struct{}{}, all: make(chan struct{}, most)}
}

// take waits until no other goroutine works on the key and fewer than the bounded number work in
// all. The caller calls done after its work. If ctx ends first, done is nil and err is that of ctx.
func (t *turns) take(ctx context.Context, key string) (done func(), err error) {
	mine := make(chan struct{})
	for {
		t.mu.Lock()
		before := t.busy[key]
		if before == nil {
			t.busy[key] = mine
		}
		t.mu.Unlock()
		if before == nil {
			break
		}
		select {
		case <-before:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	release := func() {
		t.mu.Lock()
		delete(t.busy, key)
		t.mu.Unlock()
		close(mine)
	}
	select {
	case t.all <- struct{}{}:
		return func() { <-t.all; release() }, nil
	case <-ctx.Done():
		release()
		return nil, ctx.Err()
	}
}
