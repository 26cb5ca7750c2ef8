// Package hostagent implements the host functions by which the guest of an agent calls its bindings
// (docs/agent-abi.md). It knows linear memory as bytes and no engine, and of the agent only what it
// is given.
package hostagent

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/runners/agent"
)

// Bounds of the arguments of these functions.
const (
	maxAnswers = 16 // open at one time
	maxMethod  = agent.MaxName
	// Bytes of an error's text.
	maxError = 500
)

// Errno is an error number, the same as preview 1 has.
type Errno uint16

// The numbers that these functions return.
const (
	success     Errno = 0
	badHandle   Errno = 8  // EBADF
	badPointer  Errno = 21 // EFAULT
	badArgument Errno = 28 // EINVAL
	// EIO: the answer cannot be read any further
	broken  Errno = 29
	tooMany Errno = 33 // EMFILE
)

// fault is an error with its number and its text.
type fault struct {
	errno Errno
	text  string
}

func (f *fault) Error() string { return f.text }

func fail(e Errno, format string, args ...any) error {
	return &fault{e, fmt.Sprintf(format, args...)}
}

// Host is what the functions call.
type Host interface {
	// Ask makes a call of a binding. The answer is read to its end, or closed.
	Ask(binding, method string, params []byte) io.ReadCloser
	// Await returns what comes next, as JSON, and waits for it at most d.
	Await(d time.Duration) []byte
}

// Answers are those that one guest has open. They are for one goroutine.
type Answers struct {
	host Host
	all  [maxAnswers]io.ReadCloser
	// Words of the last error.
	last string
}

// New makes the functions of a guest of host.
func New(host Host) *Answers { return &Answers{host: host} }

// Close closes what the guest left open.
func (s *Answers) Close() {
	for i, a := range s.all {
		if a != nil {
			// The guest is gone: there is nobody to tell.
			_ = a.Close()
			s.all[i] = nil
		}
	}
}

// A Call is one function of a binding. mem is all of linear memory; a holds the parameters as the
// engine has them, each in 64 bits.
type Call func(s *Answers, binding string, mem []byte, a []uint64) error

// Lookup returns the function of that name, or nil.
func Lookup(name string) Call {
	switch name {
	case "call":
		return call
	case "close":
		return closeAnswer
	case "error":
		return lastError
	case "read":
		return read
	case "wait":
		return wait
	}
	return nil
}

// Do makes a call of the guest, and keeps the words of its error for it.
func (s *Answers) Do(c Call, binding string, mem []byte, a []uint64) Errno {
	err := c(s, binding, mem, a)
	if err == nil {
		return success
	}
	f := &fault{broken, err.Error()}
	_ = errors.As(err, &f)
	s.last = runners.Printable(f.text, maxError)
	return f.errno
}

// at returns n bytes of memory at ptr.
func at(mem []byte, ptr, n uint64) ([]byte, error) {
	p, l := uint64(uint32(ptr)), uint64(uint32(n))
	if p+l > uint64(len(mem)) {
		return nil, fail(badPointer, "a pointer leads out of memory")
	}
	return mem[p : p+l : p+l], nil
}

func putU32(mem []byte, ptr uint64, v uint32) error {
	b, err := at(mem, ptr, 4)
	if err == nil {
		binary.LittleEndian.PutUint32(b, v)
	}
	return err
}

// text copies an argument, so that it cannot change while it is used.
func text(mem []byte, ptr, n uint64, what string, most int) (string, error) {
	b, err := at(mem, ptr, n)
	if err == nil && len(b) > most {
		err = fail(badArgument, "the %s has %d bytes, more than %d", what, len(b), most)
	}
	return string(b[:min(len(b), most)]), err
}

// put opens an answer and writes its handle to ptr.
func (s *Answers) put(mem []byte, ptr uint64, open func() io.ReadCloser) error {
	if _, err := at(mem, ptr, 4); err != nil {
		return err
	}
	for i, a := range s.all {
		if a == nil {
			s.all[i] = open()
			return putU32(mem, ptr, uint32(i))
		}
	}
	return fail(tooMany, "%d answers are open already: close one", maxAnswers)
}

func call(s *Answers, binding string, mem []byte, a []uint64) error {
	method, err := text(mem, a[0], a[1], "method", maxMethod)
	if err != nil {
		return err
	}
	params, err := text(mem, a[2], a[3], "list of parameters",
		agent.MaxParamsOf(binding, method))
	if err != nil {
		return err
	}
	return s.put(mem, a[4], func() io.ReadCloser {
		return s.host.Ask(binding, method, []byte(params))
	})
}

func wait(s *Answers, _ string, mem []byte, a []uint64) error {
	d := time.Duration(uint32(a[0])) * time.Millisecond
	return s.put(mem, a[1], func() io.ReadCloser { return io.NopCloser(bytes.NewReader(s.host.Await(d))) })
}

func read(s *Answers, _ string, mem []byte, a []uint64) error {
	h := uint32(a[0])
	if h >= maxAnswers || s.all[h] == nil {
		return fail(badHandle, "there is no answer %d", h)
	}
	to, err := at(mem, a[1], a[2])
	if err != nil {
		return err
	}
	if _, err := at(mem, a[3], 4); err != nil {
		return err
	}
	n := 0
	if len(to) > 0 {
		if n, err = s.all[h].Read(to); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
	}
	return putU32(mem, a[3], uint32(n))
}

func closeAnswer(s *Answers, _ string, _ []byte, a []uint64) error {
	h := uint32(a[0])
	if h >= maxAnswers || s.all[h] == nil {
		return fail(badHandle, "there is no answer %d", h)
	}
	err := s.all[h].Close()
	s.all[h] = nil
	return err
}

// lastError copies as much of the text of the last error as fits, and returns its full length.
func lastError(s *Answers, _ string, mem []byte, a []uint64) error {
	to, err := at(mem, a[0], a[1])
	if err != nil {
		return err
	}
	if _, err := at(mem, a[2], 4); err != nil {
		return err
	}
	copy(to, s.last)
	return putU32(mem, a[2], uint32(len(s.last)))
}
