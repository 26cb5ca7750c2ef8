package wasi

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
)

// Engine names the engine and everything about how it is asked to compile that
// changes the machine code. Change it whenever guest's configuration changes.
const Engine = "wazero v1.12.0 compiler; no debug info; no termination checks; core 2, " +
	"extended-const, tail-call, exceptions; named by the hollow module 2"

// ErrSeal is returned for a compiled module that does not match its seal.
var ErrSeal = errors.New("compiled module does not match its seal")

// CacheKey names the directory of a module's compiled form: 64 hexadecimal digits over the digest
// of the module, the engine and its flags, and the machine (as the caller describes it:
// architecture and CPU features). Each module has a directory of its own, which holds one entry, so
// that an entry can be found, mounted and thrown away without knowing how the engine names it.
func CacheKey(module [sha256.Size]byte, machine string) string {
	h := sha256.New()
	for _, part := range []string{"jail wasi cache 2", string(module[:]), Engine, machine} {
		// A hash takes every write.
		_ = binary.Write(h, binary.BigEndian, uint64(len(part)))
		io.WriteString(h, part)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Interruptible returns the digest to use in CacheKey for the interruptible machine code of a
// module; see runners.ModuleLimits.
func Interruptible(module [sha256.Size]byte) [sha256.Size]byte {
	return sha256.Sum256(append([]byte("interruptible "), module[:]...))
}

// Seal returns a MAC over a cache entry and its cache key. An entry is machine code, so it is used
// only if its seal, made with the daemon's secret, is valid.
func Seal(secret []byte, cacheKey string, entry io.Reader) ([]byte, error) {
	h := hmac.New(sha256.New, secret)
	_ = binary.Write(h, binary.BigEndian, uint64(len(cacheKey)))
	io.WriteString(h, cacheKey)
	if _, err := io.Copy(h, entry); err != nil {
		return nil, err
	}
	return h.Sum(nil), nil
}

// CheckSeal returns ErrSeal unless seal is the Seal of the entry.
func CheckSeal(secret []byte, cacheKey string, entry io.Reader, seal []byte) error {
	want, err := Seal(secret, cacheKey, entry)
	if err != nil {
		return err
	}
	if !hmac.Equal(want, seal) {
		return ErrSeal
	}
	return nil
}
