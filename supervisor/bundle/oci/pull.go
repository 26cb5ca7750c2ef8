package oci

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/opencontainers/go-digest"
	specs "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content/oci"
	"oras.land/oras-go/v2/errdef"

	"github.com/jail-sandbox/jail/supervisor/bundle"
)

// A Pulled bundle lies in a directory in the OCI image layout. Its files are named by digest.
type Pulled struct {
	Manifest []byte // bundle.json
	// the statement about it; "" if unsigned
	Signed string
	// Digest is the digest of the index, which pins the bundle.
	Digest string
	Bundle bundle.Manifest

	dir   layout
	files []specs.Descriptor
}

// Pull copies a bundle into dir in the OCI image layout. It creates dir if needed. accept is called
// with the manifest and statement first; if it returns an error, no files are fetched. A repeated
// pull resumes one that was interrupted.
func (c *Client) Pull(ctx context.Context, ref Reference, dir string,
	accept func(manifest []byte, signed string) error) (*Pulled, error) {
	src, err := c.source(ref)
	if err != nil {
		return nil, err
	}
	a, err := readArtifact(ctx, src, ref)
	if err != nil {
		return nil, describe(ctx, ref, err)
	}
	if err := accept(a.text, a.signed); err != nil {
		return nil, err
	}
	p := &Pulled{Manifest: a.text, Signed: a.signed, Digest: a.root.Digest.String(),
		Bundle: a.manifest, dir: layout{dir}, files: a.files}
	if ref.Layout != "" && sameDir(ref.Layout, dir) {
		// Files verifies the files as they are read.
		return p, nil
	}
	return p, c.keep(ctx, src, a, ref, dir)
}

func sameDir(a, b string) bool {
	x, errA := os.Stat(a)
	y, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(x, y)
}

// keep writes an artifact into a directory, files first, so that a tag there is complete.
func (c *Client) keep(ctx context.Context, src source, a *artifact, ref Reference,
	dir string) error {
	store, err := oci.NewWithContext(ctx, dir)
	if err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	var total, done int64
	for _, f := range a.files {
		total += f.Size
	}
	for _, f := range a.files {
		if ok, err := store.Exists(ctx, f); err == nil && ok {
			done += f.Size
			continue
		}
		if err := c.file(ctx, src, store, ref, dir, f, func(n int64) {
			c.progress(done+n, total)
		}); err != nil {
			return err
		}
		done += f.Size
	}
	// The index comes last.
	for i := len(a.documents) - 1; i >= 0; i-- {
		d := a.documents[i]
		if err := push(ctx, store, d.desc, d.content); err != nil {
			return err
		}
	}
	tag := cmp.Or(ref.Tag, unnamed)
	return store.Tag(ctx, a.root, tag)
}

func push(ctx context.Context, store *oci.Store, desc specs.Descriptor, text []byte) error {
	err := store.Push(ctx, desc, bytes.NewReader(text))
	if errors.Is(err, errdef.ErrAlreadyExists) {
		return nil
	}
	return err
}

// file fetches one file by its digest into a partial file, which stays if the transfer is
// interrupted.
func (c *Client) file(ctx context.Context, src source, store *oci.Store, ref Reference, dir string,
	desc specs.Descriptor, progress func(int64)) error {
	partial := filepath.Join(dir, "partial-"+desc.Digest.Encoded())
	f, err := os.OpenFile(partial, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK,
		0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := c.fill(ctx, src, f, desc, progress); err != nil {
		return describe(ctx, ref, fmt.Errorf("%s: %w", desc.Digest, err))
	}
	if err := verify(f, desc); err != nil {
		// Resuming it would fail in the same way.
		return errors.Join(err, os.Remove(partial))
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := store.Push(ctx, desc, f); err != nil && !errors.Is(err, errdef.ErrAlreadyExists) {
		return err
	}
	return os.Remove(partial)
}

// fill brings a partial file to the size of desc, and never beyond. It starts again if the source
// cannot resume.
func (c *Client) fill(ctx context.Context, src source, f *os.File, desc specs.Descriptor,
	progress func(int64)) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no regular file", f.Name())
	}
	at := info.Size()
	if at >= desc.Size {
		return f.Truncate(desc.Size)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r, err := src.Fetch(ctx, desc)
	if err != nil {
		return err
	}
	defer r.Close()
	if seeker, ok := r.(io.Seeker); ok && at > 0 {
		_, err = seeker.Seek(at, io.SeekStart)
	} else {
		// The source cannot resume.
		at = 0
		err = f.Truncate(0)
	}
	if err != nil {
		return err
	}
	if _, err := f.Seek(at, io.SeekStart); err != nil {
		return err
	}
	watched := c.watch(r, cancel)
	defer watched.stop()
	n, err := io.Copy(f, io.LimitReader(watched.counting(at, progress), desc.Size-at))
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	if err == nil && at+n < desc.Size {
		err = fmt.Errorf("it ends after %d bytes of %d: %w", at+n, desc.Size, io.ErrUnexpectedEOF)
	}
	return err
}

func verify(f *os.File, desc specs.Descriptor) error {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	d, err := digest.FromReader(f)
	if err == nil && d != desc.Digest {
		err = fmt.Errorf("%w: what was sent for %s is %s", ErrArtifact, desc.Digest, d)
	}
	return err
}

// Files returns the files of the bundle concatenated in the order of its manifest. Reading fails if
// a file does not match its digest.
func (p *Pulled) Files(ctx context.Context) io.ReadCloser {
	r, w := io.Pipe()
	go func() {
		for _, desc := range p.files {
			if err := p.copy(ctx, w, desc); err != nil {
				w.CloseWithError(err)
				return
			}
		}
		w.Close()
	}()
	return r
}

func (p *Pulled) copy(ctx context.Context, w io.Writer, desc specs.Descriptor) error {
	f, err := p.dir.Fetch(ctx, desc)
	if err != nil {
		return err
	}
	defer f.Close()
	v := desc.Digest.Verifier()
	n, err := io.Copy(io.MultiWriter(w, v), io.LimitReader(f, desc.Size))
	if err == nil && (n != desc.Size || !v.Verified()) {
		err = fmt.Errorf("%w: %s in %s has other content", ErrArtifact, desc.Digest, p.dir.dir)
	}
	return err
}
