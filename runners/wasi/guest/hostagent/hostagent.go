// Package hostagent implements the host functions with which an agent's module calls its bindings
// (docs/agent-abi.md). It does not depend on a WebAssembly engine: linear memory is a byte slice.
package hostagent

import (
	"bytes"
	"errors"
	"io"
	"time"

	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/runners/wasi/guest/linear"
)

// Bounds of the arguments of these functions.
const (
	maxAnswers = 16 // open at one time
	maxMethod  = agent.MaxName
)

// broken is EIO: reading the answer failed.
const broken linear.Errno = 29

// Host answers the calls of the functions.
type Host interface {
	// Ask calls a method of a binding. The caller closes the answer.
	Ask(binding, method string, params []byte) io.ReadCloser
	// Await returns what comes next for the guest, such as a wake, an event or a sleep, as JSON. It
	// waits for at most d.
	Await(d time.Duration) []byte
}

// Answers holds the open answers of one guest. It is for one goroutine.
type Answers struct {
	host Host
	all  [maxAnswers]io.ReadCloser
	last linear.LastError
}

// New returns the Answers of a guest whose calls host answers.
func New(host Host) *Answers { return &Answers{host: host} }

// Close closes all open answers.
func (s *Answers) Close() {
	for i, a := range s.all {
		if a != nil {
			// The guest is gone, so nobody needs the error.
			_ = a.Close()
			s.all[i] = nil
		}
	}
}

// A Call is one host function of a binding. mem is the linear memory, a the parameters, 64 bits
// each.
type Call func(s *Answers, binding string, mem []byte, a []uint64) error

// Lookup returns the host function with this name, or nil.
func Lookup(name string) Call { return calls[name] }

var calls = map[string]Call{"call": call, "close": closeAnswer, "error": lastError, "read": read,
	"wait": wait}

// Do calls c and returns its error number. It keeps the error's text for lastError.
func (s *Answers) Do(c Call, binding string, mem []byte, a []uint64) linear.Errno {
	return s.last.Keep(c(s, binding, mem, a), broken)
}

// put opens an answer and writes its handle to address ptr of mem.
func (s *Answers) put(mem []byte, ptr uint64, open func() io.ReadCloser) error {
	if _, err := linear.At(mem, ptr, 4); err != nil {
		return err
	}
	for i, a := range s.all {
		if a == nil {
			s.all[i] = open()
			return linear.PutU32(mem, ptr, uint32(i))
		}
	}
	return linear.Fail(linear.TooMany, "%d answers are open already: close one", maxAnswers)
}

func call(s *Answers, binding string, mem []byte, a []uint64) error {
	method, err := linear.Text(mem, a[0], a[1], "method", maxMethod)
	if err != nil {
		return err
	}
	params, err := linear.Text(mem, a[2], a[3], "list of parameters",
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
		return linear.Fail(linear.BadHandle, "there is no answer %d", h)
	}
	to, err := linear.At(mem, a[1], a[2])
	if err != nil {
		return err
	}
	if _, err := linear.At(mem, a[3], 4); err != nil {
		return err
	}
	n := 0
	if len(to) > 0 {
		if n, err = s.all[h].Read(to); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
	}
	return linear.PutU32(mem, a[3], uint32(n))
}

func closeAnswer(s *Answers, _ string, _ []byte, a []uint64) error {
	h := uint32(a[0])
	if h >= maxAnswers || s.all[h] == nil {
		return linear.Fail(linear.BadHandle, "there is no answer %d", h)
	}
	err := s.all[h].Close()
	s.all[h] = nil
	return err
}

// lastError copies the text of the last error to the guest's buffer, cut to fit, and its full
// length.
func lastError(s *Answers, _ string, mem []byte, a []uint64) error {
	return s.last.Put(mem, a[0], a[1], a[2])
}
