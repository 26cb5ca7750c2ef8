package wasi_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"testing"

	"github.com/jail-sandbox/jail/runners/wasi"
)

func TestCacheKey(t *testing.T) {
	a, b := sha256.Sum256([]byte("a")), sha256.Sum256([]byte("b"))
	keys := map[string]bool{}
	for _, k := range []string{wasi.CacheKey(a, "amd64 x"), wasi.CacheKey(b, "amd64 x"),
		wasi.CacheKey(a, "amd64 y"), wasi.CacheKey(a, "")} {
		if len(k) != 64 {
			t.Errorf("key %q", k)
		}
		keys[k] = true
	}
	if len(keys) != 4 {
		t.Errorf("%d keys of 4", len(keys))
	}
}

// T-118: flipped bytes, and two entries that changed places.
func TestSeal(t *testing.T) {
	secret := []byte("secret")
	entry := bytes.Repeat([]byte("machine code "), 100)
	seal, err := wasi.Seal(secret, "key", bytes.NewReader(entry))
	if err != nil {
		t.Fatal(err)
	}
	check := func(secret []byte, key string, entry []byte) error {
		return wasi.CheckSeal(secret, key, bytes.NewReader(entry), seal)
	}
	if err := check(secret, "key", entry); err != nil {
		t.Errorf("as it was: %v", err)
	}
	for i := range entry {
		entry[i] ^= 1
		if err := check(secret, "key", entry); !errors.Is(err, wasi.ErrSeal) {
			t.Fatalf("byte %d flipped: %v", i, err)
		}
		entry[i] ^= 1
	}
	for name, err := range map[string]error{
		"other key": check(secret, "yek", entry), "other secret": check([]byte("x"), "key", entry),
		"cut": check(secret, "key", entry[1:]),
	} {
		if !errors.Is(err, wasi.ErrSeal) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
