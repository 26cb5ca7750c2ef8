// Package hostfetch implements the host functions by which a guest without sockets fetches
// (docs/fetch-abi.md). Each request is plain HTTP over a stream to the fetch proxy, as a guest with
// sockets would write it, so the package makes no decision and bypasses none. It knows linear
// memory as bytes and no engine.
package hostfetch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jail-sandbox/jail/runners"
)

// Bounds of the arguments of these functions.
const (
	maxRequests = 16       // open at one time
	maxMethod   = 32       // bytes
	maxURL      = 16 << 10 // bytes
	// bytes of a request's, all lines together
	maxHeaders = 60 << 10
	// Bytes of an answer's status line and headers.
	maxHead = 512 << 10
	// Bytes of an error's text.
	maxError = 500
)

// Errno is an error number, the same as preview 1 has.
type Errno uint16

// The numbers that these functions return.
const (
	success   Errno = 0
	badHandle Errno = 8 // EBADF
	// ECONNREFUSED: the proxy gives no stream
	noStream Errno = 14
	// ECONNRESET: the answer ended before its end
	cutShort    Errno = 15
	badPointer  Errno = 21 // EFAULT
	badArgument Errno = 28 // EINVAL
	tooMany     Errno = 33 // EMFILE
	// ENOTSUP: the policy grants no fetch
	noFetch Errno = 58
	// EPIPE: the proxy reads no more of the body; call status.
	bodyClosed Errno = 64
	badAnswer  Errno = 65 // EPROTO
	timedOut   Errno = 73 // ETIMEDOUT
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

// Requests are those that one guest has open. They are for one goroutine.
type Requests struct {
	dial func() (*os.File, error)
	all  [maxRequests]*request
	// Words of the last error.
	last string
}

// New makes the functions of a guest; dial opens a stream to the proxy, and is nil where there is
// none.
func New(dial func() (*os.File, error)) *Requests { return &Requests{dial: dial} }

// Close ends every request that the guest left open.
func (r *Requests) Close() {
	for i, q := range r.all {
		if q != nil {
			q.s.close()
			r.all[i] = nil
		}
	}
}

// Call is one function. mem is all of linear memory; a holds the parameters as the engine has them,
// each in 64 bits.
type Call func(r *Requests, mem []byte, a []uint64) error

// Lookup returns the function of that name, or nil.
func Lookup(name string) Call {
	switch name {
	case "close":
		return closeRequest
	case "error":
		return lastError
	case "head":
		return head
	case "open":
		return open
	case "read":
		return read
	case "status":
		return status
	case "write":
		return write
	}
	return nil
}

// Do makes a call of the guest, and keeps the words of its error for it.
func (r *Requests) Do(c Call, mem []byte, a []uint64) Errno {
	err := c(r, mem, a)
	if err == nil {
		return success
	}
	f := &fault{badAnswer, err.Error()}
	_ = errors.As(err, &f)
	r.last = runners.Printable(f.text, maxError)
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

func (r *Requests) get(handle uint64) (*request, error) {
	h := uint32(handle)
	if h >= maxRequests || r.all[h] == nil {
		return nil, fail(badHandle, "there is no request %d", h)
	}
	return r.all[h], nil
}

func open(r *Requests, mem []byte, a []uint64) error {
	method, err := text(mem, a[0], a[1], "method", maxMethod)
	if err != nil {
		return err
	}
	url, err := text(mem, a[2], a[3], "URL", maxURL)
	if err != nil {
		return err
	}
	headers, err := text(mem, a[4], a[5], "list of headers", maxHeaders)
	if err != nil {
		return err
	}
	if _, err := at(mem, a[8], 4); err != nil {
		return err
	}
	first, err := requestHead(method, url, headers, int64(a[6]))
	if err != nil {
		return err
	}
	if r.dial == nil {
		return fail(noFetch, "the policy grants no fetch")
	}
	free := -1
	for i, q := range r.all {
		if q == nil {
			free = i
			break
		}
	}
	if free < 0 {
		return fail(tooMany, "%d requests are open already: close one", maxRequests)
	}
	s, err := r.stream(uint32(a[7]))
	if err != nil {
		return err
	}
	q := &request{s: s, method: method, left: int64(a[6])}
	// The proxy's response up to then counts.
	if err := s.write(first); err != nil && !isClosed(err) {
		s.close()
		return err
	}
	r.all[free] = q
	return putU32(mem, a[8], uint32(free))
}

// stream opens a stream that is used for so many milliseconds; 0 is as long as the run lasts.
func (r *Requests) stream(ms uint32) (*stream, error) {
	var until time.Time
	if ms > 0 {
		until = time.Now().Add(time.Duration(ms) * time.Millisecond)
	}
	f, err := r.dial()
	if err != nil {
		return nil, fail(noStream, "%v", err)
	}
	return newStream(f, until)
}

func write(r *Requests, mem []byte, a []uint64) error {
	q, err := r.get(a[0])
	if err != nil {
		return err
	}
	b, err := at(mem, a[1], a[2])
	if err != nil {
		return err
	}
	return q.write(b)
}

func status(r *Requests, mem []byte, a []uint64) error {
	q, err := r.get(a[0])
	if err != nil {
		return err
	}
	if _, err := at(mem, a[1], 4); err != nil {
		return err
	}
	if err := q.answer(); err != nil {
		return err
	}
	return putU32(mem, a[1], uint32(q.code))
}

func head(r *Requests, mem []byte, a []uint64) error {
	q, err := r.get(a[0])
	if err != nil {
		return err
	}
	if q.code == 0 {
		return fail(badArgument, "the request has no answer yet: ask for the status first")
	}
	return put(mem, a[1], a[2], a[3], q.head)
}

func lastError(r *Requests, mem []byte, a []uint64) error {
	return put(mem, a[0], a[1], a[2], []byte(r.last))
}

// put copies as much of a text as fits, and returns its full length.
func put(mem []byte, ptr, n, total uint64, b []byte) error {
	to, err := at(mem, ptr, n)
	if err != nil {
		return err
	}
	if _, err := at(mem, total, 4); err != nil {
		return err
	}
	copy(to, b)
	return putU32(mem, total, uint32(len(b)))
}

func read(r *Requests, mem []byte, a []uint64) error {
	q, err := r.get(a[0])
	if err != nil {
		return err
	}
	b, err := at(mem, a[1], a[2])
	if err != nil {
		return err
	}
	if _, err := at(mem, a[3], 4); err != nil {
		return err
	}
	if q.code == 0 {
		return fail(badArgument, "the request has no answer yet: ask for the status first")
	}
	n, err := q.read(b)
	if err != nil {
		return err
	}
	return putU32(mem, a[3], uint32(n))
}

func closeRequest(r *Requests, _ []byte, a []uint64) error {
	q, err := r.get(a[0])
	if err != nil {
		return err
	}
	r.all[uint32(a[0])] = nil
	q.s.close()
	return nil
}

// plain reports whether a text can stand in a line of a request.
func plain(s string) bool {
	return !bytes.ContainsFunc([]byte(s), func(c rune) bool {
		return c < ' ' && c != '\t' || c == 0x7f
	})
}
