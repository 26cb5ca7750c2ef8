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
)

// layout reads a directory in the OCI image layout. Whose directory it is nobody knows: files are opened without following a link or waiting
// for a pipe, and what they hold is compared with the digest that it is known by.
type layout struct{ dir string }

func (l layout) Resolve(_ context.Context, reference string) (specs.Descriptor, error) {
	f, err := l.open(specs.ImageIndexFile)
	if errors.Is(err, fs.ErrNotExist) {
		return specs.Descriptor{}, fmt.Errorf("%w: the directory has no %s of the OCI image layout", ErrArtifact, specs.ImageIndexFile)
	}
	if err != nil {
		return specs.Descriptor{}, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxDocument+1))
	if err != nil || len(text) > maxDocument {
		return specs.Descriptor{}, fmt.Errorf("%s: %w: longer than %d bytes, or not readable", f.Name(), ErrArtifact, maxDocument)
	}
	var index specs.Index
	if err := json.Unmarshal(text, &index); err != nil {
		return specs.Descriptor{}, fmt.Errorf("%s: %w: %w", f.Name(), ErrArtifact, err)
	}
	var found []specs.Descriptor
	for _, m := range index.Manifests {
		tag := m.Annotations[specs.AnnotationRefName]
		if m.Digest.String() == reference || tag == reference {
			found = append(found, m)
		}
	}
	if len(found) == 0 && reference == unnamed { // a directory that holds one bundle needs no name for it
		found = slices.DeleteFunc(index.Manifests, func(m specs.Descriptor) bool { return m.MediaType != specs.MediaTypeImageIndex })
	}
	// One thing may have several names.
	slices.SortFunc(found, func(a, b specs.Descriptor) int { return strings.Compare(string(a.Digest), string(b.Digest)) })
	found = slices.CompactFunc(found, func(a, b specs.Descriptor) bool { return a.Digest == b.Digest })
	if len(found) != 1 {
		return specs.Descriptor{}, fmt.Errorf("%w: %d things in the directory are called %s", ErrArtifact, len(found), reference)
	}
	return found[0], nil
}

func (l layout) Fetch(_ context.Context, desc specs.Descriptor) (io.ReadCloser, error) {
	if !isDigest(desc.Digest.String()) {
		return nil, fmt.Errorf("%w: digest %.100q", ErrArtifact, desc.Digest)
	}
	return l.open(filepath.Join(specs.ImageBlobsDir, "sha256", desc.Digest.Encoded()))
}

func (l layout) open(name string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(l.dir, name), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
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
