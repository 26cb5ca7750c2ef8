package audit

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/jail-sandbox/jail/supervisor/audit/witnesstest"
)

// fuzzSigner is the same key in every process of a fuzzing run.
func fuzzSigner(f *testing.F) (note.Signer, string) {
	f.Helper()
	private, public, err := note.GenerateKey(zeros{}, "jail-audit/x")
	if err != nil {
		f.Fatal(err)
	}
	signer, err := note.NewSigner(private)
	if err != nil {
		f.Fatal(err)
	}
	return signer, public
}

// textOf is what a note says, without its signatures.
func textOf(msg []byte) string {
	body, _, _ := bytes.Cut(msg, []byte("\n\n"))
	return string(body) + "\n"
}

// memoryTree is a tree that needs no file.
type memoryTree struct {
	hashes []tlog.Hash
	leaves int64
}

func (m *memoryTree) add(leaf []byte) {
	more, err := tlog.StoredHashes(m.leaves, leaf, m)
	if err != nil {
		panic(err)
	}
	m.hashes = append(m.hashes, more...)
	m.leaves++
}

func (m *memoryTree) ReadHashes(at []int64) ([]tlog.Hash, error) {
	out := make([]tlog.Hash, len(at))
	for i, n := range at {
		out[i] = m.hashes[n]
	}
	return out, nil
}

// FuzzCosign: what a witness answers, the keys of witnesses and what is kept of them are read
// without panic, and no bytes but the signature itself are taken for one.
func FuzzCosign(f *testing.F) {
	signer, _ := fuzzSigner(f)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	msg, err := (head{state{7, noLine()}, edge(nil).root()}).sign(asHead, at, nil, signer)
	if err != nil {
		f.Fatal(err)
	}
	key := witnesstest.NewKey("witness.example/1", make([]byte, 32))
	good := key.Sign(textOf(msg), at)
	other := witnesstest.NewKey("witness.example/1", append(make([]byte, 31), 1))
	early := key.Sign(textOf(msg), time.Unix(0, 0))
	f.Add(good, key.Public())
	f.Add(append(bytes.Clone(good), early...), other.Public())
	f.Add(other.Sign(textOf(msg), at), key.Public()+"\n\n"+other.Public())
	f.Add(bytes.Replace(good, []byte(" "), []byte("  "), 1), "x+00000000+")
	f.Add(bytes.Replace(good, []byte("A"), []byte("A\r"), 1),
		strings.Replace(key.Public(), "He", "He\r", 1))
	f.Fuzz(func(t *testing.T, lines []byte, keys string) {
		if out, err := Cosign(msg, lines, key.Public()); err == nil {
			line := out[len(msg):]
			if !bytes.HasPrefix(out, msg) || !bytes.Contains(lines, line) || bytes.Count(line,
				[]byte("\n")) != 1 {
				t.Fatalf("%q is taken as the signature %q", lines, line)
			}
			kept, err := ParseAnchors("x", out)
			if err != nil {
				t.Fatalf("%q: %v", out, err)
			}
			seen, err := CheckWitnesses(kept, key.Public())
			if err != nil || seen[0].Size != 7 || seen[0].Time.Unix() < 0 {
				t.Errorf("%q: %+v, %v", out, seen, err)
			}
			// Ed25519 signs the same bytes in one way, so what is good is what the key makes.
			if want := key.Sign(textOf(msg), seen[0].Time); !bytes.Equal(line, want) {
				t.Errorf("%q passes for %q", line, want)
			}
		}
		if list, err := cosigners(keys); (err == nil) != (len(list) > 0) ||
			(CheckWitnessKeys(keys) == nil) != (err == nil) {
			t.Errorf("%q: %v, %v", keys, list, err)
		} else if err == nil {
			for line := range strings.Lines(keys) {
				if line = strings.TrimSpace(line); line == "" {
					continue
				}
				if list[0].String() != line {
					t.Errorf("%q is read as %s", line, list[0])
				}
				list = list[1:]
			}
		}
	})
}

// FuzzAnchors: what was kept away from the log, by whomever and in whatever form, is read without
// panic; an anchor that a log is said to fit is one that its key signed.
func FuzzAnchors(f *testing.F) {
	signer, public := fuzzSigner(f)
	keys, err := verifiers(public)
	if err != nil {
		f.Fatal(err)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	msg, err := (head{state{7, noLine()}, edge(nil).root()}).sign(asHead, at, nil, signer)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(msg)
	f.Add(append(append([]byte("\n\n"), msg...), msg...))
	f.Add(fmt.Appendf(nil, "Jan  2 03:04:05 host jail: {\"note\":%q}\nnext {\"note\":\"x\"}\n",
		msg))
	f.Fuzz(func(t *testing.T, text []byte) {
		all, err := ParseAnchors("x", text)
		if (err == nil) != (len(all) > 0) {
			t.Errorf("%q: %d, %v", text, len(all), err)
		}
		for _, a := range all {
			v := verifier{known: keys}
			h, err := v.openAnchor(a)
			if err == nil && (h.state != state{7, noLine()} || textOf(a.Note) != textOf(msg) ||
				a.Size != 7) {
				t.Errorf("%q passes for an anchor", a.Note)
			}
		}
	})
}

// FuzzProof: a proof has one form only, and shows nothing but what its head signs.
func FuzzProof(f *testing.F) {
	signer, public := fuzzSigner(f)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var leaves memoryTree
	lines := [][]byte{}
	for n := range 5 {
		line := []byte(strings.Replace(front, `"seq":1`, fmt.Sprintf(`"seq":%d`, n+1), 1) + tail)
		lines = append(lines, line)
		leaves.add(line)
	}
	root, err := tlog.TreeHash(5, &leaves)
	if err != nil {
		f.Fatal(err)
	}
	msg, err := (head{state{5, noLine()}, root}).sign(asHead, at, nil, signer)
	if err != nil {
		f.Fatal(err)
	}
	for n := range 5 {
		hashes, err := tlog.ProveRecord(5, int64(n), &leaves)
		if err != nil {
			f.Fatal(err)
		}
		p := Proof{Line: lines[n], Index: uint64(n), Hashes: hashes, Note: msg}
		if _, err := CheckProof(p, public); err != nil {
			f.Fatal(err)
		}
		f.Add(p.Marshal())
		f.Add(bytes.Replace(p.Marshal(), []byte("=\n"), []byte("=\r\n"), 1))
	}
	f.Add([]byte("\n" + proofHeader + "\nindex 9223372036854775807\n\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := ParseProof(text)
		if err != nil {
			return
		}
		if back := p.Marshal(); !bytes.Equal(back, text) {
			t.Errorf("%q is read as %q", text, back)
		}
		if r, err := CheckProof(p, public); err == nil && (p.Index >= 5 || r.Seq != p.Index+1 ||
			!bytes.Equal(p.Line, lines[p.Index])) {
			t.Errorf("%q is shown to be record %d", p.Line, p.Index+1)
		}
	})
}
