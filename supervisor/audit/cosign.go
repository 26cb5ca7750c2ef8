package audit

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
)

// algCosignature is the kind of key that signs C2SP tlog-cosignatures with Ed25519 (https://c2sp.org/tlog-cosignature).
const algCosignature = 4

// witnessName is what a witness can be called: like an address without its scheme.
var witnessName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/-]{0,99}$`)

// A cosigner is the public key of a witness. It implements [note.Verifier].
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

// when checks a cosignature, and says of which time it is.
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

// cosigned is what a witness signs: when, and all of the note but its signatures.
func cosigned(at uint64, msg []byte) []byte {
	return append(fmt.Appendf(nil, "cosignature/v1\ntime %d\n", at), msg...)
}

// String is the key as one line, the way that keys of signed notes are written.
func (c cosigner) String() string {
	return fmt.Sprintf("%s+%08x+%s", c.name, c.KeyHash(), base64.StdEncoding.EncodeToString(append([]byte{algCosignature}, c.key...)))
}

// parseCosigner reads the public key of a witness.
func parseCosigner(line string) (cosigner, error) {
	name, rest, _ := strings.Cut(line, "+")
	hash, digits, _ := strings.Cut(rest, "+")
	key, err := fromBase64(digits)
	if err == nil && len(key) == 1+ed25519.PublicKeySize && key[0] != algCosignature {
		return cosigner{}, fmt.Errorf("%w: %.80q is no key of a witness: it is of another kind, such as that of a log", ErrKey, line)
	}
	if err != nil || len(key) != 1+ed25519.PublicKeySize || !witnessName.MatchString(name) {
		return cosigner{}, fmt.Errorf("%w: %.80q is no public key of a witness: want NAME+8 hexadecimal digits+base64, as `jail audit witness key` prints it", ErrKey, line)
	}
	c := cosigner{name, ed25519.PublicKey(key[1:])}
	if fmt.Sprintf("%08x", c.KeyHash()) != hash {
		return cosigner{}, fmt.Errorf("%w: %.80q: its digits do not fit each other: it was not copied whole", ErrKey, line)
	}
	return c, nil
}

// cosigners reads keys of witnesses, one a line.
func cosigners(keys string) ([]cosigner, error) {
	var list []cosigner
	for line := range strings.Lines(keys) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		c, err := parseCosigner(line)
		if err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%w: no public key of a witness", ErrKey)
	}
	return list, nil
}

// CheckWitnessKeys says what is wrong with public keys of witnesses, one a line.
func CheckWitnessKeys(keys string) error {
	_, err := cosigners(keys)
	return err
}

// A cosignKey is the private key of a witness.
type cosignKey struct {
	cosigner
	private ed25519.PrivateKey
}

const cosignKeyPrefix = "PRIVATE+KEY+"

func newCosignKey(name string) (cosignKey, error) {
	if !witnessName.MatchString(name) {
		return cosignKey{}, fmt.Errorf("%w: %.80q is no name for a witness: want letters, digits and . _ : / -, such as witness.example.com/1", ErrKey, name)
	}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	return cosignKey{cosigner{name, public}, private}, err
}

// secret is the key as its file has it.
func (k cosignKey) secret() string {
	return fmt.Sprintf("%s%s+%08x+%s", cosignKeyPrefix, k.name, k.KeyHash(), base64.StdEncoding.EncodeToString(append([]byte{algCosignature}, k.private.Seed()...)))
}

func parseCosignKey(text string) (cosignKey, error) {
	bad := fmt.Errorf("%w: it is no key of a witness", ErrKey)
	rest, named := strings.CutPrefix(strings.TrimSuffix(text, "\n"), cosignKeyPrefix)
	parts := strings.SplitN(rest, "+", 3)
	if !named || len(parts) != 3 {
		return cosignKey{}, bad
	}
	seed, err := fromBase64(parts[2])
	if err != nil || len(seed) != 1+ed25519.SeedSize || seed[0] != algCosignature {
		return cosignKey{}, bad
	}
	private := ed25519.NewKeyFromSeed(seed[1:])
	k := cosignKey{cosigner{parts[0], private.Public().(ed25519.PublicKey)}, private}
	if k.secret() != cosignKeyPrefix+rest {
		return cosignKey{}, bad
	}
	return k, nil
}

// sign makes the line of a cosignature.
func (k cosignKey) sign(msg []byte, now time.Time) []byte {
	at := uint64(max(now.Unix(), 0))
	sig := binary.BigEndian.AppendUint32(nil, k.KeyHash())
	sig = binary.BigEndian.AppendUint64(sig, at)
	sig = append(sig, ed25519.Sign(k.private, cosigned(at, msg))...)
	return fmt.Appendf(nil, "%s%s %s\n", signature, k.name, base64.StdEncoding.EncodeToString(sig))
}

// Cosign adds to a note the lines that a witness answered with: those of the keys (one a line), each of which must be there and good.
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
			return nil, fmt.Errorf("what the witness answered is no signature by the key %s over this head", c.name)
		}
	}
	return out, nil
}

// Witnessed is what one witness has seen of a log.
type Witnessed struct {
	Name string    `json:"name"` // of the witness
	Size uint64    `json:"records"`
	Time time.Time `json:"time"` // when it said so
}

// CheckWitnesses looks for the newest of the anchors that each witness has cosigned, whose public keys are given, one a line. A witness that has cosigned
// none, and a signature in its name that is none, is a *[Fault]: the log is not shown to be the one that the witness has seen. That the anchors fit the
// log is for [Verify] to say.
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
				return nil, &Fault{max(a.Size, 1), Unsigned, fmt.Sprintf("anchor %s: %v", a.From, err)}
			}
			if signed && (!found || a.Size > newest.Size || a.Size == newest.Size && at.After(newest.Time)) {
				newest.Size, newest.Time, found = a.Size, at, true
			}
		}
		if !found {
			return nil, &Fault{1, Unsigned, fmt.Sprintf("no anchor is cosigned by the witness %s", c.name)}
		}
		all = append(all, newest)
	}
	return all, nil
}

// cosignedAt looks for the witness's signature under a note.
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

// treeHead is what any C2SP checkpoint says, whichever log it is of.
type treeHead struct {
	origin string
	size   uint64
	root   [sha256.Size]byte
}

// parseCheckpoint reads the text of a note without its signatures.
func parseCheckpoint(text string) (c treeHead, ok bool) {
	lines := strings.Split(text, "\n")
	if len(lines) < 4 || lines[0] == "" || lines[len(lines)-1] != "" {
		return c, false
	}
	for _, extension := range lines[3 : len(lines)-1] {
		if extension == "" {
			return c, false
		}
	}
	size, err := strconv.ParseUint(lines[1], 10, 63)
	root, rootErr := fromBase64(lines[2])
	if err != nil || rootErr != nil || len(root) != sha256.Size || strconv.FormatUint(size, 10) != lines[1] {
		return c, false
	}
	return treeHead{lines[0], size, [sha256.Size]byte(root)}, true
}
