package hostfetch

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jail-sandbox/jail/runners/wasi/guest/linear"
)

// ours are the headers that only this package sets: the host, and those about the framing of
// messages and the connection.
var ours = []string{"host", "content-length", "transfer-encoding", "connection", "keep-alive", "te",
	"trailer", "upgrade", "expect",
	"proxy-connection", "proxy-authorization"}

// requestHead returns the head of a request to a proxy. length is the length of the body; -1 is
// unknown, for a chunked body.
func requestHead(method, url, headers string, length int64) ([]byte, error) {
	scheme, rest, ok := strings.Cut(url, "://")
	host := rest
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		host = rest[:i]
	}
	switch {
	case method == "" || strings.Trim(method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") != "" ||
		method == "CONNECT":
		return nil, linear.Fail(linear.BadArgument, "the method is no upper-case name such as GET")
	case !ok || host == "" || !strings.EqualFold(scheme, "http") && !strings.EqualFold(scheme,
		"https"):
		return nil, linear.Fail(linear.BadArgument, "the URL is no http:// or https:// URL with a host")
	case strings.Contains(url, "#"):
		return nil, linear.Fail(linear.BadArgument, "the URL has a fragment, which is never sent")
	case strings.Contains(url, " ") || !plain(url) || strings.Contains(url, "\t"):
		return nil, linear.Fail(linear.BadArgument, "the URL has a byte that must be escaped")
	case length < -1:
		return nil, linear.Fail(linear.BadArgument, "the length of the body is %d", length)
	}
	out := fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: %s\r\n", method, url, host)
	for line := range strings.SplitSeq(strings.TrimSuffix(headers, "\n"), "\n") {
		line = strings.TrimSuffix(line, "\r")
		if line == "" && headers == "" {
			break
		}
		name, _, ok := strings.Cut(line, ":")
		switch {
		case !ok || name == "" || strings.ContainsAny(name, " \t") || !plain(line):
			return nil, linear.Fail(linear.BadArgument, "%.60q is no header line: it is NAME: VALUE", line)
		case slices.Contains(ours, strings.ToLower(name)):
			return nil, linear.Fail(linear.BadArgument,
				"the header %s follows from the request, and cannot be given", name)
		}
		out = append(append(out, line...), "\r\n"...)
	}
	switch {
	case length < 0:
		out = append(out, "Transfer-Encoding: chunked\r\n"...)
	case length > 0 || method == "POST" || method == "PUT" || method == "PATCH":
		out = fmt.Appendf(out, "Content-Length: %d\r\n", length)
	}
	return append(out, "Connection: close\r\n\r\n"...), nil
}

// A request and its answer.
type request struct {
	s      *stream
	method string
	// Bytes of the body still to be written; -1 for a chunked body.
	left int64
	// No more of the body can be written: it is complete, or a write has failed.
	ended bool

	// Status of the answer; 0 before the answer.
	code    int
	head    []byte
	framing framing
	// Bytes left of the answer's body or chunk; -1: the body ends with the stream.
	rest  int64
	done  bool
	begun bool // a chunk was read
}

type framing int

const (
	untilEnd framing = iota
	byLength
	byChunks
)

func (q *request) write(b []byte) error {
	switch {
	case q.ended:
		return linear.Fail(bodyClosed, "the body has ended")
	case len(b) == 0:
		return nil
	case q.left >= 0 && int64(len(b)) > q.left:
		return linear.Fail(linear.BadArgument, "the body is longer than the length that was said of it")
	}
	if q.left >= 0 {
		q.left -= int64(len(b))
		return q.send(b)
	}
	for part := range slices.Chunk(b, maxChunk) {
		if err := q.send(fmt.Appendf(nil, "%x\r\n", len(part)), part, []byte("\r\n")); err != nil {
			return err
		}
	}
	return nil
}

// maxChunk is the maximum size of a chunk of the body in bytes.
const maxChunk = 32 << 10

// send writes parts of the body. After an error it is unknown how much was sent, so no more follow.
func (q *request) send(parts ...[]byte) error {
	for _, b := range parts {
		if err := q.s.write(b); err != nil {
			q.ended = true
			return err
		}
	}
	return nil
}

// answer ends the body and reads the head of the answer. Further calls do nothing.
func (q *request) answer() error {
	if q.code != 0 {
		return nil
	}
	switch {
	case q.ended:
		// A write has failed, as when the proxy reads no more. It may have answered all the same.
	case q.left > 0:
		return linear.Fail(linear.BadArgument, "%d bytes of the body are missing", q.left)
	case q.left < 0:
		if err := q.s.write([]byte("0\r\n\r\n")); err != nil && !isClosed(err) {
			return err
		}
	}
	q.ended = true
	const mostInformational = 8
	for range mostInformational {
		code, err := q.readHead()
		if err != nil {
			return err
		}
		if code >= 200 {
			q.code = code
			return nil
		}
	}
	return linear.Fail(badAnswer, "the answer does not begin")
}

func (q *request) readHead() (int, error) {
	first, err := q.s.line(1 << 10)
	if err != nil {
		return 0, err
	}
	version, tail, _ := bytes.Cut(first, []byte(" "))
	digits, _, _ := bytes.Cut(tail, []byte(" "))
	code, err := strconv.Atoi(string(digits))
	if err != nil || len(digits) != 3 || code < 100 || code == 101 || !bytes.HasPrefix(version,
		[]byte("HTTP/1.")) {
		return 0, linear.Fail(badAnswer, "the answer is not HTTP")
	}
	q.head = append(append(q.head[:0], first...), "\r\n"...)
	q.framing, q.rest = untilEnd, -1
	for {
		line, err := q.s.line(maxHead)
		if err != nil {
			return 0, err
		}
		if len(line) == 0 {
			break
		}
		if err := q.field(line); err != nil {
			return 0, err
		}
	}
	if q.method == "HEAD" || code == 204 || code == 304 {
		q.done = true
	}
	return code, nil
}

// field handles one header line of the answer. Transfer-Encoding and the headers of the connection
// are not shown to the guest.
func (q *request) field(line []byte) error {
	name, value, ok := strings.Cut(string(line), ":")
	if !ok || name == "" {
		return linear.Fail(badAnswer, "a header of the answer has no name")
	}
	value = strings.Trim(value, " \t")
	switch strings.ToLower(name) {
	case "transfer-encoding":
		if !strings.EqualFold(value, "chunked") {
			return linear.Fail(badAnswer, "the answer is coded as %.40q", value)
		}
		q.framing, q.rest = byChunks, 0
		return nil
	case "connection", "proxy-connection", "keep-alive":
		return nil
	case "content-length":
		n, err := strconv.ParseUint(value, 10, 62)
		if err != nil {
			return linear.Fail(badAnswer, "the answer's length is no number")
		}
		if q.framing != byChunks {
			q.framing, q.rest = byLength, int64(n)
		}
	}
	if len(q.head)+len(line)+2 > maxHead {
		return linear.Fail(badAnswer, "the head of the answer is larger than %d bytes", maxHead)
	}
	q.head = append(append(q.head, line...), "\r\n"...)
	return nil
}

// read reads a part of the answer's body into b. 0 bytes are the end, unless b is empty.
func (q *request) read(b []byte) (int, error) {
	if len(b) == 0 || q.done {
		return 0, nil
	}
	if q.framing == byChunks && q.rest == 0 {
		if err := q.chunk(); err != nil || q.done {
			return 0, err
		}
	}
	if q.framing != untilEnd {
		if q.rest == 0 {
			q.done = true
			return 0, nil
		}
		b = b[:min(int64(len(b)), q.rest)]
	}
	n, err := q.s.read(b)
	if err != nil {
		return 0, err
	}
	if n == 0 {
		if q.framing != untilEnd {
			return 0, linear.Fail(cutShort, "the answer ended before its end")
		}
		q.done = true
	}
	if q.framing != untilEnd {
		q.rest -= int64(n)
	}
	return n, nil
}

// chunk reads the size line of the next chunk.
func (q *request) chunk() error {
	if q.begun {
		end, err := q.s.line(2)
		if err != nil {
			return err
		}
		if len(end) != 0 {
			return linear.Fail(badAnswer, "a chunk of the answer is longer than it says")
		}
	}
	line, err := q.s.line(1 << 10)
	if err != nil {
		return err
	}
	digits, _, _ := bytes.Cut(line, []byte(";"))
	n, err := strconv.ParseUint(string(bytes.TrimSpace(digits)), 16, 62)
	if err != nil {
		return linear.Fail(badAnswer, "a chunk of the answer has no length")
	}
	q.begun = true
	if q.rest = int64(n); n > 0 {
		return nil
	}
	// Skip the trailers.
	for {
		line, err := q.s.line(maxHead)
		if err != nil {
			return err
		}
		if len(line) == 0 {
			q.done = true
			return nil
		}
	}
}
