package gitrepo

import (
	"bytes"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"

	"github.com/pjbgf/sha1cd"
)

// kind is the type of an object.
type kind string

const (
	commitKind kind = "commit"
	treeKind   kind = "tree"
	blobKind   kind = "blob"
	tagKind    kind = "tag"
)

// object is the content of an object. Its bytes are shared and must not be changed.
type object struct {
	kind kind
	data []byte
}

// emptyTree is the tree without entries, which git knows without a file.
var emptyTree, _ = object{kind: treeKind}.named()

// errMissing is returned for an object that neither side has.
var errMissing = errors.New("is missing")

// named returns the id of an object. It fails if the content looks like a SHA-1 collision attack.
func (o object) named() (name oid, err error) {
	h := sha1cd.New().(sha1cd.CollisionResistantHash)
	fmt.Fprintf(h, "%s %d\x00", o.kind, len(o.data))
	h.Write(o.data)
	sum, collides := h.CollisionResistantSum(nil)
	if collides {
		return name, errors.New("its content is made for a collision of SHA-1")
	}
	return oid(sum), nil
}

// load returns the object with this id from either side. It returns an error unless the content has
// the id, and errMissing if neither side has the object.
func (r *repository) load(name oid) (object, error) {
	if name == emptyTree {
		return object{kind: treeKind}, nil
	}
	for _, side := range []Side{Real, Shadow} {
		o, err := r.loadFrom(side, name)
		if errors.Is(err, errMissing) {
			continue
		}
		if err != nil {
			return object{}, fmt.Errorf("object %s: %w", name, err)
		}
		return o, nil
	}
	return object{}, fmt.Errorf("object %s %w", name, errMissing)
}

func (r *repository) loadFrom(side Side, name oid) (object, error) {
	if err := r.ctx.Err(); err != nil {
		return object{}, err
	}
	var o object
	packed, err := r.readLoose(side, name)
	switch {
	case err == nil:
		o, err = r.parseLoose(packed)
	case errors.Is(err, fs.ErrNotExist):
		o, err = r.loadPacked(side, name)
	}
	if err != nil {
		return object{}, err
	}
	return o, o.check(name)
}

// check returns an error unless the object has this id.
func (o object) check(name oid) error {
	got, err := o.named()
	if err == nil && got != name {
		err = fmt.Errorf("its content is that of object %s", got)
	}
	return err
}

// has reports whether a side has an object. It does not read the object.
func (r *repository) has(side Side, name oid) (bool, error) {
	for _, p := range r.packs[side] {
		if _, ok, err := p.find(name); ok || err != nil {
			return ok, err
		}
	}
	return r.exists(side, loosePath(name))
}

// loosePath returns the path of a loose object in the git directory.
func loosePath(name oid) string {
	text := name.String()
	return "objects/" + text[:2] + "/" + text[2:]
}

// readLoose returns the compressed content of a loose object's file.
func (r *repository) readLoose(side Side, name oid) ([]byte, error) {
	f, size, err := r.files.Open(side, loosePath(name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size > maxObject {
		return nil, fmt.Errorf("has more than %d MiB", maxObject>>20)
	}
	packed := make([]byte, size)
	_, err = f.ReadAt(packed, 0)
	return packed, err
}

// parseLoose parses the file of a loose object: one zlib stream and nothing after it.
func (r *repository) parseLoose(packed []byte) (object, error) {
	// A bytes.Reader is an io.ByteReader, so that zlib reads no further than the stream.
	in := bytes.NewReader(packed)
	z, err := zlib.NewReader(in)
	if err != nil {
		return object{}, err
	}
	var head [32]byte
	n := 0
	for {
		if n == len(head) {
			return object{}, errors.New("its header is too long")
		}
		if _, err := io.ReadFull(z, head[n:n+1]); err != nil {
			return object{}, err
		}
		if head[n] == 0 {
			break
		}
		n++
	}
	kindText, sizeText, _ := strings.Cut(string(head[:n]), " ")
	length, err := strconv.ParseInt(sizeText, 10, 64)
	if err != nil || length < 0 || sizeText != strconv.FormatInt(length, 10) {
		return object{}, errors.New("its header has no size")
	}
	o := object{kind: kind(kindText)}
	if !o.kind.known() {
		return object{}, errors.New("its type is unknown")
	}
	if o.data, err = r.inflate(z, length); err != nil {
		return object{}, err
	}
	if in.Len() > 0 {
		return object{}, errors.New("something follows it in its file")
	}
	return o, nil
}

func (k kind) known() bool {
	return k == commitKind || k == treeKind || k == blobKind || k == tagKind
}

// spend adds length to the inflated bytes. It returns an error if the object is longer than
// maxObject, or all objects together than maxInflated.
func (r *repository) spend(length int64) error {
	if length > maxObject {
		return fmt.Errorf("has more than %d MiB", maxObject>>20)
	}
	if r.inflated += length; r.inflated > maxInflated {
		return fmt.Errorf("more than %d MiB of objects", maxInflated>>20)
	}
	return nil
}

// inflate reads exactly length bytes and the end of the zlib stream, which checks the checksum.
func (r *repository) inflate(z io.Reader, length int64) ([]byte, error) {
	if err := r.spend(length); err != nil {
		return nil, err
	}
	// A declared size takes memory only as far as there is content.
	var out bytes.Buffer
	n, err := io.Copy(&out, io.LimitReader(z, length+1))
	switch {
	case err != nil:
		return nil, err
	case n != length:
		return nil, errors.New("has another size than it says")
	}
	return out.Bytes(), nil
}
