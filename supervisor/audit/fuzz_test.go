package audit

import (
	"bytes"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
)

// FuzzNote: no bytes but those that our key signed, for this purpose, are taken for a note, and no
// text of keys panics.
func FuzzNote(f *testing.F) {
	private, public, err := note.GenerateKey(zeros{}, "jail-audit/x")
	if err != nil {
		f.Fatal(err)
	}
	signer, err := note.NewSigner(private)
	if err != nil {
		f.Fatal(err)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	latest, err := (head{state{7, noLine()}, edge(nil).root()}).sign(asHead, at, nil, signer)
	if err != nil {
		f.Fatal(err)
	}
	mark, err := (head{state{7, noLine()}, edge(nil).root()}).sign(asCheckpoint, at, nil, signer)
	if err != nil {
		f.Fatal(err)
	}
	keys, err := verifiers(public)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(latest, public)
	f.Add(mark, public+"\n\n"+public)
	f.Add(append(bytes.Clone(latest), latest[len(latest)/2:]...), "x+y+z")
	f.Add([]byte{}, "")
	f.Fuzz(func(t *testing.T, text []byte, pub string) {
		for why, signed := range map[purpose][]byte{asHead: latest, asCheckpoint: mark} {
			s, err := openNote(text, keys, why)
			if err == nil && (s.state != state{7, noLine()} || !bytes.HasPrefix(text,
				signed[:bytes.LastIndex(signed, []byte("\n\n"))+2])) {
				t.Errorf("%q is taken as a %s", text, why)
			}
		}
		if v, err := verifiers(pub); (err == nil) != (v != nil) {
			t.Errorf("%q: %v, %v", pub, v, err)
		}
		if s, ok := parseSum(text); ok && s.String() != string(text) {
			t.Errorf("%q is read as %s", text, s)
		}
	})
}

// zeros is a source of randomness that has none, so that every process of a fuzzing run has the
// same key.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
