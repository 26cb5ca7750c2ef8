package trust

import (
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
)

// Limits on input, so that a hostile text is cheap to refuse.
const (
	// Bytes of a ring or statement with its signatures.
	maxText    = 64 << 10
	maxLine    = 400
	maxKeys    = 20
	maxRevoked = 500
	maxVersion = 1 << 40
)

// Official is the publisher of jail's own bundles. Other publishers may not use their names, and
// its registries may be asked by tag.
const Official = "jail"

// officialRing is the ring that this version of jail ships.
//
//go:embed official.ring
var officialRing string

var (
	// ErrRing is wrapped by every error about the content of a ring.
	ErrRing = errors.New("bad key ring")
	// ErrSignature is wrapped by errors about missing or unknown signatures.
	ErrSignature = errors.New("not signed by enough known keys")
	// ErrExpired is wrapped by errors about an expired ring or statement.
	ErrExpired = errors.New("expired")
	// ErrRevoked is wrapped by errors about keys or manifests that the publisher has revoked.
	ErrRevoked = errors.New("revoked by its publisher")
	// ErrRollback is wrapped by errors about something older than a version already seen.
	ErrRollback = errors.New("older than what was seen")
)

const ringTitle = "jail key ring"

// A Ring has the keys that verify a publisher's bundles.
type Ring struct {
	Publisher string `json:"publisher"`
	// A ring is replaced by one with a higher version only.
	Version int64     `json:"version"`
	Expires time.Time `json:"expires,omitzero"` // zero never
	// How many different keys must sign a bundle.
	Threshold int      `json:"threshold"`
	Keys      []string `json:"keys"` // verifier keys
	// Verifier keys that may sign the next ring, and how many of them must.
	RootThreshold int      `json:"root_threshold"`
	Roots         []string `json:"roots"`
	RevokedKeys   []string `json:"revoked_keys"` // name+hash
	Revoked       []string `json:"revoked"`      // digests of manifests
	// Registries are prefixes of references that may be pulled by tag. Only the official ring has
	// them.
	Registries []string `json:"registries"`
	// Text is the whole ring as it was read, with signatures.
	Text string `json:"-"`
}

// ParseRing reads a ring, signed or not. It verifies no signatures. Errors wrap ErrRing.
func ParseRing(text string) (Ring, error) {
	if len(text) > maxText {
		return Ring{}, fmt.Errorf("%w: larger than %d bytes", ErrRing, maxText)
	}
	body := text
	if i := strings.LastIndex(text, "\n\n"); i >= 0 {
		body = text[:i+1]
	}
	r, err := parseRing(body)
	if err != nil {
		return Ring{}, fmt.Errorf("%w: %w", ErrRing, err)
	}
	r.Text = text
	return r, nil
}

func parseRing(body string) (r Ring, err error) {
	l := newLines(body, ringTitle)
	r.Roots, r.Keys = []string{}, []string{}
	r.Publisher = l.value("publisher")
	r.Version = l.number("version", 0, maxVersion)
	if l.has("expires") {
		r.Expires = l.time("expires")
	}
	r.Registries = l.all("registry", maxKeys)
	if l.has("roots") {
		r.RootThreshold = int(l.number("roots", 1, maxKeys))
		r.Roots = l.all("root", maxKeys)
	}
	if l.has("keys") {
		r.Threshold = int(l.number("keys", 1, maxKeys))
		r.Keys = l.all("key", maxKeys)
	}
	r.RevokedKeys = l.all("revoked-key", maxRevoked)
	r.Revoked = l.all("revoked", maxRevoked)
	if err := l.end(); err != nil {
		return r, err
	}
	return r, r.check()
}

func (r Ring) check() error {
	if err := checkPublisher(r.Publisher); err != nil {
		return err
	}
	if len(r.Registries) > 0 && r.Publisher != Official {
		return fmt.Errorf("only the ring of %s may name registries: from others a digest is wanted",
			Official)
	}
	for _, d := range r.Revoked {
		if err := CheckDigest(d); err != nil {
			return fmt.Errorf("revoked: %w", err)
		}
	}
	roots, err := distinctKeys(r.Roots)
	if err != nil {
		return fmt.Errorf("root %w", err)
	}
	if roots < r.RootThreshold {
		return fmt.Errorf("%d roots of %d are to sign", r.RootThreshold, roots)
	}
	keys, err := distinctKeys(r.Keys)
	if err != nil {
		return fmt.Errorf("key %w", err)
	}
	if keys < r.Threshold {
		return fmt.Errorf("%d keys of %d are to sign", r.Threshold, keys)
	}
	for _, vkey := range slices.Concat(r.Roots, r.Keys) {
		if slices.Contains(r.RevokedKeys, KeyID(vkey)) {
			return fmt.Errorf("key %s is in it and revoked by it", KeyID(vkey))
		}
	}
	return nil
}

// distinctKeys returns the number of keys. One key under two names is an error, since it would
// count twice.
func distinctKeys(vkeys []string) (int, error) {
	seen := map[string]bool{}
	for _, vkey := range vkeys {
		if err := CheckKey(vkey); err != nil {
			return 0, err
		}
		material := strings.SplitN(vkey, "+", 3)[2]
		if seen[material] || seen[KeyID(vkey)] {
			return 0, fmt.Errorf("%s is there twice", KeyID(vkey))
		}
		seen[material], seen[KeyID(vkey)] = true, true
	}
	return len(vkeys), nil
}

// CheckKey returns an error unless vkey is an Ed25519 verifier key.
func CheckKey(vkey string) error {
	if _, err := note.NewVerifier(vkey); err != nil || len(vkey) > maxLine {
		return fmt.Errorf("%.80q is no Ed25519 verifier key such as name+0123abcd+AX…", vkey)
	}
	return nil
}

// KeyID returns the name and hash of a verifier key, as name+hash.
func KeyID(vkey string) string {
	// base64 may contain a + too
	parts := strings.SplitN(vkey, "+", 3)
	return strings.Join(parts[:min(2, len(parts))], "+")
}

// checkPublisher returns an error unless name is 1 to 64 bytes of only a-z, 0-9, - and ., and
// begins with a letter or digit. So a name has one spelling and does not look like something else.
func checkPublisher(name string) error {
	if name == "" || len(name) > 64 || strings.ContainsFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '.')
	}) || name[0] == '.' || name[0] == '-' {
		return fmt.Errorf(
			"publisher %.70q: only a-z, 0-9, - and . are allowed, of which the last two do not "+
				"begin it", name)
	}
	return nil
}

// Single returns the ring of a publisher with one known key. A ring signed by that key cannot
// replace it.
func Single(publisher, vkey string) (Ring, error) {
	text := fmt.Sprintf("%s\npublisher %s\nversion 0\nkeys 1\nkey %s\n", ringTitle, publisher, vkey)
	return ParseRing(text)
}

// shipped returns the official ring of this version of jail.
func shipped() (Ring, error) { return ParseRing(officialRing) }

// signedBy returns how many of the keys signed a note.
func signedBy(text string, vkeys []string) (int, error) {
	if len(text) > maxText {
		return 0, fmt.Errorf("%w: larger than %d bytes", ErrSignature, maxText)
	}
	known, err := verifiers(vkeys)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrSignature, err)
	}
	n, err := note.Open([]byte(text), known)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrSignature, err)
	}
	for _, sig := range slices.Concat(n.Sigs, n.UnverifiedSigs) {
		// note.Open takes several spellings of one signature
		if _, err := base64.StdEncoding.Strict().DecodeString(sig.Base64); err != nil {
			return 0, fmt.Errorf("%w: signature of %s: %w", ErrSignature, sig.Name, err)
		}
	}
	// note.Open counts each key once.
	return len(n.Sigs), nil
}

// verifiers returns the verifiers of keys.
func verifiers(vkeys []string) (note.Verifiers, error) {
	var list []note.Verifier
	for _, vkey := range vkeys {
		v, err := note.NewVerifier(vkey)
		if err != nil {
			return nil, fmt.Errorf("key %.80q: %w", vkey, err)
		}
		list = append(list, v)
	}
	return note.VerifierList(list...), nil
}

// replace checks that next may take the place of r: it is of the same publisher, newer, not
// expired, and enough roots of both signed it.
func (r Ring) replace(next Ring, now time.Time) error {
	switch {
	case next.Publisher != r.Publisher:
		return fmt.Errorf("%w: it is of %s, not of %s", ErrRing, next.Publisher, r.Publisher)
	case len(r.Roots) == 0 || len(next.Roots) == 0:
		return fmt.Errorf(
			"%w: a ring without roots is not replaced by another, but removed and added anew",
			ErrRing)
	case next.Version < r.Version || next.Version == r.Version && next.Text != r.Text:
		return fmt.Errorf("%w: ring %d of %s, where %d is in use", ErrRollback, next.Version,
			r.Publisher, r.Version)
	}
	for _, ring := range []Ring{r, next} {
		n, err := signedBy(next.Text, ring.Roots)
		if err == nil && n < ring.RootThreshold {
			err = fmt.Errorf("%w: %d roots of ring %d signed it, of the %d that are wanted",
				ErrSignature, n, ring.Version, ring.RootThreshold)
		}
		if err != nil {
			return fmt.Errorf("ring %d of %s: %w", next.Version, next.Publisher, err)
		}
	}
	return next.Fresh(now)
}

// Fresh returns an error that wraps ErrExpired if the ring has expired.
func (r Ring) Fresh(now time.Time) error {
	if !r.Expires.IsZero() && !now.Before(r.Expires) {
		return fmt.Errorf("key ring %d of %s: %w since %s", r.Version, r.Publisher, ErrExpired,
			r.Expires.Format(timeLayout))
	}
	return nil
}

// withdrawn returns an error that wraps ErrRevoked if the manifest with this digest was revoked.
func (r Ring) withdrawn(manifest string) error {
	if slices.Contains(r.Revoked, manifest) {
		return fmt.Errorf("%s: %w %s", manifest, ErrRevoked, r.Publisher)
	}
	return nil
}
