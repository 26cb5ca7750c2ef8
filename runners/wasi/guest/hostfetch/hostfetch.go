// Package hostfetch implements the host functions by which a guest without sockets fetches
// (docs/fetch-abi.md). Each request is plain HTTP over a stream to the fetch proxy, as a guest with
// sockets would write it, so the package decides nothing. It does not depend on the engine: linear
// memory is a byte slice.
package hostfetch

import (
	"bytes"
	"os"
	"time"

	"github.com/jail-sandbox/jail/runners/wasi/guest/linear"
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
)

// Error numbers of these functions besides those of package linear.
const (
	// ECONNREFUSED: the proxy gives no stream
	noStream linear.Errno = 14
	// ECONNRESET: the answer ended before its end
	cutShort linear.Errno = 15
	// ENOTSUP: the policy grants no fetch
	noFetch linear.Errno = 58
	// EPIPE: the proxy reads no more of the body; call status.
	bodyClosed linear.Errno = 64
	badAnswer  linear.Errno = 65 // EPROTO
	timedOut   linear.Errno = 73 // ETIMEDOUT
)

// Requests holds the open requests of one guest. It is for one goroutine.
type Requests struct {
	dial func() (*os.File, error)
	all  [maxRequests]*request
	last linear.LastError
}

// New returns the Requests of a guest. dial opens a stream to the proxy; it is nil if there is
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
func Lookup(name string) Call { return calls[name] }

var calls = map[string]Call{
	"close":  on(closeRequest),
	"error":  lastError,
	"head":   on(head),
	"open":   open,
	"read":   on(read),
	"status": on(status),
	"write":  on(write),
}

// on returns the Call that looks up the request of its first parameter and calls call with it.
func on(call func(r *Requests, q *request, mem []byte, a []uint64) error) Call {
	return func(r *Requests, mem []byte, a []uint64) error {
		h := uint32(a[0])
		if h >= maxRequests || r.all[h] == nil {
			return linear.Fail(linear.BadHandle, "there is no request %d", h)
		}
		return call(r, r.all[h], mem, a)
	}
}

// Do makes a call of the guest and returns its error number. It keeps the error's text for
// last_error.
func (r *Requests) Do(c Call, mem []byte, a []uint64) linear.Errno {
	return r.last.Keep(c(r, mem, a), badAnswer)
}

func open(r *Requests, mem []byte, a []uint64) error {
	method, err := linear.Text(mem, a[0], a[1], "method", maxMethod)
	if err != nil {
		return err
	}
	url, err := linear.Text(mem, a[2], a[3], "URL", maxURL)
	if err != nil {
		return err
	}
	headers, err := linear.Text(mem, a[4], a[5], "list of headers", maxHeaders)
	if err != nil {
		return err
	}
	if _, err := linear.At(mem, a[8], 4); err != nil {
		return err
	}
	first, err := requestHead(method, url, headers, int64(a[6]))
	if err != nil {
		return err
	}
	if r.dial == nil {
		return linear.Fail(noFetch, "the policy grants no fetch")
	}
	free := -1
	for i, q := range r.all {
		if q == nil {
			free = i
			break
		}
	}
	if free < 0 {
		return linear.Fail(linear.TooMany, "%d requests are open already: close one", maxRequests)
	}
	s, err := r.stream(uint32(a[7]))
	if err != nil {
		return err
	}
	q := &request{s: s, method: method, left: int64(a[6])}
	// The proxy may have responded before it closed the stream.
	if err := s.write(first); err != nil && !isClosed(err) {
		s.close()
		return err
	}
	r.all[free] = q
	return linear.PutU32(mem, a[8], uint32(free))
}

// stream opens a stream with a deadline in ms milliseconds; 0 is no deadline.
func (r *Requests) stream(ms uint32) (*stream, error) {
	var until time.Time
	if ms > 0 {
		until = time.Now().Add(time.Duration(ms) * time.Millisecond)
	}
	f, err := r.dial()
	if err != nil {
		return nil, linear.Fail(noStream, "%v", err)
	}
	return newStream(f, until)
}

func write(_ *Requests, q *request, mem []byte, a []uint64) error {
	b, err := linear.At(mem, a[1], a[2])
	if err != nil {
		return err
	}
	return q.write(b)
}

func status(_ *Requests, q *request, mem []byte, a []uint64) error {
	if _, err := linear.At(mem, a[1], 4); err != nil {
		return err
	}
	if err := q.answer(); err != nil {
		return err
	}
	return linear.PutU32(mem, a[1], uint32(q.code))
}

func head(_ *Requests, q *request, mem []byte, a []uint64) error {
	if q.code == 0 {
		return linear.Fail(linear.BadArgument, "the request has no answer yet: ask for the status first")
	}
	return linear.Put(mem, a[1], a[2], a[3], q.head)
}

func lastError(r *Requests, mem []byte, a []uint64) error {
	return r.last.Put(mem, a[0], a[1], a[2])
}

func read(_ *Requests, q *request, mem []byte, a []uint64) error {
	b, err := linear.At(mem, a[1], a[2])
	if err != nil {
		return err
	}
	if _, err := linear.At(mem, a[3], 4); err != nil {
		return err
	}
	if q.code == 0 {
		return linear.Fail(linear.BadArgument, "the request has no answer yet: ask for the status first")
	}
	n, err := q.read(b)
	if err != nil {
		return err
	}
	return linear.PutU32(mem, a[3], uint32(n))
}

func closeRequest(r *Requests, q *request, _ []byte, a []uint64) error {
	r.all[uint32(a[0])] = nil
	q.s.close()
	return nil
}

// plain reports whether s can be part of a request line or header line.
func plain(s string) bool {
	return !bytes.ContainsFunc([]byte(s), func(c rune) bool {
		return c < ' ' && c != '\t' || c == 0x7f
	})
}
