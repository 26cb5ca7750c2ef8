package audit

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
)

func openWitness(t *testing.T, dir string) *Witness {
	t.Helper()
	w, err := OpenWitness(dir, "witness.example/1", true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

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

// copied is the log and its key, as someone with both has them.
func (p place) copied(t *testing.T) place {
	t.Helper()
	q := newPlace(t)
	if err := errors.Join(os.CopyFS(q.log, os.DirFS(p.log)), os.CopyFS(q.keys, os.DirFS(p.keys)), os.Chmod(q.keys, 0o700), os.Chmod(filepath.Join(q.keys, keyFile), 0o600)); err != nil {
		t.Fatal(err)
	}
	return q
}

// ask sends the head of a log to a witness, as going on from so many records.
func (p place) ask(t *testing.T, w *Witness, old uint64) ([]byte, error) {
	t.Helper()
	body, err := WitnessRequest(p.log, p.head(t), old)
	if err != nil {
		t.Fatal(err)
	}
	return w.Add(body)
}

func (p place) mustAsk(t *testing.T, w *Witness, old uint64) []byte {
	t.Helper()
	line, err := p.ask(t, w, old)
	if err != nil {
		t.Fatal(err)
	}
	return line
}

func wantRefusal(t *testing.T, err error, status int, size uint64) {
	t.Helper()
	var e *WitnessError
	if !errors.As(err, &e) || e.Status != status || e.Size != size {
		t.Errorf("the witness said %v (%+v), want %d of size %d", err, e, status, size)
	}
}

// TestWitness: a log that grows is cosigned at every size, from every size that was; a stranger reads the cosignature off as the format says.
func TestWitness(t *testing.T) {
	w, p := openWitness(t, filepath.Join(t.TempDir(), "witness")), newPlace(t)
	p.grow(t, 1)
	if _, err := w.Trust(p.pub(t)); err != nil {
		t.Fatal(err)
	}
	var old uint64
	for range 9 {
		line := p.mustAsk(t, w, old)
		h := p.head(t)
		old = h.Size
		note, err := Cosign(h.Note, line, w.PublicKey())
		if err != nil {
			t.Fatal(err)
		}
		if seen, err := w.Seen(h.Origin); err != nil || !bytes.Equal(seen, note) {
			t.Errorf("it has seen %q, %v, want %q", seen, err, note)
		}
		p.mustAsk(t, w, old) // once more, of the same
		anchors, err := ParseAnchors("witness", note)
		if err != nil {
			t.Fatal(err)
		}
		found, err := CheckWitnesses(anchors, w.PublicKey())
		if err != nil || len(found) != 1 || found[0].Size != h.Size || found[0].Name != "witness.example/1" || time.Since(found[0].Time) > time.Hour {
			t.Errorf("%+v, %v", found, err)
		}
		if rep, err := verify(p.log, p.pub(t), time.Microsecond, anchors...); err != nil || rep.Anchors != 1 {
			t.Errorf("%+v, %v", rep, err)
		}
		p.grow(t, 3)
	}
	// By hand, from https://c2sp.org/tlog-cosignature.
	seen, err := w.Seen(p.head(t).Origin)
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.SplitN(string(seen), "\n\n", 2)
	words := strings.Fields(strings.Split(parts[1], "\n")[1])
	sig, err1 := base64.StdEncoding.DecodeString(words[2])
	key, err2 := base64.StdEncoding.DecodeString(w.PublicKey()[strings.LastIndex(w.PublicKey(), "+")+1:])
	if keys := strings.SplitN(w.PublicKey(), "+", 3); len(keys) == 3 {
		key, err2 = base64.StdEncoding.DecodeString(keys[2])
	}
	if err := errors.Join(err1, err2); err != nil || len(sig) != 4+8+64 || len(key) != 33 || key[0] != 4 {
		t.Fatalf("%v: %d bytes of signature, %d of key", err, len(sig), len(key))
	}
	msg := fmt.Sprintf("cosignature/v1\ntime %d\n%s\n", binary.BigEndian.Uint64(sig[4:]), parts[0])
	if !ed25519.Verify(key[1:], []byte(msg), sig[12:]) {
		t.Error("the signature is not over what the format says")
	}
}

// TestWitnessRefuses: each way to take back what was cosigned, by who has the log's key. That the same logs pass verify alone is the control.
func TestWitnessRefuses(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "witness")
	w, p, other := openWitness(t, dir), newPlace(t), newPlace(t)
	p.grow(t, 5)
	other.grow(t, 2)
	_, err := p.ask(t, w, 0)
	wantRefusal(t, err, WitnessUnknown, 0)
	for _, log := range []place{p, other} { // two logs do not disturb each other
		if _, err := w.Trust(log.pub(t)); err != nil {
			t.Fatal(err)
		}
	}
	early, fork := p.copied(t), p.copied(t)
	p.grow(t, 6)
	p.mustAsk(t, w, 0)
	other.mustAsk(t, w, 0)
	size := p.head(t).Size

	early.mustVerify(t, 0)
	_, err = early.ask(t, w, early.head(t).Size) // rollback: the log and its head as they were
	wantRefusal(t, err, WitnessConflict, size)
	_, err = early.ask(t, w, 0)
	wantRefusal(t, err, WitnessConflict, size)
	if _, err := WitnessRequest(early.log, early.head(t), size); !errors.Is(err, ErrPutBack) {
		t.Errorf("%v", err)
	}
	for fork.head(t).Size <= size { // another history of the same length, and of more
		fork.grow(t, 1)
		fork.mustVerify(t, 0)
		h := fork.head(t)
		if h.Size < size {
			continue
		}
		_, err = fork.ask(t, w, size)
		want := WitnessBadProof
		if h.Size == size {
			wantRefusal(t, err, WitnessConflict, size)
			continue
		}
		wantRefusal(t, err, want, 0)
	}
	// The proof is what tells: without it, with one of another size, with a hash too many.
	p.grow(t, 4)
	good, err := WitnessRequest(p.log, p.head(t), size)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(good), "\n")
	for name, c := range map[string]struct {
		text   string
		status int
	}{
		"no proof":    {lines[0] + strings.Join(lines[len(lines)-9:], ""), WitnessBadProof},
		"one less":    {lines[0] + strings.Join(lines[2:], ""), WitnessBadProof},
		"one more":    {lines[0] + lines[1] + strings.Join(lines[1:], ""), WitnessBadProof},
		"old is more": {strings.Replace(string(good), lines[0], "old 999\n", 1), WitnessMalformed},
		"old is 0":    {strings.Replace(string(good), lines[0], "old 0\n", 1), WitnessConflict},
		"zeros":       {strings.Replace(string(good), "old ", "old 0", 1), WitnessMalformed},
		"sign":        {strings.Replace(string(good), "old ", "old +", 1), WitnessMalformed},
		"empty":       {"", WitnessMalformed},
		"no note":     {lines[0] + "\n", WitnessMalformed},
		"no base64":   {lines[0] + "x\n" + strings.Join(lines[1:], ""), WitnessMalformed},
		"64 hashes":   {lines[0] + strings.Repeat(lines[1], 64) + strings.Join(lines[len(lines)-9:], ""), WitnessMalformed},
		"long":        {string(good) + strings.Repeat("x", MaxWitnessRequest), WitnessMalformed},
		"altered":     {strings.Replace(string(good), "\nchain sha256:", "\nchain sha256:0", 1), WitnessForbidden},
		"unsigned":    {string(good[:bytes.Index(good, []byte(signature))]), WitnessForbidden},
	} {
		_, err := w.Add([]byte(c.text))
		var e *WitnessError
		if !errors.As(err, &e) || e.Status != c.status {
			t.Errorf("%s: %v, want %d", name, err, c.status)
		}
	}
	if _, err := w.Add(good); err != nil {
		t.Errorf("the control: %v", err)
	}
	// A key that the witness does not know, of a log of that name; then it is told.
	o := p.options()
	if _, err := Rotate(o); err != nil {
		t.Fatal(err)
	}
	size = 15
	if got, err := w.Seen(p.head(t).Origin); err == nil {
		a, _ := ParseAnchors("x", got)
		size = a[0].Size
	}
	_, err = p.ask(t, w, size)
	wantRefusal(t, err, WitnessForbidden, 0)
	if _, err := w.Trust(p.pub(t)); err != nil {
		t.Fatal(err)
	}
	p.mustAsk(t, w, size)
}

// TestWitnessLasts: what was seen is on disk before the answer; a second process does not cosign beside it; a state that was changed is not believed.
func TestWitnessLasts(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "witness")
	w, err := OpenWitness(dir, "", true)
	if err != nil {
		t.Fatal(err)
	}
	key := w.PublicKey()
	p := newPlace(t)
	p.grow(t, 3)
	if _, err := w.Trust(p.pub(t)); err != nil {
		t.Fatal(err)
	}
	p.mustAsk(t, w, 0)
	size := p.head(t).Size
	if second, err := OpenWitness(dir, "", true); err == nil {
		second.Close()
		t.Error("two processes cosign with one key")
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if named, err := OpenWitness(dir, "another", false); !errors.Is(err, ErrKey) {
		t.Errorf("%v, %v", named, err)
	}
	if w, err = OpenWitness(dir, "", true); err != nil || w.PublicKey() != key {
		t.Fatalf("%v", err)
	}
	defer w.Close()
	p.grow(t, 1)
	_, err = p.ask(t, w, 0)
	wantRefusal(t, err, WitnessConflict, size)
	if logs, err := w.Logs(); err != nil || len(logs) != 1 || logs[0].Size != size || logs[0].Origin != p.head(t).Origin {
		t.Errorf("%+v, %v", logs, err)
	}
	file := filepath.Join(dir, witnessSeen, originFile(p.head(t).Origin))
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string][]byte{"empty": {}, "smaller": bytes.Replace(text, fmt.Appendf(nil, "\n%d\n", size), []byte("\n1\n"), 1), "cut": text[:len(text)-100],
		"only the log's": text[:bytes.LastIndex(text, []byte(signature))]} {
		if err := os.WriteFile(file, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		var e *WitnessError
		if _, err := p.ask(t, w, size); err == nil || errors.As(err, &e) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	p.mustAsk(t, w, size)
	if err := os.Chmod(filepath.Join(dir, witnessKey), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenWitness(dir, "", false); !errors.Is(err, ErrKey) {
		t.Errorf("a key that others can read: %v", err)
	}
}

// TestCheckWitnesses: whose head was cosigned by nobody, by another, or falsely, is not what the witness has seen.
func TestCheckWitnesses(t *testing.T) {
	w, p := openWitness(t, filepath.Join(t.TempDir(), "witness")), newPlace(t)
	p.grow(t, 2)
	if _, err := w.Trust(p.pub(t)); err != nil {
		t.Fatal(err)
	}
	h := p.head(t)
	line := p.mustAsk(t, w, 0)
	good, err := Cosign(h.Note, line, w.PublicKey())
	if err != nil {
		t.Fatal(err)
	}
	stranger := openWitness(t, filepath.Join(t.TempDir(), "stranger")) // of the same name
	forged := bytes.Clone(good)
	// Another letter of base64's, or it would be no signature at all.
	at := len(forged) - 20
	forged[at] = map[bool]byte{true: 'B', false: 'A'}[forged[at] == 'A']
	late := bytes.Replace(good, fmt.Appendf(nil, "\n%d\n", h.Size), fmt.Appendf(nil, "\n%d\n", h.Size+1), 1)
	for name, c := range map[string]struct {
		note []byte
		keys string
	}{"none": {h.Note, w.PublicKey()}, "another's": {good, stranger.PublicKey()}, "both wanted": {good, w.PublicKey() + "\n" + stranger.PublicKey()}, "forged": {forged, w.PublicKey()},
		"over another": {late, w.PublicKey()}} {
		anchors, err := ParseAnchors("x", c.note)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var f *Fault
		if found, err := CheckWitnesses(anchors, c.keys); !errors.As(err, &f) {
			t.Errorf("%s: %+v, %v", name, found, err)
		}
	}
	for _, bad := range []string{"", "x", p.pub(t), "x+00000000+" + w.PublicKey()[strings.LastIndex(w.PublicKey(), "+")+1:], strings.Replace(w.PublicKey(), "/1", "/2", 1)} {
		if err := CheckWitnessKeys(bad); !errors.Is(err, ErrKey) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for _, lines := range []string{"", "x", string(h.Note), strings.Replace(string(line), "A", "B", 1)} {
		if _, err := Cosign(h.Note, []byte(lines), w.PublicKey()); err == nil {
			t.Errorf("%q passes for a cosignature", lines)
		}
	}
}

// TestWitnessLongHead: a head that is signed and fits a request, and would with the cosignature be too long to be read again, is refused, and the log goes on.
func TestWitnessLongHead(t *testing.T) {
	w := openWitness(t, filepath.Join(t.TempDir(), "witness"))
	private, public, err := note.GenerateKey(zeros{}, "jail-audit/x")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := note.NewSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Trust(public); err != nil {
		t.Fatal(err)
	}
	for length := 3500; length < maxNote; length += 10 {
		long, err := (head{state{7, noLine()}, edge(nil).root()}).sign(asHead, time.Now(), []string{strings.Repeat("x", length)}, signer)
		if err != nil {
			t.Fatal(err)
		}
		last, _, err := w.last("jail-audit/x")
		if err != nil {
			t.Fatalf("before a head with a line of %d bytes: %v", length, err)
		}
		_, err = w.Add(append(fmt.Appendf(nil, "old %d\n\n", last.size), long...))
		var e *WitnessError
		if err != nil && (!errors.As(err, &e) || e.Status != WitnessMalformed) {
			t.Fatalf("%d: %v", length, err)
		}
		if _, _, err := w.last("jail-audit/x"); err != nil {
			t.Fatalf("a head with a line of %d bytes: %v", length, err)
		}
	}
}
