package modules

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/jail/launch"
)

// TestSealed: a module is kept as long as its file is the one that was verified, and those that were
// used last as far as the bound allows. Modules with the same bytes take their memory once.
func TestSealed(t *testing.T) {
	dir := t.TempDir()
	s := Sealed[string]{Most: 3*nameSize + 20}
	stampOf := func(name string) Stamp {
		stamp, err := StampOf(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return stamp
	}
	put := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := launch.SealedFile(name, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := s.Put(name, stampOf(name), sha256.Sum256([]byte(text)), f, text); err != nil {
			t.Fatal(err)
		}
	}
	kept := func(name string) bool {
		text, f, ok := s.Get(name, stampOf(name))
		if ok {
			defer f.Close()
			got := make([]byte, len(text))
			if n, err := f.ReadAt(got, 0); err != nil || string(got[:n]) != text {
				t.Errorf("%s: %q, %v", name, got[:n], err)
			}
		}
		return ok
	}
	put("a", "12345678")
	put("b", "abcdefgh")
	if !kept("a") || !kept("b") || !kept("a") {
		t.Error("a module within the bound is not kept")
	}
	put("c", "ABCDEFGH")
	if kept("b") || !kept("a") || !kept("c") {
		t.Error("not the module was forgotten whose last use is the oldest")
	}
	if f, ok := s.BySum(sha256.Sum256([]byte("ABCDEFGH"))); ok {
		f.Close()
	} else {
		t.Error("a module that is kept is not found by its digest")
	}
	put("d", "12345678")
	if !kept("a") || !kept("c") || !kept("d") {
		t.Error("a module whose bytes are kept by another name has taken room")
	}
	if s.all["a"].file != s.all["d"].file {
		t.Error("two modules with the same bytes have two memory files")
	}
	if err := os.Chtimes(filepath.Join(dir, "a"), time.Now(), time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if kept("a") {
		t.Error("a module whose file has changed is kept")
	}
	if !kept("d") {
		t.Error("a module is forgotten with another one that had the same bytes")
	}
	if now := (Stamp{ctime: syscall.NsecToTimespec(time.Now().UnixNano())}); now.Settled() {
		t.Error("a file that was changed just now is settled")
	}
	if old := (Stamp{}); !old.Settled() {
		t.Error("a file that was changed long ago is not settled")
	}
}
