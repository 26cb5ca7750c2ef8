// Package linear gives host functions checked access to the linear memory of their guest, which
// chooses each pointer and length, and keeps the text of the guest's last error.
package linear

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/jail-sandbox/jail/runners"
)

// Errno is an error number, the same as preview 1 has.
type Errno uint16

// The numbers that host functions of more than one module return.
const (
	Success     Errno = 0
	BadHandle   Errno = 8  // EBADF
	BadPointer  Errno = 21 // EFAULT
	BadArgument Errno = 28 // EINVAL
	TooMany     Errno = 33 // EMFILE
)

// fault is an error with its number and its text.
type fault struct {
	errno Errno
	text  string
}

func (f *fault) Error() string { return f.text }

// Fail returns an error with the number e and a text for the guest.
func Fail(e Errno, format string, args ...any) error {
	return &fault{e, fmt.Sprintf(format, args...)}
}

// Has reports whether err is from Fail with the number e.
func Has(err error, e Errno) bool {
	var f *fault
	return errors.As(err, &f) && f.errno == e
}

// MaxError is the maximum length of an error's text in bytes.
const MaxError = 500

// LastError is the text of the last error of a guest, of at most 500 bytes.
type LastError struct{ text string }

// Keep keeps the text of err and returns its number. An error that Fail did not make has the
// number other. Without an error Keep returns Success, and keeps the text that it has.
func (l *LastError) Keep(err error, other Errno) Errno {
	if err == nil {
		return Success
	}
	f := &fault{other, err.Error()}
	_ = errors.As(err, &f)
	l.text = runners.Printable(f.text, MaxError)
	return f.errno
}

// Put writes the text to memory with the function Put.
func (l *LastError) Put(mem []byte, ptr, n, total uint64) error {
	return Put(mem, ptr, n, total, []byte(l.text))
}

// At returns the n bytes of memory at ptr. It uses the lower 32 bits of both. The error is
// BadPointer if they are not all in the memory.
func At(mem []byte, ptr, n uint64) ([]byte, error) {
	p, l := uint64(uint32(ptr)), uint64(uint32(n))
	if p+l > uint64(len(mem)) {
		return nil, Fail(BadPointer, "a pointer leads out of memory")
	}
	return mem[p : p+l : p+l], nil
}

// PutU32 writes v, little-endian, to ptr.
func PutU32(mem []byte, ptr uint64, v uint32) error {
	b, err := At(mem, ptr, 4)
	if err == nil {
		binary.LittleEndian.PutUint32(b, v)
	}
	return err
}

// Put copies as much of b as fits into n bytes at ptr, and writes the length of b to total.
func Put(mem []byte, ptr, n, total uint64, b []byte) error {
	to, err := At(mem, ptr, n)
	if err != nil {
		return err
	}
	if _, err := At(mem, total, 4); err != nil {
		return err
	}
	copy(to, b)
	return PutU32(mem, total, uint32(len(b)))
}

// Text returns a copy of the n bytes at ptr, so that the guest cannot change them while they are
// used. The error is BadArgument if they are more than most; what names the argument.
func Text(mem []byte, ptr, n uint64, what string, most int) (string, error) {
	b, err := At(mem, ptr, n)
	if err == nil && len(b) > most {
		err = Fail(BadArgument, "the %s has %d bytes, more than %d", what, len(b), most)
	}
	return string(b[:min(len(b), most)]), err
}
