package audit

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// algCosignature is the key type of C2SP tlog-cosignatures with Ed25519
// (https://c2sp.org/tlog-cosignature).
const algCosignature = 4

// witnessName matches names of witnesses: addresses without a scheme.
var witnessName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/-]{0,99}$`)
})

// cosigner is the public key of a witness. It implements [note.Verifier].
type cosigner struct {
	name string
	key  ed25519.PublicKey
}

func (c cosigner) Name() string { return c.name }

func (c cosigner) KeyHash() uint32 {
	sum := sha256.Sum256(append(append([]byte(c.name), '\n', algCosignature), c.key...))
	return binary.BigEndian.Uint32(sum[:])
}

func (c cosigner) Verify(msg, sig []byte) bool {
	_, ok := c.when(msg, sig)
	return ok
}

// when verifies a cosignature and returns its time. It returns false for an invalid signature.
func (c cosigner) when(msg, sig []byte) (time.Time, bool) {
	if len(sig) != 8+ed25519.SignatureSize {
		return time.Time{}, false
	}
	at := binary.BigEndian.Uint64(sig)
	if at > math.MaxInt64 || !ed25519.Verify(c.key, cosigned(at, msg), sig[8:]) {
		return time.Time{}, false
	}
	return time.Unix(int64(at), 0).UTC(), true
}

// cosigned returns the bytes that a witness signs: the time, and the note without its signatures.
func cosigned(at uint64, msg []byte) []byte {
	return append(fmt.Appendf(nil, "cosignature/v1\ntime %d\n", at), msg...)
}

// String returns the key as one line, in the format of signed notes.
func (c cosigner) String() string {
	return fmt.Sprintf("%s+%08x+%s", c.name, c.KeyHash(),
		base64.StdEncoding.EncodeToString(append([]byte{algCosignature}, c.key...)))
}

// parseCosigner parses the public key of a witness in the format of String.
func parseCosigner(line string) (cosigner, error) {
	name, rest, _ := strings.Cut(line, "+")
	hash, digits, _ := strings.Cut(rest, "+")
	key, err := fromBase64(digits)
	if err == nil && len(key) == 1+ed25519.PublicKeySize && key[0] != algCosignature {
		return cosigner{},
			fmt.Errorf("%w: %.80q is no key of a witness: it is of another kind, such as that of "+
				"a log", ErrKey, line)
	}
	if err != nil || len(key) != 1+ed25519.PublicKeySize || !witnessName().MatchString(name) {
		return cosigner{},
			fmt.Errorf("%w: %.80q is no public key of a witness: want NAME+8 hexadecimal "+
				"digits+base64", ErrKey, line)
	}
	c := cosigner{name, ed25519.PublicKey(key[1:])}
	if fmt.Sprintf("%08x", c.KeyHash()) != hash {
		return cosigner{},
			fmt.Errorf("%w: %.80q: its digits do not fit each other: it was not copied whole",
				ErrKey, line)
	}
	return c, nil
}

// cosigners parses the public keys of witnesses, one a line.
func cosigners(keys string) ([]cosigner, error) {
	return keyLines(keys, "no public key of a witness", parseCosigner)
}

// CheckWitnessKeys returns an error unless keys has valid public keys of witnesses, one a line.
func CheckWitnessKeys(keys string) error {
	_, err := cosigners(keys)
	return err
}

// Cosign adds a witness's response to a note: the signature lines of all keys (one a line). A
// missing or invalid signature is an error.
func Cosign(msg, lines []byte, keys string) ([]byte, error) {
	known, err := cosigners(keys)
	if err != nil {
		return nil, err
	}
	if len(lines) > maxNote {
		return nil, errors.New("the witness answered more than signatures")
	}
	out := bytes.Clone(msg)
	for _, c := range known {
		found := false
		for line := range bytes.Lines(lines) {
			with := append(bytes.Clone(msg), line...)
			if !bytes.HasPrefix(line, []byte(signature)) || !bytes.HasSuffix(line, []byte("\n")) {
				continue
			}
			if n, err := note.Open(with, note.VerifierList(c)); err == nil && len(n.Sigs) == 1 {
				out, found = append(out, line...), true
				break
			}
		}
		if !found {
			return nil, fmt.Errorf(
				"what the witness answered is no signature by the key %s over this head", c.name)
		}
	}
	return out, nil
}

// Witnessed is the newest head that a witness has cosigned.
type Witnessed struct {
	Name string    `json:"name"` // of the witness
	Size uint64    `json:"records"`
	Time time.Time `json:"time"` // of the cosignature
}

// CheckWitnesses returns the newest anchor that each witness has cosigned. keys are their public
// keys, one a line. A witness without a cosignature, and an invalid signature in its name, are a
// *[Fault]: the log is not shown to be the one that the witness has seen. [Verify] checks that the
// anchors fit the log.
func CheckWitnesses(kept []Anchor, keys string) ([]Witnessed, error) {
	known, err := cosigners(keys)
	if err != nil {
		return nil, err
	}
	var all []Witnessed
	for _, c := range known {
		newest, found := Witnessed{Name: c.name}, false
		for _, a := range kept {
			at, signed, err := c.cosignedAt(a.Note)
			if err != nil {
				return nil, &Fault{max(a.Size, 1), unsigned,
					fmt.Sprintf("anchor %s: %v", a.From, err)}
			}
			if signed && (!found || a.Size > newest.Size || a.Size == newest.Size &&
				at.After(newest.Time)) {
				newest.Size, newest.Time, found = a.Size, at, true
			}
		}
		if !found {
			return nil, &Fault{1, unsigned,
				fmt.Sprintf("no anchor is cosigned by the witness %s", c.name)}
		}
		all = append(all, newest)
	}
	return all, nil
}

// cosignedAt returns the time of the witness's signature under a note. signed is false if the note
// has none. An invalid signature is an error.
func (c cosigner) cosignedAt(msg []byte) (at time.Time, signed bool, err error) {
	n, err := note.Open(msg, note.VerifierList(anyKey{c.name, c.KeyHash()}))
	var none *note.UnverifiedNoteError
	if errors.As(err, &none) {
		return at, false, nil
	}
	if err != nil {
		return at, false, err
	}
	sig, err := fromBase64(n.Sigs[0].Base64)
	if err == nil && len(sig) > 4 {
		if at, signed = c.when([]byte(n.Text), sig[4:]); signed {
			return at, true, nil
		}
	}
	return at, false, fmt.Errorf("the signature in the name of the witness %s is none", c.name)
}

// ErrPutBack is the error for a log that has fewer records than a witness has seen.
var ErrPutBack = errors.New("the log was cut or put back")

// WitnessRequest returns the body of a C2SP tlog-witness request for head h of the log in dir, with
// a proof that the log still begins with the old records that the witness has seen.
func WitnessRequest(dir string, h Head, old uint64) ([]byte, error) {
	if old > h.Size {
		return nil, fmt.Errorf("%w: it has %d records, and the witness has seen %d", ErrPutBack,
			h.Size, old)
	}
	out := fmt.Appendf(nil, "old %d\n", old)
	if old > 0 && old < h.Size {
		proof, err := proveGrowth(dir, h, old)
		if err != nil {
			return nil, err
		}
		for _, hash := range proof {
			out = append(out, hash.String()+"\n"...)
		}
	}
	return append(append(out, '\n'), h.Note...), nil
}

// proveGrowth proves that head h extends the first old records. It checks first that the tree on
// disk is the one that h signs, since a proof from another tree would look like another history.
func proveGrowth(dir string, h Head, old uint64) (tlog.TreeProof, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := openRegular(root, treeFile, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	t := &tree{f: f}
	is, err := t.begin(h.Size)
	if want, noteErr := openAny(h.Note, anyKey{}); err != nil || noteErr != nil || want.root != is {
		return nil, fmt.Errorf(
			"%s does not fit the signed head: it is made anew when the daemon starts again: %w",
			treeFile, errors.Join(err, errRoot))
	}
	return tlog.ProveTree(int64(h.Size), int64(old), t)
}
