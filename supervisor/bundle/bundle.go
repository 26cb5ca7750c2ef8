// Package bundle finds and reads tool bundles on disk: folders of WebAssembly
// modules with a manifest, bundle.json, that names their commands and pins each
// file. It exists so that what runs is what the manifest says: a module is opened
// once, its bytes are checked against the manifest, and those very bytes are what
// the caller gets.
package bundle

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/jail-sandbox/jail/jail/asuser"
)

// ManifestFile is the name of the manifest in a bundle's folder, SignatureFile that of the signed
// statement about it, which may be missing.
const (
	ManifestFile  = "bundle.json"
	SignatureFile = "bundle.sig"
)

// A Bundle is an installed bundle with a valid manifest. Modules are checked when they are read.
type Bundle struct {
	Manifest
	Dir string // its folder
	// Text is the manifest, byte for byte. Signed is the statement about it, or ""; load does not
	// verify it.
	Text, Signed string
	// Origin tells how it was installed; nil if it came with jail.
	Origin *Installed

	owned bool
}

// Load reads the bundle in a folder. The folder must have the bundle's name and hold no file that
// the manifest does not name.
func Load(dir string) (*Bundle, error) { return load(dir, false) }

func load(dir string, owned bool) (*Bundle, error) {
	b := &Bundle{Dir: dir, owned: owned}
	info, err := os.Lstat(dir)
	if err != nil {
		return nil, err
	}
	if err := b.trusted(dir, info, info.IsDir()); err != nil {
		return nil, err
	}
	text, err := b.read(ManifestFile, maxManifest)
	if err != nil {
		return nil, err
	}
	if b.Manifest, err = Parse(text); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, ManifestFile), err)
	}
	b.Text = string(text)
	signed, err := b.read(SignatureFile, maxManifest)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	b.Signed = string(signed)
	if b.Name != filepath.Base(dir) {
		return nil, fmt.Errorf("%s: %w: it names the bundle %s", dir, ErrManifest, b.Name)
	}
	return b, b.onlyKnownFiles()
}

func (b *Bundle) onlyKnownFiles() error {
	entries, err := os.ReadDir(b.Dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		known := e.Name() == ManifestFile || e.Name() == SignatureFile ||
			slices.ContainsFunc(b.Modules,
				func(m ModuleEntry) bool { return m.File == e.Name() }) ||
			slices.ContainsFunc(b.Licences, func(l Licence) bool { return l.File == e.Name() })
		if !known {
			return fmt.Errorf("%s: %w: the manifest does not name it",
				filepath.Join(b.Dir, e.Name()), ErrAltered)
		}
	}
	return nil
}

// read returns the content of a file of the bundle of at most limit bytes. It opens the name once,
// without following links, and checks the open file.
func (b *Bundle) read(name string, limit int64) ([]byte, error) {
	path := filepath.Join(b.Dir, name)
	// A named pipe in its place would block without O_NONBLOCK.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) {
		return nil, fmt.Errorf("%s: %w: it is a symbolic link", path, ErrAltered)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if err := b.trusted(path, info, info.Mode().IsRegular()); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = fmt.Errorf("%s: %w: larger than %d bytes", path, ErrAltered, limit)
	}
	return text, err
}

// trusted checks the kind of a file, and for an owned bundle that only root may write it.
func (b *Bundle) trusted(path string, info fs.FileInfo, rightKind bool) error {
	if !rightKind {
		return fmt.Errorf("%s: %w: it is %s", path, ErrAltered, kindOf(info.Mode()))
	}
	if !b.owned {
		return nil
	}
	return rootOnly(path, info)
}

func kindOf(mode fs.FileMode) string {
	switch mode.Type() {
	case 0:
		return "a regular file"
	case fs.ModeDir:
		return "a directory"
	case fs.ModeSymlink:
		return "a symbolic link"
	}
	return "a special file"
}

// rootOnly returns an error if another user than root may write the file.
func rootOnly(path string, info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok || !asuser.Rules(st.Uid):
		return fmt.Errorf("%s: %w: it does not belong to root", path, errUntrusted)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%s: %w: its mode %04o lets others write", path, errUntrusted,
			info.Mode().Perm())
	}
	return nil
}
