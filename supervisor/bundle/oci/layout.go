package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	specs "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/jail-sandbox/jail/supervisor/bundle/trust"
	"github.com/jail-sandbox/jail/supervisor/jsonbound"
)

// layout reads a directory in the OCI image layout. The directory is not trusted: files are opened
// without following links or blocking on a FIFO, and callers verify their digests.
type layout struct{ dir string }

func (l layout) Resolve(_ context.Context, reference string) (specs.Descriptor, error) {
	if err := l.isDirectory(); err != nil {
		return specs.Descriptor{}, err
	}
	f, err := l.open(specs.ImageIndexFile)
	if err != nil {
		return specs.Descriptor{}, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxDocument+1))
	if err != nil || len(text) > maxDocument {
		return specs.Descriptor{}, fmt.Errorf("%s: %w: longer than %d bytes, or not readable",
			f.Name(), ErrArtifact, maxDocument)
	}
	var index specs.Index
	if err = jsonbound.Check(text, maxValues); err == nil {
		err = json.Unmarshal(text, &index)
	}
	if err != nil {
		return specs.Descriptor{}, fmt.Errorf("%s: %w: %w", f.Name(), ErrArtifact, err)
	}
	var found []specs.Descriptor
	for _, m := range index.Manifests {
		tag := m.Annotations[specs.AnnotationRefName]
		if m.Digest.String() == reference || tag == reference {
			found = append(found, m)
		}
	}
	// A directory with one bundle or image needs no tag. The index may also list the manifests of
	// an inner index.
	for _, kinds := range [][]string{{specs.MediaTypeImageIndex},
		{specs.MediaTypeImageManifest, dockerManifest}} {
		if len(found) == 0 && reference == unnamed {
			found = slices.DeleteFunc(slices.Clone(index.Manifests),
				func(m specs.Descriptor) bool { return !slices.Contains(kinds, m.MediaType) })
		}
	}
	// One artifact may have several tags.
	slices.SortFunc(found,
		func(a, b specs.Descriptor) int {
			return strings.Compare(string(a.Digest), string(b.Digest))
		})
	found = slices.CompactFunc(found,
		func(a, b specs.Descriptor) bool { return a.Digest == b.Digest })
	if len(found) != 1 {
		return specs.Descriptor{}, fmt.Errorf("%w: %d things in the directory are called %s",
			ErrArtifact, len(found), reference)
	}
	return found[0], nil
}

func (l layout) Fetch(_ context.Context, desc specs.Descriptor) (io.ReadCloser, error) {
	if trust.CheckDigest(desc.Digest.String()) != nil {
		return nil, fmt.Errorf("%w: digest %.100q", ErrArtifact, desc.Digest)
	}
	return l.open(filepath.Join(specs.ImageBlobsDir, "sha256", desc.Digest.Encoded()))
}

// isDirectory returns an error that wraps ErrNotFound if there is no directory.
func (l layout) isDirectory() error {
	info, err := os.Stat(l.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%w: no such directory", ErrNotFound)
	case err == nil && !info.IsDir():
		return fmt.Errorf("%w: it is no directory", ErrNotFound)
	}
	return err
}

// open opens a regular file of the layout. A missing or other file is an error that wraps
// ErrArtifact.
func (l layout) open(name string) (*os.File, error) {
	path := filepath.Join(l.dir, name)
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return nil, fmt.Errorf("%w: the directory has no %s of the OCI image layout", ErrArtifact,
			name)
	case errors.Is(err, syscall.ELOOP):
		return nil, fmt.Errorf("%s: %w: it is a symbolic link", path, ErrArtifact)
	case errors.Is(err, syscall.ENXIO):
		return nil, fmt.Errorf("%s: %w: it is no regular file", path, ErrArtifact)
	case err != nil:
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s: %w: it is no regular file", f.Name(), ErrArtifact)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
