package jail

import (
	"crypto/rand"
	"encoding/base32"
	"fmt"
	"strings"
)

// An ID names one run. IDs made by NewID carry 128 random bits, so that nobody guesses another's.
type ID string

const maxID = 64

var encoding = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// NewID returns a fresh random ID of 26 letters and digits.
func NewID() ID {
	var b [16]byte
	rand.Read(b[:])
	return ID(encoding.EncodeToString(b[:]))
}

// ParseID checks an ID that a caller chose: 1 to 64 letters, digits, dots, dashes and underscores,
// beginning with a letter or digit. It is used as a file name and in control group paths.
func ParseID(s string) (ID, error) {
	if s == "" || len(s) > maxID {
		return "", fmt.Errorf("id %q: must be 1 to %d characters long", s, maxID)
	}
	for i, c := range []byte(s) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && (i == 0 || !strings.ContainsRune("._-", rune(c))) {
			return "", fmt.Errorf(
				"id %q: only letters, digits, dots, dashes and underscores, beginning with a letter or digit", s)
		}
	}
	return ID(s), nil
}
