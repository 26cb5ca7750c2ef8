package trust

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
)

var (
	now  = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	year = now.Add(365 * 24 * time.Hour)
)

// A pair is a key of a test.
type pair struct{ private, public string }

func newPair(t *testing.T, name string) pair {
	t.Helper()
	private, public, err := NewKey(name)
	if err != nil {
		t.Fatal(err)
	}
	return pair{private, public}
}

// ringText writes a ring; roots and keys are as many as are given.
func ringText(publisher string, version int, rootThreshold int, roots []pair, threshold int,
	keys []pair, more ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "jail key ring\npublisher %s\nversion %d\nexpires %s\n", publisher, version,
		year.Format(timeLayout))
	if len(roots) > 0 {
		fmt.Fprintf(&b, "roots %d\n", rootThreshold)
	}
	for _, r := range roots {
		fmt.Fprintf(&b, "root %s\n", r.public)
	}
	if len(keys) > 0 {
		fmt.Fprintf(&b, "keys %d\n", threshold)
	}
	for _, k := range keys {
		fmt.Fprintf(&b, "key %s\n", k.public)
	}
	for _, line := range more {
		b.WriteString(line + "\n")
	}
	return b.String()
}

func signRing(t *testing.T, text string, by ...pair) Ring {
	t.Helper()
	for _, p := range by {
		var err error
		if text, err = SignRing(text, p.private); err != nil {
			t.Fatal(err)
		}
	}
	r, err := ParseRing(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func signed(t *testing.T, s Statement, by ...pair) string {
	t.Helper()
	text := ""
	for _, p := range by {
		var err error
		if text, err = s.Sign(p.private, text); err != nil {
			t.Fatal(err)
		}
	}
	return text
}

func words() Statement { return NewStatement("words", "1.2.0", []byte("manifest"), now, year) }

// T-601: no signature, one of somebody else, one that is broken, one of another kind. The control
// is the same statement with a good one.
func TestUnsignedIsRefused(t *testing.T) {
	acme, other := newPair(t, "acme"), newPair(t, "other")
	ring := signRing(t, ringText("acme", 1, 0, nil, 1, []pair{acme}))
	rings := Rings{"acme": ring}
	good := signed(t, words(), acme)
	if s, r, err := rings.Verify(good); err != nil || s != words() || r.Publisher != "acme" {
		t.Fatalf("control: %+v, %v", s, err)
	}
	body, sig, _ := strings.Cut(good, "\n\n")
	body += "\n"
	flipped := []byte(good)
	flipped[len(flipped)-8] ^= 1
	for name, text := range map[string]string{
		"nothing":                   "",
		"no signature":              body,
		"no signature, but a place": body + "\n",
		"an empty signature":        body + "\n— acme+\n",
		"another's":                 signed(t, words(), other),
		"a flipped bit":             string(flipped),
		"alg none":                  body + "\n— none AAAAAA==\n",
		"another name on it":        body + "\n" + strings.Replace(sig, "— acme ", "— acm3 ", 1),
		"another text":              strings.Replace(good, "1.2.0", "1.2.1", 1),
		"a longer text":             "jail bundle\n" + good,
		"something behind":          good + "more\n",
		"CRLF":                      strings.ReplaceAll(good, "\n", "\r\n"),
		"BOM":                       "\ufeff" + good,
		"too long":                  good + strings.Repeat("— x AAAA\n", maxText/8),
	} {
		if _, _, err := rings.Verify(text); err == nil {
			t.Errorf("%s: taken", name)
		} else if !errors.Is(err, ErrSignature) && !errors.Is(err, ErrStatement) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, vkey := range []string{"", "acme", "acme+12345678+AAAA", acme.private,
		strings.Replace(acme.public, "+A", "+Z", 1)} {
		if CheckKey(vkey) == nil && vkey != acme.public {
			t.Errorf("key %q: taken", vkey)
		}
	}
}

// T-605: a threshold counts keys, and not signatures, names or spellings.
func TestThresholdCountsKeys(t *testing.T) {
	a, b, c := newPair(t, "a"), newPair(t, "b"), newPair(t, "c")
	rings := Rings{"acme": signRing(t, ringText("acme", 1, 0, nil, 2, []pair{a, b, c}))}
	if _, _, err := rings.Verify(signed(t, words(), a, c)); err != nil {
		t.Fatalf("control: %v", err)
	}
	one := signed(t, words(), a)
	_, sig, _ := strings.Cut(one, "\n\n")
	for name, text := range map[string]string{
		"one":                one,
		"one, twice":         one + sig,
		"one, three times":   one + sig + sig,
		"signed again":       signed(t, words(), a, a),
		"one and a stranger": signed(t, words(), a, newPair(t, "d")),
	} {
		if _, _, err := rings.Verify(text); !errors.Is(err, ErrSignature) {
			t.Errorf("%s: %v", name, err)
		}
	}
	renamed, err := vkeyNamed("twin", a.public)
	if err != nil {
		t.Fatal(err)
	}
	twin := pair{public: renamed}
	for name, text := range map[string]string{
		"the same key twice":              ringText("acme", 1, 0, nil, 2, []pair{a, a}),
		"the same key under another name": ringText("acme", 1, 0, nil, 2, []pair{a, twin}),
		"more than there are":             ringText("acme", 1, 0, nil, 2, []pair{a}),
		"a threshold of none":             ringText("acme", 1, 0, nil, 0, []pair{a}),
		"roots: the same twice":           ringText("acme", 1, 2, []pair{a, a}, 1, []pair{b}),
		"a key that it revokes": ringText("acme", 1, 0, nil, 1, []pair{a},
			"revoked-key "+KeyID(a.public)),
		"registries of one who is not us": "jail key ring\npublisher acme\nversion 1\n" +
			"registry ghcr.io/acme\n",
		"a path for a publisher": strings.Replace(ringText("acme", 1, 0, nil, 1, []pair{a}), "acme",
			"../acme", 1),
		"a homoglyph for a publisher": strings.Replace(ringText("acme", 1, 0, nil, 1, []pair{a}),
			"acme", "аcme", 1),
		"a version with a sign": strings.Replace(ringText("acme", 1, 0, nil, 1, []pair{a}),
			"version 1", "version +1", 1),
		"a version of many digits": strings.Replace(ringText("acme", 1, 0, nil, 1, []pair{a}),
			"version 1", "version "+strings.Repeat("9", 60), 1),
		"a line twice": strings.Replace(ringText("acme", 1, 0, nil, 1, []pair{a}), "version 1\n",
			"version 1\nversion 2\n", 1),
		"lines in another order": "jail key ring\nversion 1\npublisher acme\n",
		"an unknown line": ringText("acme", 1, 0, nil, 1, []pair{a}) +
			"trust everybody\n",
		"no end of line": strings.TrimSuffix(ringText("acme", 1, 0, nil, 1, []pair{a}), "\n"),
		"many keys":      ringText("acme", 1, 0, nil, 1, slices.Repeat([]pair{a}, maxKeys+1)),
		"a time that is spelled otherwise": strings.Replace(ringText("acme", 1, 0, nil, 1,
			[]pair{a}), "00Z", "00+00:00", 1),
	} {
		if _, err := ParseRing(text); !errors.Is(err, ErrRing) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// T-605, T-604: rings are rotated by roots of both, forward only, and only while they are fresh.
func TestRingsAreReplacedByTheirRoots(t *testing.T) {
	r1, r2, r3, thief := newPair(t, "r1"), newPair(t, "r2"), newPair(t, "r3"), newPair(t, "thief")
	k1, k2 := newPair(t, "k1"), newPair(t, "k2")
	old := signRing(t, ringText("acme", 5, 2, []pair{r1, r2, r3}, 1, []pair{k1}), r1, r2)
	next := ringText("acme", 6, 1, []pair{r3}, 1, []pair{k2}, "revoked-key "+KeyID(k1.public))
	if err := old.replace(signRing(t, next, r1, r3), now); err != nil {
		t.Fatalf("control: %v", err)
	}
	stolen := ringText("acme", 6, 1, []pair{thief}, 1, []pair{thief})
	for name, c := range map[string]struct {
		ring Ring
		want error
	}{
		"by too few roots of the old": {signRing(t, next, r3), ErrSignature},
		"by no root of the new":       {signRing(t, next, r1, r2), ErrSignature},
		"by one root, twice":          {signRing(t, next, r3, r3), ErrSignature},
		"by a bundle key":             {signRing(t, stolen, thief, k1), ErrSignature},
		"by a root and a thief":       {signRing(t, stolen, thief, r1), ErrSignature},
		"unsigned":                    {signRing(t, next), ErrSignature},
		"an older one": {signRing(t, ringText("acme", 4, 1, []pair{r3}, 1, []pair{k1}), r1, r3),
			ErrRollback},
		"the same version, other text": {signRing(t,
			ringText("acme", 5, 1, []pair{r3}, 1, []pair{k2}), r1, r3), ErrRollback},
		"of somebody else": {signRing(t, strings.Replace(next, "acme", "evil", 1), r1, r3),
			ErrRing},
		"without roots": {signRing(t, ringText("acme", 6, 0, nil, 1, []pair{k2}), r1, r3), ErrRing},
		"an expired one": {signRing(t, strings.Replace(next, year.Format(timeLayout),
			now.Format(timeLayout), 1), r1, r3), ErrExpired},
	} {
		if err := old.replace(c.ring, now); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if err := old.Fresh(year); !errors.Is(err, ErrExpired) {
		t.Errorf("a ring at the time of its end: %v", err)
	}
	if err := old.Fresh(year.Add(-time.Second)); err != nil {
		t.Errorf("control: %v", err)
	}
}

// T-612: what a ring revokes, keys and bundles, is refused, and it is said why.
func TestRevoked(t *testing.T) {
	k1, k2 := newPair(t, "k1"), newPair(t, "k2")
	text := signed(t, words(), k1)
	rings := Rings{"acme": signRing(t, ringText("acme", 1, 0, nil, 1, []pair{k1, k2}))}
	if _, _, err := rings.Verify(text); err != nil {
		t.Fatalf("control: %v", err)
	}
	rings["acme"] = signRing(t, ringText("acme", 2, 0, nil, 1, []pair{k2}, "revoked-key "+
		KeyID(k1.public)))
	if _, _, err := rings.Verify(text); !errors.Is(err, ErrRevoked) || !errors.Is(err,
		ErrSignature) {
		t.Errorf("signed by a revoked key: %v", err)
	}
	rings["acme"] = signRing(t,
		ringText("acme", 2, 0, nil, 1, []pair{k1, k2}, "revoked "+words().Manifest))
	if _, _, err := rings.Verify(text); !errors.Is(err, ErrRevoked) {
		t.Errorf("a revoked bundle: %v", err)
	}
	if err := words().Fresh(year); !errors.Is(err, ErrExpired) {
		t.Errorf("a statement at the time of its end: %v", err)
	}
}

// An operator adds a publisher once and by their word; then the roots decide, and no key is two
// publishers'.
func TestAdmit(t *testing.T) {
	root, k1, k2 := newPair(t, "root"), newPair(t, "k1"), newPair(t, "k2")
	first := signRing(t, ringText("acme", 1, 1, []pair{root}, 1, []pair{k1}), root)
	shipped, err := shipped()
	if err != nil {
		t.Fatal(err)
	}
	rings := Rings{Official: shipped}
	if err := rings.Admit(first, false, now); !errors.Is(err, ErrSignature) {
		t.Errorf("a stranger's ring without an operator's word: %v", err)
	}
	if err := rings.Admit(first, true, now); err != nil {
		t.Fatalf("control: %v", err)
	}
	rings["acme"] = first
	forged := signRing(t, ringText("acme", 2, 1, []pair{k2}, 1, []pair{k2}), k2)
	if err := rings.Admit(forged, true, now); !errors.Is(err, ErrSignature) {
		t.Errorf("a ring in place of one that it is not signed by, with an operator's word: %v",
			err)
	}
	if ring, err := Single("evil",
		k1.public); err != nil || !errors.Is(rings.Admit(ring, true, now), ErrRing) {
		t.Errorf("a key that is another publisher's: %v", err)
	}
	dir := t.TempDir()
	if err := Save(dir, first); err != nil {
		t.Fatal(err)
	}
	if got, err := Load(dir, false); err != nil || got["acme"].Text != first.Text || len(got) != 2 {
		t.Errorf("what was saved: %+v, %v", got, err)
	}
	// A file that was written elsewhere, or by others, is an error and not a ring that is missing.
	path := filepath.Join(dir, "acme.ring")
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir, true); err == nil {
		t.Error("a ring that anybody can write was read")
	}
	if err := os.Rename(path, filepath.Join(dir, "evil.ring")); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir, false); !errors.Is(err, ErrRing) {
		t.Errorf("a ring under another's name: %v", err)
	}
}

// Two people sign one statement; a signature on another statement does not stay.
func TestSignaturesAreAdded(t *testing.T) {
	a, b := newPair(t, "a"), newPair(t, "b")
	both := signed(t, words(), a, b)
	if n := strings.Count(both, "\n— "); n != 2 {
		t.Errorf("%d signatures:\n%s", n, both)
	}
	newer := NewStatement("words", "1.3.0", []byte("other"), now, year)
	text, err := newer.Sign(b.private, both)
	if n := strings.Count(text, "\n— "); err != nil || n != 1 {
		t.Errorf("%d signatures on another statement, %v:\n%s", n, err, text)
	}
	if _, err := words().Sign(a.private[:30], ""); err == nil || strings.Contains(err.Error(),
		a.private[:30]) {
		t.Errorf("half a key: %v", err)
	}
}

// T-611: no text is read as two things: what is parsed is spelled in one way.
func FuzzStatement(f *testing.F) {
	f.Add(words().text())
	f.Add("jail bundle\nname words\n")
	f.Fuzz(func(t *testing.T, text string) {
		if s, err := parseStatement(text); err == nil && s.text() != text {
			t.Errorf("%q is read and written as %q", text, s.text())
		}
	})
}

func FuzzRing(f *testing.F) {
	f.Add(ringText("acme", 1, 0, nil, 1, nil))
	f.Add(officialRing)
	f.Fuzz(func(t *testing.T, text string) {
		if r, err := ParseRing(text); err == nil && (r.Text != text || r.check() != nil) {
			t.Errorf("%q: %+v", text, r)
		}
	})
}

// vkeyNamed returns the same key under another name, as its holder could publish it.
func vkeyNamed(name, vkey string) (string, error) {
	raw, err := base64.StdEncoding.DecodeString(strings.SplitN(vkey, "+", 3)[2])
	if err != nil {
		return "", err
	}
	return note.NewEd25519VerifierKey(name, ed25519.PublicKey(raw[1:]))
}
