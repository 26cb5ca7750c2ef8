package audit

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// second is the other verifier, in another language, that docs/ has for strangers.
func second(t *testing.T, args ...string) (string, bool) {
	t.Helper()
	out, err := exec.Command("python3",
		append([]string{"../../docs/verify.py"}, args...)...).CombinedOutput()
	if bytes.Contains(out, []byte("Traceback")) && !bytes.Contains(out, []byte("ValueError")) {
		t.Errorf("verify.py %q: %s", args, out)
	}
	return string(out), err == nil
}

// TestSecondVerifier: two programs that have nothing in common agree on logs as they are written,
// rotated, pruned and altered.
func TestSecondVerifier(t *testing.T) {
	p := newPlace(t)
	opt := p.options()
	opt.SegmentBytes, opt.CheckpointRecords = 3000, 16
	l, err := Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	for range 70 {
		mustAppend(t, l, denied("caf\xe9 \x1b[2J"))
	}
	mustClose(t, l)
	pub := filepath.Join(p.keys, pubFile)
	first := filepath.Join(t.TempDir(), "first.pub")
	if err := os.WriteFile(first, []byte(p.pub(t)), 0o600); err != nil {
		t.Fatal(err)
	}
	agree := func(key string) {
		t.Helper()
		text, err := os.ReadFile(key)
		if err != nil {
			t.Fatal(err)
		}
		rep, err := Verify(p.log, string(text))
		out, ok := second(t, p.log, key)
		if ok != (err == nil) || ok && strings.TrimSpace(out) != rep.String() {
			t.Errorf("%v, %v; the other says %s", rep, err, out)
		}
	}
	agree(pub)
	if _, err := Rotate(opt); err != nil {
		t.Fatal(err)
	}
	agree(pub)
	agree(first)
	if done, err := Prune(opt, Keep{Bytes: 12000}); err != nil || done.Segments == 0 {
		t.Fatal(done, err)
	}
	agree(pub)

	for _, seq := range []uint64{60, 70, 73} {
		proof, err := Prove(p.log, p.pub(t), seq)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "proof")
		text := proof.Marshal()
		for _, bad := range []bool{false, true} {
			if bad {
				text[len(proof.Line)/2] ^= 1
			}
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
			if out, ok := second(t, "--proof", path, pub); ok == bad {
				t.Errorf("record %d, altered %v: %s", seq, bad, out)
			}
		}
	}

	list, err := filepath.Glob(filepath.Join(p.log, "*"+segmentExt))
	if err != nil || len(list) < 2 {
		t.Fatal(list, err)
	}
	last := list[len(list)-1]
	whole, err := os.ReadFile(last)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{
		"a byte":                append(append(bytes.Clone(whole[:100]), whole[100]^1), whole[101:]...),
		"the last line is gone": whole[:bytes.LastIndexByte(whole[:len(whole)-1], '\n')+1],
		"half a line more":      append(bytes.Clone(whole), whole[:50]...),
		"a line again": append(bytes.Clone(whole),
			whole[bytes.LastIndexByte(whole[:len(whole)-1], '\n')+1:]...),
	} {
		if err := os.WriteFile(last, text, 0o640); err != nil {
			t.Fatal(err)
		}
		if _, err := Verify(p.log, p.pub(t)); err == nil {
			t.Errorf("%s: verified", name)
		}
		agree(pub)
	}
}
