// Package id makes and checks the names of runs. It is apart from package jail so that a program
// that only asks a daemon needs nothing else of a jail.
package id

import (
	"crypto/rand"
	"encoding/base32"
	"fmt"
	"strings"
)

const maxLen = 64

var encoding = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// New returns a fresh random ID of 26 letters and digits, with 128 random bits.
func New() string {
	var b [16]byte
	rand.Read(b[:])
	return encoding.EncodeToString(b[:])
}

// Check checks an ID that a caller chose: 1 to 64 letters, digits, dots, dashes and underscores,
// beginning with a letter or digit.
func Check(s string) error {
	if s == "" || len(s) > maxLen {
		return fmt.Errorf("id %.80q: must be 1 to %d characters long", s, maxLen)
	}
	for i, c := range []byte(s) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && (i == 0 || !strings.ContainsRune("._-", rune(c))) {
			return fmt.Errorf(
				"id %q: only letters, digits, dots, dashes and underscores, beginning with a "+
					"letter or digit", s)
		}
	}
	return nil
}
