package workspace

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"sync"

	"github.com/jail-sandbox/jail/jail/internal/sys"
	"github.com/jail-sandbox/jail/policy"
)

// compare returns the change of one path that the upper layer has, nil if both sides are equal.
func (k *walker) compare(upper, real *os.File, name, path string, before *sys.Stat,
	after sys.Stat) (*Change, error) {
	c := &Change{Path: Name(path), After: nodeOf(after)}
	if before != nil {
		c.Before = nodeOf(*before)
		c.seen = *before
	}
	k.last = lastHashed{}
	if err := k.fill(c, upper, real, name, after); err != nil {
		return nil, err
	}
	c.Kind = kindOf(c.Before, c.After)
	s, known := k.taken.all[c.Path]
	switch {
	case c.Kind == "":
		return nil, nil
	case before != nil:
		var err error
		if c.Conflict, err = k.conflictAt(path, real, *before, c.Before); err != nil {
			return nil, err
		}
	case known:
		c.Conflict = s.since(nil)
	case real != nil:
		if err := k.lostCounterpart(c, upper, real, name); err != nil {
			return nil, err
		}
	}
	if c.After.Type == Link {
		c.Outside = leadsOut(path, string(c.After.Target))
	}
	if k.repo.part(path) == policy.GitData {
		// git reads no configuration from objects, refs and logs.
		k.last.findings.gitConfig = false
	}
	c.nodeRisks(after, k.last.findings)
	switch {
	case c.special():
		c.Refused = fmt.Sprintf("a %s is never committed", c.After.Type)
	case c.After.Type == File && c.Refused == "" && !k.as.readable(after):
		c.Refused = fmt.Sprintf("its content is uid %d's, and not readable to uid %d",
			after.UID, k.as.UID)
	}
	if c.Kind == Mode && c.Before.Mode&0o777 == c.After.Mode&0o777 {
		c.Refused = "set-user-id, set-group-id and sticky bits are never committed"
	}
	return c, nil
}

// kindOf returns the kind of the change from before to after, "" for none. One of them may be nil.
func kindOf(before, after *Node) Kind {
	switch {
	case before == nil:
		return Added
	case after == nil:
		return Deleted
	case before.Type != after.Type:
		return Retyped
	case after.Type == Link && before.Target != after.Target:
		return Relinked
	case after.Type == File && (before.Size != after.Size || before.SHA256 != after.SHA256 ||
		before.SHA256 == ""):
		return Modified
	case after.Type != Link && before.Mode != after.Mode:
		return Mode
	}
	return ""
}

// fill sets the link targets and content hashes of both sides of c.
func (k *walker) fill(c *Change, upper, real *os.File, name string, after sys.Stat) (err error) {
	switch c.After.Type {
	case Link:
		target, err := sys.ReadlinkAt(upper, name)
		if err != nil {
			return err
		}
		c.After.Target = Name(target)
	case File:
		ok, err := k.hideIndex(c, upper, real, name, after)
		if err == nil && !ok {
			err = k.hashUpper(c, upper, name, after)
		}
		if err != nil {
			return err
		}
	}
	if c.Before == nil {
		return nil
	}
	switch c.Before.Type {
	case Link:
		c.Before.Target, err = k.readlink(real, name)
		return err
	case File:
		if c.After.Type != File {
			return nil
		}
		return k.hashReal(c, real, name)
	}
	return nil
}

func (k *walker) readlink(real *os.File, name string) (Name, error) {
	target, err := lookAs(k, real, func() (string, error) { return sys.ReadlinkAt(real, name) })
	return Name(target), err
}

func (k *walker) hashUpper(c *Change, upper *os.File, name string, st sys.Stat) error {
	if st.Size > k.meta.Bytes {
		c.Refused = fmt.Sprintf("a sparse file of %s is larger than the limit of %s", size(st.Size),
			size(k.meta.Bytes))
		return nil
	}
	holes := st.Size - st.Blocks*512
	if holes > 0 {
		if holes > k.holes {
			c.Refused = fmt.Sprintf(
				"sparse files with more than %s of holes together are not reviewed", size(maxHoles))
			return nil
		}
		k.holes -= holes
	}
	f, err := openRegular(upper, name)
	if err != nil {
		return err
	}
	defer f.Close()
	k.last.tokens = newScanner()
	head, err := hashInto(k, c, c.After, f, k.last.tokens)
	if err == nil {
		k.last.findings.look(head)
		k.last.findings.secrets = k.last.tokens.fresh(nil)
	}
	return err
}

// hashReal sets the hash of c.Before from the real file. It leaves the hash "" if the caller may
// not read the file, or the file is gone or has grown beyond the limit of the workspace.
func (k *walker) hashReal(c *Change, real *os.File, name string) error {
	f, err := doAs(k.as, func() (*os.File, error) { return openRegular(real, name) })
	if errors.Is(err, os.ErrPermission) && c.seen.UID == k.as.UID {
		// The caller owns the file, and could make it readable.
		f, err = openRegular(real, name)
		if err == nil {
			if st, statErr := sys.Fstat(f); statErr != nil || st.Ino != c.seen.Ino {
				f.Close()
				return statErr
			}
		}
	}
	if errors.Is(err, os.ErrPermission) || errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if k.conflict(c.seen) != "" && c.seen.Size > k.meta.Bytes {
		// It grew meanwhile, and is a conflict whatever its content is.
		return nil
	}
	// known finds the tokens of the old content. Without tokens in the new one it is not needed.
	var known *scanner
	if k.last.tokens != nil && len(k.last.tokens.found) > 0 {
		known = newScanner()
	}
	head, err := hashInto(k, c, c.Before, f, known)
	if err != nil {
		return err
	}
	k.last.findings.script = bytes.HasPrefix(head, []byte("#!"))
	if codeKind(head) != "" {
		// It was code before.
		k.last.findings.kind = ""
	}
	k.last.findings.gitConfig = k.last.findings.gitConfig && c.Before.SHA256 != c.After.SHA256
	if known != nil {
		k.last.findings.secrets = k.last.tokens.fresh(known)
	}
	return nil
}

func hashInto(k *walker, c *Change, n *Node, f *os.File, scan *scanner) (head []byte, err error) {
	var also io.Writer
	if scan != nil {
		also = scan
	}
	sum, head, err := hashFile(f, n.Size, k.ctx.Err, also)
	if err != nil {
		return nil, err
	}
	n.SHA256 = sum
	c.Binary = c.Binary || bytes.IndexByte(head, 0) >= 0
	return head, nil
}

// irregularError means that a path is not a regular file. is has its type.
type irregularError struct {
	path string
	is   Type
}

func (e *irregularError) Error() string {
	return fmt.Sprintf("%s: is no regular file any more", Name(e.path))
}

// openRegular opens a regular file for reading. It checks the type before the open, so that it
// never opens a FIFO, socket or device. For these, and for directories, the error is an
// *irregularError.
func openRegular(dir *os.File, name string) (*os.File, error) {
	at, err := sys.OpenPath(dir, name)
	if err != nil {
		return nil, err
	}
	defer at.Close()
	st, err := sys.Fstat(at)
	if err != nil {
		return nil, err
	}
	if typeOf(st) != File {
		return nil, &irregularError{at.Name(), typeOf(st)}
	}
	return sys.Reopen(at, os.O_RDONLY)
}

// sniffed is the number of bytes at the start of a file in which a NUL makes it binary, as for git.
const sniffed = 8000

// hashFile returns the SHA-256, in hex, of the first length bytes of f, with holes as zeros, and at
// most the first 8000 of these bytes. It writes the data without holes to also, unless that is nil.
// It fails with the error of stop, if that returns one.
func hashFile(f *os.File, length int64, stop func() error, also io.Writer) (sum string, head []byte,
	err error) {
	head = make([]byte, min(sniffed, length))
	n, err := f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", nil, err
	}
	head = head[:n]
	h := sha256.New()
	var to io.Writer = h
	if also != nil {
		to = io.MultiWriter(h, also)
	}
	at := int64(0)
	err = eachData(f, func(start, end int64) error {
		start, end = min(start, length), min(end, length)
		writeZeros(h, start-at)
		at = end
		return copyStopping(to, io.NewSectionReader(f, start, end-start), stop)
	})
	writeZeros(h, length-at)
	return hex.EncodeToString(h.Sum(nil)), head, err
}

// zeros is never written to.
var zeros [32 << 10]byte

func writeZeros(h hash.Hash, n int64) {
	for ; n > 0; n -= int64(len(zeros)) {
		h.Write(zeros[:min(n, int64(len(zeros)))])
	}
}

var buffers = sync.Pool{New: func() any { b := make([]byte, 256<<10); return &b }}

// A stopping reader calls stop before each Read, and fails if stop returns an error.
type stopping struct {
	io.Reader
	stop func() error
}

func (s stopping) Read(p []byte) (int, error) {
	if err := s.stop(); err != nil {
		return 0, err
	}
	return s.Reader.Read(p)
}

// copyStopping copies in pieces and checks stop between them.
func copyStopping(dst io.Writer, src io.Reader, stop func() error) error {
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	_, err := io.CopyBuffer(struct{ io.Writer }{dst}, stopping{src, stop}, *buf)
	return err
}

// lostCounterpart sets c.Conflict for a file that the tool changed and the host deleted: the upper
// layer's copy has overlayfs's origin attribute, the real file is gone, and the real directory has
// changed. For a file that the tool moved, the directory is unchanged.
func (k *walker) lostCounterpart(c *Change, upper, real *os.File, name string) error {
	if c.After.Type != File {
		return nil
	}
	dir, err := sys.Fstat(real)
	if err != nil || k.conflict(dir) == "" {
		return err
	}
	f, err := openRegular(upper, name)
	if err != nil {
		return err
	}
	defer f.Close()
	origin, err := sys.Xattr(f, mark()+"origin")
	if origin != nil {
		c.Conflict = "the real file was deleted or moved since the run began"
	}
	return err
}
