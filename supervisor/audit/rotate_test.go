package audit

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRotate: who has any key of a log's history from its beginning on can verify all of it, and
// the old key signs nothing any more (T-534).
func TestRotate(t *testing.T) {
	p := newPlace(t)
	// Another writer, which goes on.
	live := p.open(t)
	mustAppend(t, live, denied("a"))
	before := p.pub(t)
	oldKey, err := os.ReadFile(filepath.Join(p.keys, keyFile))
	if err != nil {
		t.Fatal(err)
	}
	vkey, err := Rotate(p.options())
	if err != nil {
		t.Fatal(err)
	}
	mustAppend(t, live, denied("b"))
	mustClose(t, live)
	after := p.pub(t)
	if after != before+vkey+"\n" {
		t.Errorf("public keys %q, before %q", after, before)
	}
	for name, pub := range map[string]string{"both": after, "the first": before} {
		rep, err := Verify(p.log, pub)
		if err != nil || rep.Keys != 1 {
			t.Errorf("with %s: %+v, %v", name, rep, err)
		}
	}
	// A thief of the old key: what he signs is refused, though the key is one of the log's.
	thief := p
	thief.keys = t.TempDir()
	if err := os.WriteFile(filepath.Join(thief.keys, keyFile), oldKey, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(thief.options()); err == nil {
		t.Error("a writer with the old key opened the log")
	}
	signer, _, err := parseKey(strings.TrimSpace(string(oldKey)), keyFile)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(p.log, headFile)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	known, err := verifiers(after)
	if err != nil {
		t.Fatal(err)
	}
	h, err := openNote(text, known, asHead)
	if err != nil {
		t.Fatal(err)
	}
	forged, err := h.sign(asHead, p.options().withDefaults().Now(), nil, signer)
	if err != nil || os.WriteFile(path, forged, 0o640) != nil {
		t.Fatal(err)
	}
	if _, err := Verify(p.log, after); err == nil {
		t.Error("a head of the old key is taken")
	}
}

// TestRotateCutOff: wherever a rotation ends, the next writer goes on with one key or the other,
// and all of it verifies.
func TestRotateCutOff(t *testing.T) {
	for _, at := range []string{"next key written", "handed over", "key replaced"} {
		t.Run(at, func(t *testing.T) {
			p := newPlace(t)
			mustClose(t, p.open(t))
			before := p.pub(t)
			saved := map[string][]byte{}
			for _, name := range []string{keyFile, pubFile} {
				text, err := os.ReadFile(filepath.Join(p.keys, name))
				if err != nil {
					t.Fatal(err)
				}
				saved[name] = text
			}
			headBefore, _ := os.ReadFile(filepath.Join(p.log, headFile))
			segBefore, _ := os.ReadFile(p.segment(1))
			treeBefore, _ := os.ReadFile(filepath.Join(p.log, treeFile))
			knownBefore, _ := os.ReadFile(filepath.Join(p.keys, knownFile))
			if _, err := Rotate(p.options()); err != nil {
				t.Fatal(err)
			}
			newKey, err := os.ReadFile(filepath.Join(p.keys, keyFile))
			if err != nil {
				t.Fatal(err)
			}
			put := func(dir, name string, text []byte) {
				if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			put(p.keys, nextFile, newKey)
			put(p.keys, knownFile, knownBefore)
			switch at {
			case "next key written":
				put(p.log, headFile, headBefore)
				put(p.log, treeFile, treeBefore)
				put(p.log, "000000000001.jsonl", segBefore)
				put(p.log, pubFile, saved[pubFile])
				put(p.keys, keyFile, saved[keyFile])
				put(p.keys, pubFile, saved[pubFile])
			case "handed over":
				// The record is there, behind the head that the old key signed.
				put(p.log, headFile, headBefore)
				put(p.log, pubFile, saved[pubFile])
				put(p.keys, keyFile, saved[keyFile])
				put(p.keys, pubFile, saved[pubFile])
			case "key replaced":
				put(p.log, pubFile, saved[pubFile])
			}
			l := p.open(t)
			mustAppend(t, l, denied("after"))
			mustClose(t, l)
			if _, err := os.Stat(filepath.Join(p.keys, nextFile)); err == nil {
				t.Error("the next key is still there")
			}
			for _, pub := range []string{before, p.pub(t)} {
				if rep, err := Verify(p.log, pub); err != nil ||
					(rep.Keys == 1) != (at != "next key written") {
					t.Errorf("%+v, %v", rep, err)
				}
			}
		})
	}
}

// TestManyRotations: a log that was given many more keys than a note has bytes goes on, and
// verifies with all of them, with the first and with the kept file of a reader; what has no room
// for one more says so before anything is written.
func TestManyRotations(t *testing.T) {
	p := newPlace(t)
	p.grow(t, 1)
	first := p.pub(t)
	for range 60 {
		if _, err := Rotate(p.options()); err != nil {
			t.Fatal(err)
		}
	}
	p.grow(t, 1)
	all := p.pub(t)
	if n := strings.Count(all, "\n"); n != 61 || !strings.HasPrefix(all, first) ||
		len(all) <= maxNote {
		t.Errorf("%d keys in %d bytes", n, len(all))
	}
	for name, pub := range map[string]string{"all": all, "the first": first} {
		if rep, err := Verify(p.log, pub); err != nil || rep.Keys != 60 {
			t.Errorf("with %s: %+v, %v", name, rep, err)
		}
	}
	path := filepath.Join(p.keys, pubFile)
	full := all + strings.Repeat("\n", maxPublic-len(all))
	for name, text := range map[string]string{"no room": full, "too long": full + "\n"} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(p.log, pubFile), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Rotate(p.options()); !errors.Is(err, ErrKey) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, at := range []string{path, filepath.Join(p.log, pubFile)} {
		if err := os.WriteFile(at, []byte(all), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p.grow(t, 1)
	if _, err := p.verify(t); err != nil {
		t.Error(err)
	}
}
