package fetch

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Bounds of a request's head.
const (
	maxHead    = 64 << 10 // bytes
	maxHeaders = 256      // lines
	maxLength  = 18       // digits of a Content-Length
)

// field is one header line. Order and repetitions are kept.
type field struct{ name, value string }

// fields are the header lines of one message, in order.
type fields []field

// get returns the values of all lines with this name, without regard to case.
func (f fields) get(name string) (out []string) {
	for _, h := range f {
		if strings.EqualFold(h.name, name) {
			out = append(out, h.value)
		}
	}
	return out
}

// tokens returns the members of a comma-separated header, in lower case.
func (f fields) tokens(name string) (out []string) {
	for _, v := range f.get(name) {
		for part := range strings.SplitSeq(v, ",") {
			if part = strings.ToLower(strings.Trim(part, " \t")); part != "" {
				out = append(out, part)
			}
		}
	}
	return out
}

// head is the head of a request as read.
type head struct {
	method  string
	target  string
	minor   int // of HTTP/1
	headers fields
	// length is the length of the body in bytes; -1 for a chunked body.
	length int64
	// close: the client will send no further request on this stream.
	close bool
	// expects: the client waits for 100 Continue before it sends the body.
	expects bool
}

var (
	errHeadTooLarge = bad("the head of the request is larger than %d bytes or %d lines", maxHead,
		maxHeaders)
	errNoRequest = errors.New("no further request")
)

// readHead reads the head of a request and rejects anything ambiguous in it. The error is
// errNoRequest if the stream ends before a request, and a *badTarget for an invalid one.
func readHead(r *bufio.Reader) (*head, error) {
	raw, err := readRawHead(r)
	if err != nil {
		return nil, err
	}
	lines := bytes.Split(raw[:len(raw)-4], []byte("\r\n"))
	if len(lines) > maxHeaders {
		return nil, errHeadTooLarge
	}
	h := &head{}
	if err := h.requestLine(string(lines[0])); err != nil {
		return nil, err
	}
	for _, line := range lines[1:] {
		f, err := parseField(line)
		if err != nil {
			return nil, err
		}
		h.headers = append(h.headers, f)
	}
	return h, h.framing()
}

// readRawHead returns the bytes of a head with its empty line. Lines must end with CR LF.
func readRawHead(r *bufio.Reader) ([]byte, error) {
	var raw []byte
	for {
		line, err := r.ReadSlice('\n')
		raw = append(raw, line...)
		switch {
		case len(raw) > maxHead:
			return nil, errHeadTooLarge
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && len(raw) == 0:
			return nil, errNoRequest
		case err != nil:
			return nil, err
		case !bytes.HasSuffix(raw, []byte("\r\n")):
			return nil, bad("a line ends without CR LF")
		case len(raw) == 2:
			return nil, bad("the request starts with an empty line")
		case bytes.HasSuffix(raw, []byte("\r\n\r\n")):
			return raw, nil
		}
	}
}

func (h *head) requestLine(line string) error {
	parts := strings.Split(line, " ")
	if len(parts) != 3 {
		return bad("the request line is not METHOD URL HTTP/1.1")
	}
	h.method, h.target = parts[0], parts[1]
	switch parts[2] {
	case "HTTP/1.1":
		h.minor = 1
	case "HTTP/1.0":
		h.minor, h.close = 0, true
	default:
		return bad("the version is neither HTTP/1.1 nor HTTP/1.0")
	}
	for i := range len(h.target) {
		if c := h.target[i]; c <= ' ' || c >= 0x7f {
			return bad("the URL has a byte that must be escaped")
		}
	}
	return checkMethodToken(h.method)
}

// lookalikes are headers that determine where a message ends or who sends it. Some servers read a
// name with underscores as one of them.
var lookalikes = []string{"content-length", "transfer-encoding", "host", "connection", "te",
	"trailer", "upgrade", "expect", "authorization",
	"proxy-authorization", "cookie", "keep-alive"}

func parseField(line []byte) (field, error) {
	name, value, ok := bytes.Cut(line, []byte(":"))
	if !ok || len(name) == 0 {
		return field{}, bad("a header line has no name and colon")
	}
	for _, c := range name {
		if !tokenByte(c) {
			return field{}, bad("the name of a header has %q in it", string(rune(c)))
		}
	}
	value = bytes.Trim(value, " \t")
	for _, c := range value {
		if c != '\t' && (c < ' ' || c >= 0x7f) {
			return field{}, bad("the value of the header %s has a byte that is no plain text", name)
		}
	}
	f := field{string(name), string(value)}
	if strings.Contains(f.name, "_") {
		if l := dashed(f.name); slices.Contains(lookalikes, l) {
			return field{}, bad("the header %s looks like %s and is not", f.name, l)
		}
	}
	return f, nil
}

func tokenByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

// framing sets the length of the body. Headers that do not state it in exactly one way are an
// error.
func (h *head) framing() error {
	te, cl := h.headers.get("transfer-encoding"), h.headers.get("content-length")
	switch {
	case len(h.headers.get("host")) > 1:
		return bad("the request has more than one Host")
	case h.minor == 1 && len(h.headers.get("host")) == 0:
		return bad("the request has no Host")
	case len(te) > 0 && len(cl) > 0:
		return bad("the request has both Content-Length and Transfer-Encoding")
	case len(te) > 1 || len(cl) > 1:
		return bad("the length of the body is said twice")
	case len(te) == 1 && h.minor == 0:
		return bad("HTTP/1.0 has no Transfer-Encoding")
	case len(te) == 1 && !strings.EqualFold(te[0], "chunked"):
		return bad("Transfer-Encoding is not exactly chunked")
	case len(h.headers.get("trailer")) > 0:
		return bad("the request announces trailers, which are never sent on")
	case len(te) == 1:
		h.length = -1
	case len(cl) == 1:
		if cl[0] == "" || len(cl[0]) > maxLength || strings.Trim(cl[0], "0123456789") != "" {
			return bad("Content-Length is not a number")
		}
		// 18 digits always fit.
		h.length, _ = strconv.ParseInt(cl[0], 10, 64)
	}
	switch h.method {
	case "GET", "HEAD", "OPTIONS", "CONNECT":
		if h.length != 0 {
			return bad("%s has a body, which servers read in different ways", h.method)
		}
	}
	for _, token := range append(h.headers.tokens("connection"),
		h.headers.tokens("proxy-connection")...) {
		h.close = h.close || token == "close"
	}
	for _, e := range h.headers.get("expect") {
		if !strings.EqualFold(e, "100-continue") {
			return bad("Expect is not 100-continue")
		}
		h.expects = h.minor == 1 && h.length != 0
	}
	return nil
}

// chunked reads a chunked body. It accepts only what all servers read alike: no extensions, no
// trailers, CR LF after each line.
type chunked struct {
	r *bufio.Reader
	// left is the number of bytes left in the current chunk.
	left int64
	done bool
	err  error
}

var errChunk = bad("the chunks of the body are not plain chunks")

// maxChunkDigits bounds the digits of a chunk's size.
const maxChunkDigits = 8

func (c *chunked) Read(p []byte) (int, error) {
	if c.err == nil && c.left == 0 && !c.done {
		c.err = c.next()
	}
	switch {
	case c.err != nil:
		return 0, c.err
	case c.done:
		return 0, io.EOF
	}
	n, err := c.r.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	if c.left == 0 && err == nil {
		err = c.expect("\r\n")
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	c.err = err
	return n, err
}

func (c *chunked) next() error {
	line, err := c.line()
	if err != nil {
		return err
	}
	if line == "" || len(line) > maxChunkDigits || strings.Trim(line,
		"0123456789abcdefABCDEF") != "" {
		return errChunk
	}
	// Eight digits always fit.
	c.left, _ = strconv.ParseInt(line, 16, 64)
	if c.left == 0 {
		c.done = true
		return c.expect("\r\n")
	}
	return nil
}

// line reads one line and returns it without its CR LF.
func (c *chunked) line() (string, error) {
	var out []byte
	for {
		b, err := c.r.ReadByte()
		if err != nil {
			return "", noEOF(err)
		}
		if b == '\r' {
			if b, err = c.r.ReadByte(); err != nil {
				return "", noEOF(err)
			}
			if b != '\n' {
				return "", errChunk
			}
			return string(out), nil
		}
		if out = append(out, b); len(out) > maxChunkDigits {
			return "", errChunk
		}
	}
}

func (c *chunked) expect(text string) error {
	for i := range len(text) {
		b, err := c.r.ReadByte()
		if err != nil {
			return noEOF(err)
		}
		if b != text[i] {
			return errChunk
		}
	}
	return nil
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// dashed returns a header's name as CGI and WSGI servers read it: in lower case, with hyphens for
// underscores.
func dashed(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", "-")) }

// notSent are hop-by-hop headers, and headers by which a request could claim a host, path, method
// or caller other than the decided one.
var notSent = []string{
	"connection", "proxy-connection", "keep-alive", "proxy-authorization", "proxy-authenticate",
	"te", "trailer", "transfer-encoding",
	"upgrade", "expect", "host", "content-length", "http2-settings", "alt-used",
	"x-http-method-override", "x-http-method", "x-method-override", "x-original-url",
	"x-rewrite-url", "x-original-method",
	"forwarded", "x-forwarded-host", "x-forwarded-for", "x-forwarded-proto", "x-forwarded-port",
	"x-forwarded-prefix", "x-forwarded-server",
	"x-host", "x-real-ip", "x-original-host", "via",
}

// forwarded returns the tool's headers that are sent to the host. It drops the headers that
// Connection names, before the proxy adds its own.
func (h *head) forwarded(secret *Secret) fields {
	var nominated []string
	for _, token := range append(h.headers.tokens("connection"),
		h.headers.tokens("proxy-connection")...) {
		nominated = append(nominated, dashed(token))
	}
	var out fields
	for _, f := range h.headers {
		name := dashed(f.name)
		if slices.Contains(notSent, name) || slices.Contains(nominated, name) || secret != nil &&
			secret.replaces(name) {
			continue
		}
		out = append(out, f)
	}
	return out
}

// notReturned are response headers about the connection to the host, or that offer other ways to
// reach it.
var notReturned = []string{"connection", "proxy-connection", "keep-alive", "proxy-authenticate",
	"proxy-authorization", "te", "trailer",
	"transfer-encoding", "upgrade", "content-length", "alt-svc",
	// Programs in the jail recognize the proxy's refusals by these.
	"x-jail-fetch", "x-jail-approval"}

// returned returns the headers of a response for the tool, sorted by name. scrubbed reports whether
// the secret was removed from one.
func returned(header http.Header, secret *Secret) (out fields, scrubbed bool) {
	var nominated []string
	for _, v := range header.Values("Connection") {
		for part := range strings.SplitSeq(v, ",") {
			nominated = append(nominated, dashed(strings.TrimSpace(part)))
		}
	}
	for name, values := range header {
		read := dashed(name)
		if slices.Contains(notReturned, read) || slices.Contains(nominated, read) ||
			secret != nil && read == "set-cookie" {
			continue
		}
		for _, v := range values {
			if !plainField(name, v) {
				continue
			}
			if secret != nil && secret.Scrub {
				clean, hit := secret.scrubText(v)
				v, scrubbed = clean, scrubbed || hit
			}
			out = append(out, field{name, v})
		}
	}
	slices.SortStableFunc(out, func(a, b field) int { return strings.Compare(a.name, b.name) })
	return out, scrubbed
}

func plainField(name, value string) bool {
	if name == "" {
		return false
	}
	for i := range len(name) {
		if !tokenByte(name[i]) {
			return false
		}
	}
	return !strings.ContainsFunc(value, func(r rune) bool {
		return r < ' ' && r != '\t' || r == 0x7f
	})
}

// write appends the header lines to b, without the empty line after them.
func (f fields) write(b []byte) []byte {
	for _, h := range f {
		b = append(append(append(append(b, h.name...), ": "...), h.value...), "\r\n"...)
	}
	return b
}
