package fetch

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"time"
)

// wholeBody bounds, in bytes, the request bodies that the proxy reads as a whole before it dials:
// errors in their chunks are found before the host gets anything, and they are sent with a length.
const wholeBody = 256 << 10

// maxInformational bounds the number of 1xx responses to one request.
const maxInformational = 5

// exchange sends a request and passes on the response. It reports whether the stream stays usable.
func (s *stream) exchange(ctx context.Context, rt *roundTrip) bool {
	body, whole, refused := s.body(ctx, rt)
	defer rt.letGo()
	if refused != nil {
		s.reply(rt.refuse(refused))
		return false
	}
	headers, query, refused := s.attached(rt, whole)
	if refused != nil {
		s.reply(refused)
		return false
	}
	rt.target.query = query
	upgrades := rt.what.Kind == kindWebSocket
	if upgrades {
		headers = append(headers, field{"Connection", "Upgrade"}, field{"Upgrade", "websocket"})
	}
	// A request that may be unsafe to send twice, or was approved once, uses a new connection,
	// which is known to be open.
	reuse := s.h.length == 0 && !rt.asks && !upgrades
	if refused := rt.reach(ctx, reuse); refused != nil {
		s.finish(rt, refused)
		return false
	}
	resp, refused := s.send(ctx, rt, headers, body)
	if refused != nil && rt.try.unheard(ctx, s.h.method) {
		// The host had closed the kept connection. Try once more on a new one, with its own record,
		// name resolution and address check.
		rt.again()
		if refused = rt.reach(ctx, false); refused == nil {
			resp, refused = s.send(ctx, rt, headers, body)
		}
	}
	rt.letGo()
	if refused != nil {
		s.finish(rt, refused)
		return false
	}
	if upgrades {
		s.webSocket(ctx, rt, resp)
		return false
	}
	goesOn, keep := s.answer(ctx, rt, resp)
	rt.done()
	if keep {
		rt.p.hosts.pool.put(rt.key(), rt.try.up)
	} else {
		rt.try.up.close()
	}
	return goesOn
}

// attached returns the headers and the query as sent to the host, with the credential of the rule.
func (s *stream) attached(rt *roundTrip, whole []byte) (headers fields, query string, r *refusal) {
	to, headers := rt.target, keyed(s.h.forwarded(rt.secret), s.key)
	if rt.secret != nil {
		var err error
		if headers, err = rt.secret.attach(&to, s.h.method, headers, whole, time.Now()); err != nil {
			r := badRequest(err)
			r.layer, r.rule, r.next = "fetch", "credential "+rt.what.Credential,
				"ask without it: what is sent with a credential is what the rule names"
			return nil, "", rt.refuse(r)
		}
	}
	return headers, to.query, nil
}

// finish ends a request that got no response from the host.
func (s *stream) finish(rt *roundTrip, r *refusal) {
	rt.done()
	if rt.try.up != nil {
		rt.try.up.close()
	}
	s.reply(r)
}

// body returns a reader of the request's body, never nil, and all bytes of a small body.
func (s *stream) body(ctx context.Context, rt *roundTrip) (io.Reader, []byte, *refusal) {
	limit := rt.bounds.RequestSize
	tooLarge := &refusal{status: 413, code: codeBudget, layer: "fetch",
		rule:    "fetch.allow.request_size",
		message: fmt.Sprintf("the body is larger than %d bytes", limit), next: "send less"}
	if limit > 0 && s.h.length > limit {
		return nil, nil, tooLarge
	}
	if s.whole != nil {
		return bytes.NewReader(s.whole), s.whole, nil
	}
	if s.h.length == 0 {
		return bytes.NewReader(nil), []byte{}, nil
	}
	if s.h.expects {
		if _, err := io.WriteString(s.conn, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
			return nil, nil, badRequest(err)
		}
	}
	var from io.Reader = io.LimitReader(s.r, s.h.length)
	if s.h.length < 0 {
		from = &chunked{r: s.r}
	}
	select {
	case s.p.bodies <- struct{}{}:
		rt.held = true
	case <-ctx.Done():
		return nil, nil, overBudget(errBodies)
	}
	start, err := io.ReadAll(io.LimitReader(from, wholeBody+1))
	switch {
	case err != nil:
		return nil, nil, badRequest(err)
	case s.h.length > 0 && int64(len(start)) < min(s.h.length, wholeBody+1):
		return nil, nil, badRequest(bad("the body is shorter than its length"))
	case limit > 0 && int64(len(start)) > limit:
		return nil, nil, tooLarge
	case len(start) <= wholeBody:
		s.h.length = int64(len(start))
		return bytes.NewReader(start), start, nil
	}
	rest := io.MultiReader(bytes.NewReader(start), from)
	if limit > 0 {
		rest = &bounded{rest, limit, errRequestSize}
	}
	return rest, nil, nil
}

var (
	errRequestSize = errors.New("the body is larger than fetch.allow.request_size")
	errAnswerSize  = errors.New("the answer is larger than fetch.allow.response_size")
	errLength      = errors.New("the body is shorter than its length")
	errBodies      = errors.New("too many bodies are on their way")
)

// bounded is a reader that returns err after left bytes.
type bounded struct {
	r    io.Reader
	left int64
	err  error
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, b.err
	}
	return n, err
}

// send sends the decided request and reads the head of the response.
func (s *stream) send(ctx context.Context, rt *roundTrip, headers fields,
	body io.Reader) (*http.Response, *refusal) {
	out := fmt.Appendf(nil, "%s %s%s HTTP/1.1\r\nHost: %s\r\n", s.h.method, rt.target.path,
		rt.target.query, rt.target.authority())
	out = headers.write(out)
	switch {
	case s.h.length > 0 || s.h.length == 0 && hasBody(s.h.method):
		out = fmt.Appendf(out, "Content-Length: %d\r\n", s.h.length)
	case s.h.length < 0:
		out = append(out, "Transfer-Encoding: chunked\r\n"...)
	}
	w := writerTo(rt.try.up.conn)
	defer giveBack(w)
	_, err := w.Write(append(out, "\r\n"...))
	if err == nil && s.h.length != 0 {
		err = s.sendBody(w, body)
	}
	if err == nil {
		err = w.Flush()
	}
	// A host may respond and close before it has read the whole request: its response counts.
	if err != nil && (ctx.Err() != nil || isOurs(err)) {
		return nil, rt.failed(ctx, err)
	}
	resp, readErr := s.readHead(rt)
	if readErr != nil {
		return nil, rt.failed(ctx, errors.Join(err, readErr))
	}
	rt.try.out.First, rt.try.out.Status = time.Since(rt.try.start), resp.StatusCode
	return resp, nil
}

func hasBody(method string) bool { return method == "POST" || method == "PUT" || method == "PATCH" }

// isOurs reports whether an error is due to the tool's body or a limit, not to the host.
func isOurs(err error) bool {
	var limit *limitError
	var b *badTarget
	return errors.As(err, &limit) || errors.As(err, &b) || errors.Is(err, errRequestSize) ||
		errors.Is(err, errLength) || errors.Is(err, io.ErrUnexpectedEOF)
}

func (s *stream) sendBody(w *bufio.Writer, body io.Reader) error {
	if s.h.length >= 0 {
		n, err := io.Copy(w, body)
		if err == nil && n < s.h.length {
			err = errLength
		}
		return err
	}
	if _, err := io.Copy(httputil.NewChunkedWriter(w), body); err != nil {
		return err
	}
	_, err := w.WriteString("0\r\n\r\n")
	return err
}

// readHead reads the head of the response. It skips 1xx responses.
func (s *stream) readHead(rt *roundTrip) (*http.Response, error) {
	for range maxInformational + 1 {
		rt.try.up.cap.lower()
		resp, err := http.ReadResponse(rt.try.up.r, &http.Request{Method: s.h.method})
		if err != nil {
			return nil, err
		}
		switch {
		case resp.ProtoMajor != 1:
			return nil, errors.New("the host answers in another HTTP than it was asked in")
		case resp.StatusCode == http.StatusSwitchingProtocols && rt.what.Kind != kindWebSocket:
			return nil, errors.New("the host switches to a protocol that nobody asked for")
		case resp.StatusCode >= 200 || resp.StatusCode == http.StatusSwitchingProtocols:
			rt.try.up.cap.lift()
			return resp, nil
		}
	}
	return nil, errors.New("the host sends too many 1xx responses")
}

// answer passes the response to the tool. goesOn reports whether the tool's stream can carry
// another request, keep whether the connection to the host can be reused.
func (s *stream) answer(ctx context.Context, rt *roundTrip, resp *http.Response) (goesOn,
	keep bool) {
	defer resp.Body.Close()
	if refused := rt.checkAnswer(resp); refused != nil {
		rt.try.out.Error = refused.message
		s.reply(rt.refuse(refused))
		return false, false
	}
	if to := resp.Header.Get("Location"); to != "" {
		rt.redirected(to)
	}
	headers, hit := returned(resp.Header, rt.secret)
	rt.try.out.Scrubbed = hit
	var body io.Reader = resp.Body
	if limit := rt.bounds.ResponseSize; limit > 0 {
		body = &bounded{body, limit, errAnswerSize}
	}
	var cleaner *scrubber
	if rt.secret != nil && rt.secret.Scrub {
		cleaner = &scrubber{r: body, forms: rt.secret.forms()}
		body = cleaner
	}
	none := s.h.method == http.MethodHead || resp.StatusCode == http.StatusNoContent ||
		resp.StatusCode == http.StatusNotModified
	goesOn = !s.h.close
	out := fmt.Appendf(nil, "HTTP/1.1 %d %s\r\n", resp.StatusCode, http.StatusText(resp.StatusCode))
	out = headers.write(out)
	chunks := false
	switch {
	case resp.ContentLength >= 0 && resp.StatusCode != http.StatusNoContent &&
		(!none || resp.ContentLength > 0):
		out = fmt.Appendf(out, "Content-Length: %d\r\n", resp.ContentLength)
	case none:
	case s.h.minor == 1:
		chunks = true
		out = append(out, "Transfer-Encoding: chunked\r\n"...)
	default:
		goesOn = false
	}
	if !goesOn {
		out = append(out, "Connection: close\r\n"...)
	}
	w := writerTo(s.conn)
	defer giveBack(w)
	_, err := w.Write(append(out, "\r\n"...))
	if err == nil && !none && rt.try.up.r.Buffered() == 0 {
		// Send the head now: the body may take time, as a model's event stream does.
		err = w.Flush()
	}
	if err == nil && !none {
		err = s.copyBody(w, body, chunks)
	}
	if err == nil {
		err = w.Flush()
	} else {
		// Pass on the bytes so far. The framing shows that the response is incomplete.
		_ = w.Flush()
	}
	if cleaner != nil {
		rt.try.out.Scrubbed = rt.try.out.Scrubbed || cleaner.hit
	}
	if err != nil {
		rt.truncated(ctx, err)
		return false, false
	}
	return goesOn, !resp.Close && rt.try.up.r.Buffered() == 0
}

// truncated records why a response is incomplete.
func (rt *roundTrip) truncated(ctx context.Context, err error) {
	rt.try.out.Truncated, rt.try.out.Error = true, rt.clean(publicError(err))
	var limit *limitError
	switch {
	case errors.As(err, &limit):
		rt.overLimit(limit)
	case errors.Is(err, errAnswerSize):
		rt.overLimit(errAnswerSize)
	case ctx.Err() != nil:
		rt.try.out.Error = "timeout"
	}
}

// copyBody passes a body to the tool as it arrives.
func (s *stream) copyBody(w *bufio.Writer, body io.Reader, chunks bool) error {
	var to io.Writer = w
	if chunks {
		to = httputil.NewChunkedWriter(w)
	}
	buf := pieces.Get().(*[bufferSize]byte)
	defer pieces.Put(buf)
	for {
		n, err := body.Read(buf[:])
		if n > 0 {
			if _, werr := to.Write(buf[:n]); werr != nil {
				return werr
			}
			if werr := w.Flush(); werr != nil {
				return werr
			}
		}
		switch {
		case errors.Is(err, io.EOF) && chunks:
			_, werr := w.WriteString("0\r\n\r\n")
			return werr
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// checkAnswer returns a refusal for a response that the rule does not allow, else nil.
func (rt *roundTrip) checkAnswer(resp *http.Response) *refusal {
	if rt.bounds.ResponseSize > 0 && resp.ContentLength > rt.bounds.ResponseSize {
		return &refusal{status: 502, code: codeBudget, layer: "fetch",
			rule: "fetch.allow.response_size", next: "ask for less",
			message: fmt.Sprintf("the answer has %d bytes, more than the rule lets through",
				resp.ContentLength)}
	}
	if rt.secret != nil && rt.secret.Scrub {
		if coding := resp.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding,
			"identity") {
			return &refusal{status: 502, code: codeDenied, layer: "fetch", rule: "credential " +
				rt.what.Credential, next: "none: the host codes what it was asked not to",
				message: "the answer is coded, so the credential could not be cut out of it"}
		}
	}
	if len(rt.decided.types()) == 0 || resp.StatusCode == http.StatusNoContent ||
		resp.StatusCode == http.StatusNotModified || resp.ContentLength == 0 {
		return nil
	}
	kind, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	kind = strings.ToLower(strings.TrimSpace(kind))
	if len(resp.Header.Values("Content-Type")) == 1 && rt.decided.types().Match(kind) {
		return nil
	}
	return &refusal{status: 403, code: codeDenied, layer: rt.what.Layer,
		rule: fmt.Sprintf("fetch.allow.types = %q", rt.decided.types().Strings()),
		message: fmt.Sprintf("the answer is of the type %q, which the rule does not let through",
			kind), next: "add the type to the rule"}
}

// bufferSize is the size of one read or write of a body, in bytes.
const bufferSize = 32 << 10

// Pools of buffers for all requests of the run. New buffers for each request caused most of the
// garbage collection.
var (
	writers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, bufferSize) }}
	pieces  = sync.Pool{New: func() any { return new([bufferSize]byte) }}
)

// writerTo returns a buffered writer to w from the pool. giveBack returns it.
func writerTo(w io.Writer) *bufio.Writer {
	b := writers.Get().(*bufio.Writer)
	b.Reset(w)
	return b
}

// giveBack discards unflushed bytes and returns the writer to the pool.
func giveBack(b *bufio.Writer) {
	b.Reset(nil)
	writers.Put(b)
}
