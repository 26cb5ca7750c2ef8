package trust

import (
	"crypto/sha256"
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/note"
)

// errPolicy is wrapped by every error about the signature of a policy file.
var errPolicy = errors.New("bad signature of a policy")

const policyTitle = "jail policy"

// A PolicyStatement names the digest of one version of a profile:
//
//	jail policy
//	name build
//	version 7
//	digest sha256:0d51…
//
//	— ops McRKoDr1…
type PolicyStatement struct {
	Name    string
	Version int64
	Digest  string // of the file
}

// NewPolicyStatement returns the statement about the text of a profile.
func NewPolicyStatement(name string, version int64, text []byte) PolicyStatement {
	return PolicyStatement{name, version, fmt.Sprintf("%s%x", digestPrefix, sha256.Sum256(text))}
}

func (s PolicyStatement) text() string {
	return fmt.Sprintf("%s\nname %s\nversion %d\ndigest %s\n", policyTitle, s.Name, s.Version,
		s.Digest)
}

// Sign returns the statement signed with a private key.
func (s PolicyStatement) Sign(key string) (string, error) {
	return addSignature(&note.Note{Text: s.text()}, key)
}

// VerifyPolicy returns the statement that one of the verifier keys has signed. Errors wrap
// errPolicy.
func VerifyPolicy(signed string, keys []string) (PolicyStatement, error) {
	var s PolicyStatement
	if len(signed) > maxText {
		return s, fmt.Errorf("%w: larger than %d bytes", errPolicy, maxText)
	}
	known, err := verifiers(keys)
	if err != nil {
		return s, fmt.Errorf("%w: %w", errPolicy, err)
	}
	n, err := note.Open([]byte(signed), known)
	if err != nil {
		return s, fmt.Errorf("%w: none of the keys that count has signed it; %s", errPolicy,
			namesIn(signed))
	}
	l := newLines(n.Text, policyTitle)
	s.Name, s.Version, s.Digest = l.value("name"), l.number("version", 1, 1<<53), l.value("digest")
	if err := l.end(); err != nil {
		return s, fmt.Errorf("%w: %w", errPolicy, err)
	}
	if err := CheckDigest(s.Digest); err != nil {
		return s, fmt.Errorf("%w: %w", errPolicy, err)
	}
	return s, nil
}
