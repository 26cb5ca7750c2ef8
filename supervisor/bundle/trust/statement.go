package trust

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
)

const statementTitle = "jail bundle"

// errNoPrivateKey does not quote the text, which may be half of a key.
var errNoPrivateKey = errors.New("no private key such as jail tool key new makes")

// ErrStatement is wrapped by errors about the content of a statement, not its signatures.
var ErrStatement = errors.New("bad statement")

// A Statement names the digest of the manifest of one version of a bundle. The manifest pins the
// files.
type Statement struct {
	Name, Version string
	Manifest      string // digest
	// of the manifest, in bytes
	Size   int64
	Signed time.Time
	// It cannot be installed after that time; an installed bundle stays.
	Expires time.Time
}

// NewStatement returns the statement about a manifest.
func NewStatement(name, version string, manifest []byte, signed, expires time.Time) Statement {
	return Statement{Name: name, Version: version,
		Manifest: fmt.Sprintf("%s%x", digestPrefix, sha256.Sum256(manifest)),
		Size:     int64(len(manifest)),
		Signed:   signed.UTC().Truncate(time.Second), Expires: expires.UTC().Truncate(time.Second)}
}

func (s Statement) text() string {
	return fmt.Sprintf("%s\nname %s\nversion %s\nmanifest %s %d\nsigned %s\nexpires %s\n",
		statementTitle, s.Name, s.Version, s.Manifest, s.Size,
		s.Signed.Format(timeLayout), s.Expires.Format(timeLayout))
}

func parseStatement(text string) (s Statement, err error) {
	l := newLines(text, statementTitle)
	s.Name, s.Version = l.value("name"), l.value("version")
	manifest := l.value("manifest")
	s.Signed, s.Expires = l.time("signed"), l.time("expires")
	if err := l.end(); err != nil {
		return s, fmt.Errorf("%w: %w", ErrStatement, err)
	}
	if n, err := fmt.Sscanf(manifest, "%s %d", &s.Manifest, &s.Size); n != 2 || err != nil {
		return s, fmt.Errorf("%w: manifest %.100q: a digest and a size are wanted", ErrStatement,
			manifest)
	}
	if err := CheckDigest(s.Manifest); err != nil {
		return s, fmt.Errorf("%w: manifest: %w", ErrStatement, err)
	}
	// This refuses any other spelling of the same values.
	if s.text() != text {
		return s, fmt.Errorf("%w: it is not spelled as jail would", ErrStatement)
	}
	return s, nil
}

// ReadStatement reads a statement without verifying the signatures, for display only.
func ReadStatement(signed string) (Statement, error) {
	i := strings.LastIndex(signed, "\n\n")
	if i < 0 || len(signed) > maxText {
		return Statement{}, fmt.Errorf("%w: no signed note of at most %d bytes", ErrStatement,
			maxText)
	}
	return parseStatement(signed[:i+1])
}

// Sign returns the signed statement. It keeps the signatures in already if they are on the same
// statement.
func (s Statement) Sign(key, already string) (string, error) {
	n := &note.Note{Text: s.text()}
	if old, err := ReadStatement(already); already != "" && err == nil && old == s {
		// The old signatures are not verified here; each user of the statement verifies them.
		n.UnverifiedSigs, _ = claimed(already)
	}
	return addSignature(n, key)
}

// addSignature returns a note with the signature of a private key added.
func addSignature(n *note.Note, key string) (string, error) {
	signer, err := note.NewSigner(strings.TrimSpace(key))
	if err != nil {
		return "", errNoPrivateKey
	}
	text, err := note.Sign(n, signer)
	return string(text), err
}

// NewKey makes an Ed25519 key pair with a name. It returns a signer key ("PRIVATE+KEY+…") and a
// verifier key.
func NewKey(name string) (private, public string, err error) {
	if err := checkPublisher(name); err != nil {
		return "", "", err
	}
	return note.GenerateKey(rand.Reader, name)
}

// SignRing adds the signature of a root's private key to the text of a ring.
func SignRing(text, key string) (string, error) {
	if _, err := ParseRing(text); err != nil {
		return "", err
	}
	n := &note.Note{Text: text}
	if i := strings.LastIndex(text, "\n\n"); i >= 0 {
		n.Text = text[:i+1]
		var err error
		if n.UnverifiedSigs, err = claimed(text); err != nil {
			return "", fmt.Errorf("%w: %w", ErrRing, err)
		}
	}
	return addSignature(n, key)
}

// Rings are the rings in use, by publisher.
type Rings map[string]Ring

// Verify returns the statement and the ring whose keys signed it, at least Threshold of them. It
// fails for a revoked manifest, but does not check whether the statement has expired.
func (rs Rings) Verify(signed string) (Statement, Ring, error) {
	s, err := ReadStatement(signed)
	if err != nil {
		return Statement{}, Ring{}, err
	}
	var why error = fmt.Errorf("%w: %s", ErrSignature, namesIn(signed))
	for _, ring := range rs {
		n, err := signedBy(signed, ring.Keys)
		switch {
		case err == nil && n >= ring.Threshold && ring.Threshold > 0:
			return s, ring, ring.withdrawn(s.Manifest)
		case err == nil && n > 0:
			why = fmt.Errorf("%w: %d of %s signed it, of the %d that are wanted", ErrSignature, n,
				ring.Publisher, ring.Threshold)
		case revokedSigner(signed, ring):
			why = fmt.Errorf("%w: a key that signed it was %w %s", ErrSignature, ErrRevoked,
				ring.Publisher)
		}
	}
	return Statement{}, Ring{}, why
}

// claimed returns the signatures of a note, unverified.
func claimed(text string) ([]note.Signature, error) {
	_, err := note.Open([]byte(text), note.VerifierList())
	if unknown, ok := errors.AsType[*note.UnverifiedNoteError](err); ok {
		return unknown.Note.UnverifiedSigs, nil
	}
	return nil, err
}

// namesIn returns a phrase with the keys that claim to have signed.
func namesIn(signed string) string {
	sigs, err := claimed(signed)
	if err != nil || len(sigs) == 0 {
		return "it has no signature"
	}
	var names []string
	for _, sig := range sigs {
		names = append(names, fmt.Sprintf("%s+%08x", sig.Name, sig.Hash))
	}
	return "the signatures say " + strings.Join(names, ", ")
}

func revokedSigner(signed string, ring Ring) bool {
	return slices.ContainsFunc(ring.RevokedKeys,
		func(id string) bool { return strings.Contains(namesIn(signed), id) })
}

// Fresh returns an error that wraps ErrExpired if the statement has expired.
func (s Statement) Fresh(now time.Time) error {
	if !now.Before(s.Expires) {
		return fmt.Errorf("bundle %s %s: its signature is %w since %s", s.Name, s.Version,
			ErrExpired, s.Expires.Format(timeLayout))
	}
	return nil
}
