package audit

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestKeyFiles(t *testing.T) {
	p := newPlace(t)
	p.fill(t, 2)
	want := map[string]fs.FileMode{
		filepath.Join(p.keys, keyFile):   0o600,
		filepath.Join(p.keys, knownFile): 0o600,
		filepath.Join(p.log, lockFile):   0o600,
		p.keys:                           0o700 | fs.ModeDir,
	}
	for name, mode := range want {
		if info, err := os.Stat(name); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v, want mode %v", name, info, err, mode)
		}
	}
	if pub, err := PublicKey(p.log); err != nil || pub != p.pub(t) {
		t.Errorf("public key beside the log is %q, %v", pub, err)
	}
	entries, _ := os.ReadDir(p.log)
	for _, e := range entries {
		text, _ := os.ReadFile(filepath.Join(p.log, e.Name()))
		if strings.Contains(string(text), "PRIVATE") {
			t.Errorf("%s holds the private key", e.Name())
		}
	}
}

func TestKeyTrouble(t *testing.T) {
	other := newPlace(t)
	other.fill(t, 2)
	otherPub := other.pub(t)
	otherKey, _ := os.ReadFile(filepath.Join(other.keys, keyFile))
	tests := []struct {
		name string
		harm func(p place)
		want error
	}{
		{"missing", func(p place) { os.Remove(filepath.Join(p.keys, keyFile)) }, ErrKey},
		{"key directory missing", func(p place) { os.RemoveAll(p.keys) }, ErrKey},
		{"of another log", func(p place) {
			os.WriteFile(filepath.Join(p.keys, keyFile), otherKey, 0o600)
		}, ErrKey},
		{"of another log, all of it", func(p place) {
			os.RemoveAll(p.keys)
			os.Rename(other.keys, p.keys)
		}, ErrKey},
		{"empty", func(p place) { os.Truncate(filepath.Join(p.keys, keyFile), 0) }, ErrKey},
		{"garbled", func(p place) {
			os.WriteFile(filepath.Join(p.keys, keyFile), []byte("PRIVATE+KEY+x"), 0o600)
		}, ErrKey},
		{"readable by others", func(p place) { os.Chmod(filepath.Join(p.keys, keyFile), 0o640) },
			ErrKey},
		{"a link", func(p place) {
			os.Rename(filepath.Join(p.keys, keyFile), filepath.Join(p.keys, "k"))
			os.Symlink("k", filepath.Join(p.keys, keyFile))
		}, ErrKey},
		{"public half replaced", func(p place) {
			os.WriteFile(filepath.Join(p.log, pubFile), []byte(otherPub), 0o644)
		}, ErrKey},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newPlace(t)
			p.fill(t, 3)
			pub := p.pub(t)
			tt.harm(p)
			if l, err := Open(p.options()); !errors.Is(err, tt.want) {
				t.Errorf("open said %v", err)
				if err == nil {
					l.Close()
				}
			}
			if rep, err := Verify(p.log, pub); err != nil || rep.Records != 3 {
				// It needs no private key.
				t.Errorf("verify with the public key alone: %v, %v", rep, err)
			}
		})
	}
}

// T-534: a log verifies with its own key, and with no other.
func TestVerifyKeys(t *testing.T) {
	p, other := newPlace(t), newPlace(t)
	p.fill(t, 3)
	other.fill(t, 3)
	var f *Fault
	if _, err := Verify(p.log, other.pub(t)); !errors.As(err, &f) || f.Kind != unsigned {
		t.Errorf("with another key: %v", err)
	}
	if _, err := Verify(p.log, other.pub(t)+p.pub(t)); err != nil {
		t.Errorf("with both keys: %v", err)
	}
	for _, bad := range []string{"", "\n", "x", "a+b+c", strings.Repeat("x", 1<<20)} {
		if _, err := Verify(p.log, bad); !errors.Is(err, ErrKey) {
			t.Errorf("with key %.10q: %v", bad, err)
		}
	}
	if _, err := Verify(filepath.Join(p.log, "none"), p.pub(t)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
}

// Names that are not files must not hold the verifier up or lead it elsewhere.
func TestOddFiles(t *testing.T) {
	p := newPlace(t)
	p.fill(t, 3)
	elsewhere := filepath.Join(t.TempDir(), "x")
	os.Rename(p.segment(1), elsewhere)
	os.Symlink(elsewhere, p.segment(1))
	if _, err := p.verify(t); err == nil {
		t.Error("a segment that is a link: verify passed")
	}
	if _, err := Open(p.options()); err == nil {
		t.Error("a segment that is a link: opened")
	}
	os.Remove(p.segment(1))
	os.Mkdir(p.segment(1), 0o700)
	if _, err := p.verify(t); err == nil {
		t.Error("a segment that is a directory: verify passed")
	}
	os.Remove(p.segment(1))
	os.Rename(elsewhere, p.segment(1))
	p.mustVerify(t, 3)
	for _, name := range []string{"1.jsonl", "000000000001.jsonl.gz", "00000000000x.jsonl",
		"0000000000099.jsonl", "notes"} {
		os.WriteFile(filepath.Join(p.log, name), []byte("x"), 0o600)
	}
	p.mustVerify(t, 3) // not segments
	os.Chmod(p.log, 0o777)
	if _, err := Open(p.options()); err == nil {
		t.Error("a directory that anyone may write: opened")
	}
}
