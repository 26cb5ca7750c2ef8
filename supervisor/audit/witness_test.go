package audit

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/supervisor/audit/witnesstest"
)

func (p place) grow(t *testing.T, n int) {
	t.Helper()
	l := p.open(t)
	for i := range n {
		if _, err := l.Append(t.Context(), denied(fmt.Sprint("open ", i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func (p place) head(t *testing.T) Head {
	t.Helper()
	h, err := ReadHead(p.log)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// ask sends the head of a log to a witness, as an extension of its first old records.
func (p place) ask(t *testing.T, w *witnesstest.Witness, old uint64) []byte {
	t.Helper()
	body, err := WitnessRequest(p.log, p.head(t), old)
	if err != nil {
		t.Fatal(err)
	}
	status, line := w.Add(body)
	if status != http.StatusOK {
		t.Fatalf("the witness answered %d: %s", status, line)
	}
	return line
}

func watching(t *testing.T, p place) *witnesstest.Witness {
	t.Helper()
	w := witnesstest.New("witness.example/1")
	if _, err := w.Trust(p.pub(t)); err != nil {
		t.Fatal(err)
	}
	return w
}

// TestWitness: a log that grows is cosigned at every size, from every size that was; a stranger
// reads the cosignature off as the format says.
func TestWitness(t *testing.T) {
	p := newPlace(t)
	p.grow(t, 1)
	w := watching(t, p)
	var old uint64
	for range 9 {
		line := p.ask(t, w, old)
		h := p.head(t)
		old = h.Size
		note, err := Cosign(h.Note, line, w.Public())
		if err != nil {
			t.Fatal(err)
		}
		if seen := w.Seen(h.Origin); !bytes.Equal(seen, note) {
			t.Errorf("the witness has seen %q, want %q", seen, note)
		}
		// Once more, of the same.
		p.ask(t, w, old)
		anchors, err := ParseAnchors("witness", note)
		if err != nil {
			t.Fatal(err)
		}
		found, err := CheckWitnesses(anchors, w.Public())
		if err != nil || len(found) != 1 || found[0].Size != h.Size ||
			found[0].Name != "witness.example/1" || time.Since(found[0].Time) > time.Hour {
			t.Errorf("%+v, %v", found, err)
		}
		if rep, err := verify(p.log, p.pub(t), time.Microsecond, anchors...); err != nil ||
			rep.Anchors != 1 {
			t.Errorf("%+v, %v", rep, err)
		}
		p.grow(t, 3)
	}
	// By hand, from https://c2sp.org/tlog-cosignature.
	seen := w.Seen(p.head(t).Origin)
	parts := strings.SplitN(string(seen), "\n\n", 2)
	words := strings.Fields(strings.Split(parts[1], "\n")[1])
	sig, err1 := base64.StdEncoding.DecodeString(words[2])
	key, err2 := base64.StdEncoding.DecodeString(w.Public()[strings.LastIndex(w.Public(), "+")+1:])
	if keys := strings.SplitN(w.Public(), "+", 3); len(keys) == 3 {
		key, err2 = base64.StdEncoding.DecodeString(keys[2])
	}
	if err := errors.Join(err1, err2); err != nil || len(sig) != 4+8+64 || len(key) != 33 ||
		key[0] != 4 {
		t.Fatalf("%v: %d bytes of signature, %d of key", err, len(sig), len(key))
	}
	msg := fmt.Sprintf("cosignature/v1\ntime %d\n%s\n", binary.BigEndian.Uint64(sig[4:]), parts[0])
	if !ed25519.Verify(key[1:], []byte(msg), sig[12:]) {
		t.Error("the signature is not over what the format says")
	}
}

// TestCheckWitnesses: whose head was cosigned by nobody, by another, or falsely, is not what the
// witness has seen.
func TestCheckWitnesses(t *testing.T) {
	p := newPlace(t)
	p.grow(t, 2)
	w := watching(t, p)
	h := p.head(t)
	line := p.ask(t, w, 0)
	good, err := Cosign(h.Note, line, w.Public())
	if err != nil {
		t.Fatal(err)
	}
	stranger := witnesstest.New("witness.example/1")
	forged := bytes.Clone(good)
	// Another letter of base64's, or it would be no signature at all.
	at := len(forged) - 20
	forged[at] = map[bool]byte{true: 'B', false: 'A'}[forged[at] == 'A']
	late := bytes.Replace(good, fmt.Appendf(nil, "\n%d\n", h.Size),
		fmt.Appendf(nil, "\n%d\n", h.Size+1), 1)
	for name, c := range map[string]struct {
		note []byte
		keys string
	}{"none": {h.Note, w.Public()}, "another's": {good, stranger.Public()}, "both wanted": {good,
		w.Public() + "\n" + stranger.Public()}, "forged": {forged, w.Public()},
		"over another": {late, w.Public()}} {
		anchors, err := ParseAnchors("x", c.note)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var f *Fault
		if found, err := CheckWitnesses(anchors, c.keys); !errors.As(err, &f) {
			t.Errorf("%s: %+v, %v", name, found, err)
		}
	}
	for _, bad := range []string{"", "x", p.pub(t), "x+00000000+" +
		w.Public()[strings.LastIndex(w.Public(), "+")+1:], strings.Replace(w.Public(), "/1", "/2",
		1)} {
		if err := CheckWitnessKeys(bad); !errors.Is(err, ErrKey) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for _, lines := range []string{"", "x", string(h.Note),
		strings.Replace(string(line), "A", "B", 1)} {
		if _, err := Cosign(h.Note, []byte(lines), w.Public()); err == nil {
			t.Errorf("%q passes for a cosignature", lines)
		}
	}
}
