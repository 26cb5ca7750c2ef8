package images

import (
	"fmt"

	"github.com/jail-sandbox/jail/supervisor/bundle/trust"
)

// SignedName is what a statement about the image of a name calls it. No bundle can have that name,
// so that nobody's signature on a bundle is one on an image.
func SignedName(name string) string { return "image:" + name }

// Signer returns the publisher whose keys have signed that the image of a name is the one of that
// digest, and the statement. It does not check whether the statement has expired.
func Signer(rings trust.Rings, name, digest, signed string) (trust.Statement, string, error) {
	if signed == "" {
		return trust.Statement{}, "", fmt.Errorf("image %s: %w: it is not signed", name,
			trust.ErrSignature)
	}
	s, ring, err := rings.Verify(signed)
	if err == nil && (s.Name != SignedName(name) || s.Manifest != digest) {
		err = fmt.Errorf("%w: %.100s of %s is signed, and the image is %s of %s",
			trust.ErrSignature, s.Name, s.Manifest, SignedName(name), digest)
	}
	if err != nil {
		return s, "", fmt.Errorf("image %s: %w", name, err)
	}
	return s, ring.Publisher, nil
}
