package policy_test

import (
	"testing"

	"github.com/jail-sandbox/jail/policy"
)

// The names of credentials have their first and last letters and digits, and none of the characters
// beside those.
func TestCredentialBoundaries(t *testing.T) {
	for _, name := range []string{"a", "z", "A", "Z", "0", "9", "-", "_", ".", "azAZ09-_."} {
		if err := policy.CheckCredential(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"`", "{", "@", "[", "/", ":", " ", ",", "^", "a b", "ä"} {
		if policy.CheckCredential(name) == nil {
			t.Errorf("%q passes", name)
		}
	}
	long := make([]byte, 129)
	for i := range long {
		long[i] = 'a'
	}
	if policy.CheckCredential(string(long)) == nil ||
		policy.CheckCredential(string(long[:128])) != nil {
		t.Error("the longest name is not 128 bytes")
	}
}
