package fetch

import (
	"bufio"
	"bytes"
	"errors"
	"io"
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

// field is one header line. Order and repetition are kept.
type field struct{ name, value string }

// fields are the headers of one message.
type fields []field

// get returns the values of all lines with a name.
func (f fields) get(name string) (out []string) {
	for _, h := range f {
		if strings.EqualFold(h.name, name) {
			out = append(out, h.value)
		}
	}
	return out
}

// tokens returns the members of a comma-separated list, in lower case.
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

// head is the head of a request as it was read.
type head struct {
	method  string
	target  string
	minor   int // of HTTP/1
	headers fields
	// length of the body; -1 for a chunked one.
	length int64
	// close: the client sends no further request on this stream.
	close bool
	// expects: the client waits for 100 Continue before it sends the body.
	expects bool
}

var (
	errHeadTooLarge = bad("the head of the request is larger than %d bytes or %d lines", maxHead,
		maxHeaders)
	errNoRequest = errors.New("no further request")
)

// readHead reads the head of a request and refuses everything ambiguous in it. The error is
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

// readRawHead reads up to and including the empty line. Lines end with CR LF only.
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

// lookalikes are headers that decide where a message ends or whose it is; some servers read a name
// with underscores as the same.
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

// framing says where the body ends, in the one way that there is.
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
		h.length, _ = strconv.ParseInt(cl[0], 10, 64) // 18 digits always fit
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
