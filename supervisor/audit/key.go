package audit

import (
	"cmp"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"github.com/jail-sandbox/jail/jail/atomicfile"
)

// Names of files: see the package comment.
const (
	keyFile   = "audit.key"
	pubFile   = "audit.pub"
	knownFile = "audit.head"
	headFile  = "head"
	lockFile  = "lock"
)

// ErrKey is wrapped if a key is missing, malformed, readable by others, or of another log.
var ErrKey = errors.New("audit key")

// PublicKey reads the public key beside the log in dir. An attacker who can rewrite the log can
// replace it: compare it with a copy kept elsewhere.
func PublicKey(dir string) (string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", err
	}
	defer root.Close()
	text, err := readPublic(root)
	return string(text), err
}

// newKey creates the signing key. Its name is random, since it is the log's origin, and two logs
// must not share one.
func newKey(keys *os.Root) error {
	id := make([]byte, 6)
	rand.Read(id)
	skey, _, err := note.GenerateKey(rand.Reader, "jail-audit/"+hex.EncodeToString(id))
	if err != nil {
		return err
	}
	return atomicfile.WriteIn(keys, keyFile, []byte(skey+"\n"), 0o600, atomicfile.Durable)
}

// readKey reads the private key and returns its signer and the public key.
func readKey(keys *os.Root) (note.Signer, string, error) {
	info, err := keys.Lstat(keyFile)
	if err != nil {
		return nil, "", err
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 {
		return nil, "", fmt.Errorf("%w %s: mode is %v, want a file of mode 0600", ErrKey, keyFile,
			info.Mode())
	}
	text, err := readSmall(keys, keyFile)
	if err != nil {
		return nil, "", err
	}
	signer, pub, err := parseKey(strings.TrimSuffix(string(text), "\n"), keyFile)
	return signer, pub + "\n", err
}

// parseKey parses a private key and returns its signer and the public key. name is for errors.
func parseKey(skey, name string) (note.Signer, string, error) {
	signer, err := note.NewSigner(skey)
	if err != nil {
		return nil, "", fmt.Errorf("%w %s: %w", ErrKey, name, err)
	}
	// The last part is base64, whose digits include the separator.
	parts := strings.SplitN(skey, "+", 5)
	raw, err := base64.StdEncoding.DecodeString(parts[len(parts)-1])
	if err != nil || len(raw) != 1+ed25519.SeedSize {
		return nil, "", fmt.Errorf("%w %s: not an Ed25519 key", ErrKey, name)
	}
	public := ed25519.NewKeyFromSeed(raw[1:]).Public().(ed25519.PublicKey)
	pub, err := note.NewEd25519VerifierKey(signer.Name(), public)
	return signer, pub, err
}

// publish writes the public keys, oldest first, to root. It returns an error if others are there.
func publish(root *os.Root, pub string) error {
	old, err := readPublic(root)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(old) > 0 && len(old) < len(pub) &&
		strings.HasPrefix(pub, string(old)) {
		return atomicfile.WriteIn(root, pubFile, []byte(pub), 0o644, atomicfile.Durable)
	}
	if err == nil && string(old) != pub {
		err = fmt.Errorf("%w: %s in %s is not the public half of %s", ErrKey, pubFile, root.Name(),
			keyFile)
	}
	return err
}

// maxPublic bounds the public keys of a log in bytes: some 13,000 rotations.
const maxPublic = 1 << 20

// readPublic reads the public keys in root. A longer file is an error and is not truncated: the
// newest key is the last.
func readPublic(root *os.Root) ([]byte, error) {
	text, err := readAtMost(root, pubFile, maxPublic+1)
	if err == nil && len(text) > maxPublic {
		return nil, fmt.Errorf("%w: %s in %s is longer than %d bytes", ErrKey, pubFile, root.Name(),
			maxPublic)
	}
	return text, err
}

// readSmall reads at most maxNote bytes of a regular file that holds a note. Of a longer file the
// signature does not verify.
func readSmall(root *os.Root, name string) ([]byte, error) {
	return readAtMost(root, name, maxNote)
}

func readAtMost(root *os.Root, name string, n int64) ([]byte, error) {
	f, err := openRegular(root, name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, n))
}

// openRegular opens name if it is a regular file. Opening a FIFO would block.
func openRegular(root *os.Root, name string, flag int, perm fs.FileMode) (*os.File, error) {
	info, err := root.Lstat(name)
	if err == nil && !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "open", Path: name, Err: errors.New("not a regular file")}
	}
	if err != nil && !(errors.Is(err, fs.ErrNotExist) && flag&os.O_CREATE != 0) {
		return nil, err
	}
	return root.OpenFile(name, flag, perm)
}

// nextFile holds the new key until the record that announces it is signed.
const nextFile = "audit.key.next"

const nextPrefix = "next "

// Rotate gives the log a new signing key and deletes the old one. A "checkpoint" record that both
// keys sign names the new one; after it only the new key's signatures count. The log may be in use:
// its writers take the new key at their next record. Rotate returns the new public key.
func Rotate(opt Options) (string, error) {
	l, err := Open(opt)
	if err != nil {
		return "", err
	}
	var pub string
	err = l.hold(func() error {
		pub, err = l.writer.rotate()
		return err
	})
	return pub, errors.Join(err, l.Close())
}

// rotate replaces the key. The caller holds the lock and the log is up to date. After a crash at
// any point the next Open completes or undoes it: see settleKey.
func (w *writer) rotate() (string, error) {
	skey, vkey, err := note.GenerateKey(rand.Reader, w.keys.signer.Name())
	if err != nil {
		return "", err
	}
	next, err := note.NewSigner(skey)
	if err != nil {
		return "", err
	}
	if pub, err := readPublic(w.keys.dir); err != nil || len(pub)+len(vkey) >= maxPublic {
		return "", cmp.Or(err,
			fmt.Errorf("%w: %s has no room for another: begin a log anew", ErrKey, pubFile))
	}
	if err := atomicfile.WriteIn(w.keys.dir, nextFile, []byte(skey+"\n"), 0o600,
		atomicfile.Durable); err != nil {
		return "", err
	}
	h := head{w.at.state, w.tree.root()}
	text, err := h.sign(asCheckpoint, w.opt.Now(), []string{nextPrefix + vkey}, w.keys.signer, next)
	if err != nil {
		return "", err
	}
	if err := w.own(checkpoint{string(text)}); err != nil {
		return "", err
	}
	return vkey, w.settleKey()
}

// settleKey completes an interrupted rotation whose record is in the log, or undoes it.
func (w *writer) settleKey() error {
	text, err := readSmall(w.keys.dir, nextFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	skey := strings.TrimSuffix(string(text), "\n")
	_, vkey, err := parseKey(skey, nextFile)
	if err != nil {
		return err
	}
	if found, err := w.findHandover(vkey); err != nil || !found {
		return errors.Join(err, w.keys.dir.Remove(nextFile))
	}
	pub, err := readPublic(w.keys.dir)
	if err != nil {
		return err
	}
	if all := string(pub); !strings.HasSuffix(all, vkey+"\n") {
		if err := atomicfile.WriteIn(w.keys.dir, pubFile, []byte(all+vkey+"\n"), 0o644,
			atomicfile.Durable); err != nil {
			return err
		}
	}
	if err := atomicfile.WriteIn(w.keys.dir, keyFile, []byte(skey+"\n"), 0o600,
		atomicfile.Durable); err != nil {
		return err
	}
	if err := w.keys.load(true, w.root); err != nil {
		return err
	}
	err = w.head.set(<-w.signing(head{w.at.state, w.tree.root()}))
	if err == nil {
		err = w.seal(true)
	}
	if err != nil {
		return err
	}
	return w.keys.dir.Remove(nextFile)
}

// openHandover verifies a checkpoint. If the checkpoint announces another key, that key must have
// signed it, too, and next is that key; otherwise next is "".
func openHandover(msg []byte, keys note.Verifiers) (h head, next string, err error) {
	h, more, err := openLong(msg, keys, asCheckpoint)
	if err != nil || len(more) == 0 {
		return h, "", err
	}
	vkey, named := strings.CutPrefix(more[0], nextPrefix)
	v, err := note.NewVerifier(vkey)
	if !named || len(more) > 1 || err != nil {
		return h, "", errNote
	}
	if _, _, err := openLong(msg, note.VerifierList(v), asCheckpoint); err != nil {
		return h, "", fmt.Errorf("the next key has not signed it: %w", err)
	}
	return h, vkey, nil
}

// findHandover reports whether a record announces the key vkey. It is called only after an
// interrupted rotation, so the record is near the end.
func (w *writer) findHandover(vkey string) (bool, error) {
	list, err := segments(w.root)
	if err != nil {
		return false, err
	}
	var p parser
	r := readLines(w.root)
	defer r.close()
	if err := r.seek(list[max(0, len(list)-2)], 0); err != nil {
		return false, err
	}
	for {
		text, err := r.next()
		if err == io.EOF {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		m, err := p.mark(text.text)
		if err != nil || m.kind != TypeCheckpoint {
			continue
		}
		var signed string
		if json.Unmarshal(m.note, &signed) != nil {
			continue
		}
		if _, next, err := openHandover([]byte(signed), w.keys.known); err == nil && next == vkey {
			return true, nil
		}
	}
}
