package trust

import (
	"errors"
	"strings"
	"testing"
)

// A policy's signature is over its name, version and text, by a key that counts; whatever is
// changed of it, it is none.
func TestPolicyStatements(t *testing.T) {
	private, public, err := NewKey("ops")
	if err != nil {
		t.Fatal(err)
	}
	other, otherPublic, err := NewKey("mallory")
	if err != nil {
		t.Fatal(err)
	}
	s := NewPolicyStatement("build", 7, []byte("policy = 1\n"))
	signed, err := s.Sign(private)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := VerifyPolicy(signed, []string{otherPublic, public}); err != nil || got != s {
		t.Errorf("%+v, %v", got, err)
	}
	forged, err := s.Sign(other)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		text string
		keys []string
	}{
		"no keys":            {signed, nil},
		"another's key":      {signed, []string{otherPublic}},
		"another's hand":     {forged, []string{public}},
		"another version":    {strings.Replace(signed, "version 7", "version 8", 1), []string{public}},
		"another name":       {strings.Replace(signed, "name build", "name fetch", 1), []string{public}},
		"no signature":       {s.text(), []string{public}},
		"nothing":            {"", []string{public}},
		"too much":           {signed + strings.Repeat("x", maxText), []string{public}},
		"a key that is none": {signed, []string{"ops"}},
	} {
		if got, err := VerifyPolicy(c.text, c.keys); !errors.Is(err, errPolicy) || got.Name != "" {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	// What the right key signed and is no statement about a policy, a bundle's for one, is none.
	bundle, err := (Statement{Name: "build", Version: "7", Manifest: s.Digest}).Sign(private, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := VerifyPolicy(bundle, []string{public}); !errors.Is(err, errPolicy) {
		t.Errorf("a bundle's statement: %v", err)
	}
}
