package audit

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
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

// newKey makes the signing key. The name is random: it is the log's origin, and two logs must not
// share one.
func newKey(keys *os.Root) error {
	id := make([]byte, 6)
	rand.Read(id)
	skey, _, err := note.GenerateKey(rand.Reader, "jail-audit/"+hex.EncodeToString(id))
	if err != nil {
		return err
	}
	return atomicfile.WriteIn(keys, keyFile, []byte(skey+"\n"), 0o600, atomicfile.Durable)
}

// readKey returns the signer and its public key.
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

// parseKey returns the signer of a private key, and the public key.
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

// publish writes the public keys to root, the eldest first, or checks that those there are ours.
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

// readSmall reads the first maxNote bytes of a regular file with a note or less: the signature does
// not fit anything longer.
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

// openRegular checks before the open that name is a regular file: opening a FIFO would block.
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
