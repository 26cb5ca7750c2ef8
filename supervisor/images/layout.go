package images

import (
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/klauspost/compress/zstd"
	specs "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/jail-sandbox/jail/jail/asuser"
	"github.com/jail-sandbox/jail/jail/rootfs"
	"github.com/jail-sandbox/jail/supervisor/bundle/trust"
	"github.com/jail-sandbox/jail/supervisor/jsonbound"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// errImage is wrapped by errors about directories and images that are malformed or unsupported.
var errImage = errors.New("not an image that can be taken")

// Limits on the documents and the archives of an image.
const (
	// Bytes of an index, manifest or configuration.
	maxDocument = 4 << 20
	// JSON values in such a document.
	maxValues = 64 << 10
	maxLayers = 256
	// Window of a zstd archive, in bytes; zstd --ultra uses 128 MiB.
	maxWindow = 128 << 20
)

// Docker's media types for the same formats.
const (
	dockerManifest = "application/vnd.docker.distribution.manifest.v2+json"
	dockerList     = "application/vnd.docker.distribution.manifest.list.v2+json"
	dockerLayer    = "application/vnd.docker.image.rootfs.diff.tar.gzip"
)

// A layout is a caller's directory in the OCI image layout. Its files are opened once, with the
// caller's rights, without following links or blocking on a FIFO. Blobs are verified against their
// digests as they are read.
type layout struct {
	dir *os.File
	by  asuser.Caller
}

func (l layout) open(name string) (*os.File, error) {
	f, err := l.by.OpenIn(l.dir, name)
	if err != nil {
		return nil, l.explain(name, err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = l.wrong(name, "it is no regular file")
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (l layout) wrong(name, why string) error {
	return fmt.Errorf("%s: %w: %s", filepath.Join(l.dir.Name(), name), errImage, why)
}

func (l layout) explain(name string, err error) error {
	switch is := func(target error) bool { return errors.Is(err, target) }; {
	case is(fs.ErrNotExist), is(syscall.ENOTDIR):
		return l.wrong(name, "there is no such file, as the OCI image layout has it")
	case is(syscall.ELOOP):
		return l.wrong(name, "it is a symbolic link")
	case is(syscall.ENXIO):
		return l.wrong(name, "it is no regular file")
	case is(fs.ErrPermission):
		return l.wrong(name, "you may not read it")
	}
	return err
}

// document decodes a JSON file of the directory into v. If want is not nil, the file must have the
// digest and size in want. More than maxDocument bytes or maxValues JSON values are an error.
func (l layout) document(name string, want *specs.Descriptor, v any) error {
	f, err := l.open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	text, err := asuser.ReadAll(f, maxDocument)
	if errors.Is(err, asuser.ErrTooLarge) {
		return l.wrong(name, fmt.Sprintf("it is longer than %d bytes", maxDocument))
	}
	if err != nil {
		return err
	}
	if want != nil {
		v := want.Digest.Verifier()
		if _, err := v.Write(text); err != nil || !v.Verified() {
			return l.wrong(name, "its content has another digest")
		}
		if int64(len(text)) != want.Size {
			return l.wrong(name, fmt.Sprintf("it has %d bytes, where %d are announced", len(text),
				want.Size))
		}
	}
	if err := jsonbound.Check(text, maxValues); err != nil {
		return l.wrong(name, err.Error())
	}
	if err := json.Unmarshal(text, v); err != nil {
		return l.wrong(name, "it is no JSON of an image: "+err.Error())
	}
	return nil
}

func blob(d specs.Descriptor) (string, error) {
	switch {
	case trust.CheckDigest(d.Digest.String()) != nil:
		return "", fmt.Errorf("%w: digest %.100q is no sha256", errImage, d.Digest)
	case len(d.URLs) > 0:
		return "", fmt.Errorf("%w: %s is to be fetched from elsewhere", errImage, d.Digest)
	case d.Size < 0:
		return "", fmt.Errorf("%w: %s has %d bytes", errImage, d.Digest, d.Size)
	}
	return filepath.Join(specs.ImageBlobsDir, "sha256", d.Digest.Encoded()), nil
}

func (l layout) blob(d specs.Descriptor, v any) error {
	name, err := blob(d)
	if err != nil {
		return err
	}
	return l.document(name, &d, v)
}

// An unpackable image is one whose manifest and configuration were checked.
type unpackable struct {
	digest string
	config specs.ImageConfig
	layers []specs.Descriptor
	// the digests of the layers' uncompressed archives
	rootfs specs.RootFS
}

// find reads and checks the manifest and configuration of the image that ref names.
func (l layout) find(ref Reference) (u unpackable, err error) {
	var index specs.Index
	if err := l.document(specs.ImageIndexFile, nil, &index); err != nil {
		return u, err
	}
	found := slices.DeleteFunc(index.Manifests, func(d specs.Descriptor) bool {
		return ref.Digest != "" && d.Digest.String() != ref.Digest ||
			ref.Tag != "" && d.Annotations[specs.AnnotationRefName] != ref.Tag
	})
	if what := cmp.Or(ref.Digest, ref.Tag); len(found) == 0 && what != "" {
		return u, problem.New(problem.NotFound, "image oci:%s: the directory has no image %s",
			l.dir.Name(), what).WithHint("its file index.json names those that there are")
	}
	d, err := l.choose(found)
	if err != nil {
		return u, err
	}
	if d.MediaType == specs.MediaTypeImageIndex || d.MediaType == dockerList {
		var inner specs.Index
		if err := l.blob(d, &inner); err != nil {
			return u, err
		}
		if d, err = l.choose(inner.Manifests); err != nil {
			return u, err
		}
	}
	if d.MediaType != specs.MediaTypeImageManifest && d.MediaType != dockerManifest {
		return u, fmt.Errorf("%s: %w: %.100q is no manifest of an image", l.dir.Name(), errImage,
			d.MediaType)
	}
	var m specs.Manifest
	if err := l.blob(d, &m); err != nil {
		return u, err
	}
	var config specs.Image
	if err := l.blob(m.Config, &config); err != nil {
		return u, err
	}
	u = unpackable{digest: d.Digest.String(), config: config.Config, layers: m.Layers,
		rootfs: config.RootFS}
	return u, l.check(u, config.Platform)
}

// check returns an error if manifest and configuration disagree, or are for another platform.
func (l layout) check(u unpackable, p specs.Platform) error {
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("image %s: %w: %s", u.digest, errImage, fmt.Sprintf(format, args...))
	}
	switch {
	case p.OS != "linux" || p.Architecture != runtime.GOARCH:
		return wrong("it is for %.40s/%.40s, and this host is linux/%s", p.OS, p.Architecture,
			runtime.GOARCH)
	case len(u.layers) == 0 || len(u.layers) > maxLayers:
		return wrong("it has %d layers, where 1 to %d are allowed", len(u.layers), maxLayers)
	case len(u.layers) != len(u.rootfs.DiffIDs):
		return wrong("it has %d layers, and its configuration speaks of %d", len(u.layers),
			len(u.rootfs.DiffIDs))
	}
	for i, d := range u.layers {
		if _, err := blob(d); err != nil {
			return err
		}
		if _, err := decompressor(d.MediaType); err != nil {
			return wrong("layer %d: %v", i+1, err)
		}
		if diff := u.rootfs.DiffIDs[i].String(); trust.CheckDigest(diff) != nil {
			return wrong("layer %d: %.100q is no sha256", i+1, diff)
		}
	}
	return nil
}

// choose returns the only image of a list. From several images it returns the only one for this
// host's platform. No such image, or more than one, is an error. Duplicates count once.
func (l layout) choose(all []specs.Descriptor) (specs.Descriptor, error) {
	known := map[string]bool{}
	one := func(d specs.Descriptor) bool {
		seen := known[d.Digest.String()]
		known[d.Digest.String()] = true
		return seen
	}
	all = slices.DeleteFunc(all, one)
	if len(all) > 1 {
		all = slices.DeleteFunc(all, func(d specs.Descriptor) bool {
			return d.Platform == nil || d.Platform.OS != "linux" ||
				d.Platform.Architecture != runtime.GOARCH
		})
	}
	if len(all) != 1 {
		return specs.Descriptor{}, fmt.Errorf("%s: %w: %d images fit: name one by :TAG or @sha256:DIGEST",
			l.dir.Name(), errImage, len(all))
	}
	return all[0], nil
}

// decompressor returns the function that decompresses a layer of a media type: gzip, zstd or none.
// Another media type is an error.
func decompressor(mediaType string) (func(io.Reader) (io.ReadCloser, error), error) {
	kind, compression, _ := strings.Cut(mediaType, "+")
	switch {
	case mediaType == dockerLayer, kind == specs.MediaTypeImageLayer && compression == "gzip":
		return func(r io.Reader) (io.ReadCloser, error) { return gzip.NewReader(r) }, nil
	case kind == specs.MediaTypeImageLayer && compression == "zstd":
		return func(r io.Reader) (io.ReadCloser, error) {
			d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1),
				zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
			if err != nil {
				return nil, err
			}
			return d.IOReadCloser(), nil
		}, nil
	case mediaType == specs.MediaTypeImageLayer:
		return func(r io.Reader) (io.ReadCloser, error) { return io.NopCloser(r), nil }, nil
	}
	return nil, fmt.Errorf("media type %.100q is unknown", mediaType)
}

// layer passes the uncompressed archive of layer i to take, which must read it to its end. It fails
// if a digest differs from the manifest or the configuration.
func (l layout) layer(u unpackable, i int, take func(io.Reader) error) error {
	d := u.layers[i]
	name, err := blob(d)
	if err != nil {
		return err
	}
	f, err := l.open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && info.Size() != d.Size {
		err = l.wrong(name, fmt.Sprintf("it has %d bytes, where %d are announced", info.Size(), d.Size))
	}
	if err != nil {
		return err
	}
	whole, archive := d.Digest.Verifier(), u.rootfs.DiffIDs[i].Verifier()
	raw := io.TeeReader(io.LimitReader(f, d.Size), whole)
	unpacker, err := decompressor(d.MediaType)
	if err != nil {
		return err
	}
	damaged := func(err error) error {
		if _, ok := errors.AsType[*fs.PathError](err); ok || errors.Is(err, rootfs.ErrLayer) ||
			errors.Is(err, rootfs.ErrTooLarge) || errors.Is(err, context.Canceled) ||
			errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		return l.wrong(name, "it cannot be unpacked: "+err.Error())
	}
	r, err := unpacker(raw)
	if err != nil {
		return damaged(err)
	}
	defer r.Close()
	if err := take(io.TeeReader(r, archive)); err != nil {
		return damaged(err)
	}
	// The digest also covers bytes after the compressed stream.
	if _, err := io.Copy(io.Discard, raw); err != nil {
		return err
	}
	switch {
	case !whole.Verified():
		return l.wrong(name, "its content has another digest")
	case !archive.Verified():
		return l.wrong(name, "its archive has another digest than the configuration says")
	}
	return nil
}
