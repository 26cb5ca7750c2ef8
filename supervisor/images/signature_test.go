package images

import (
	"strings"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/supervisor/bundle/trust"
)

// A signature counts for one name and one digest, and only by keys in use (T-566).
func TestSigner(t *testing.T) {
	private, public, err := trust.NewKey("acme")
	if err != nil {
		t.Fatal(err)
	}
	rings := trust.Rings{"acme": {Publisher: "acme", Threshold: 1, Keys: []string{public}}}
	sign := func(name string, manifest string) (trust.Statement, string) {
		s := trust.NewStatement(name, "1", []byte(manifest), time.Now(), time.Now().Add(time.Hour))
		text, err := s.Sign(private, "")
		if err != nil {
			t.Fatal(err)
		}
		return s, text
	}
	s, signed := sign(SignedName("tools"), "manifest")
	_, bundle := sign("tools", "manifest")
	for what, c := range map[string]struct {
		rings        trust.Rings
		name, signed string
		digest       string
		ok           bool
	}{
		"the image":         {rings, "tools", signed, s.Manifest, true},
		"another name":      {rings, "other", signed, s.Manifest, false},
		"another digest":    {rings, "tools", signed, "sha256:" + strings.Repeat("0", 64), false},
		"a bundle's":        {rings, "tools", bundle, s.Manifest, false},
		"nobody's keys":     {trust.Rings{}, "tools", signed, s.Manifest, false},
		"no signature":      {rings, "tools", "", s.Manifest, false},
		"one that was bent": {rings, "tools", strings.Replace(signed, "tools", "toolz", 1), s.Manifest, false},
	} {
		_, publisher, err := Signer(c.rings, c.name, c.digest, c.signed)
		if (err == nil) != c.ok || c.ok && publisher != "acme" {
			t.Errorf("%s: %q, %v", what, publisher, err)
		}
	}
}
