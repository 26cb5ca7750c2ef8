package execserver

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/coder/websocket"

	"github.com/jail-sandbox/jail/jail/tick"
	"github.com/jail-sandbox/jail/supervisor/loopback"
	"github.com/jail-sandbox/jail/supervisor/toolsession"
)

// Messages are JSON-RPC 2.0 without the member "jsonrpc", one per line or WebSocket frame.

// maxMessage bounds a message in bytes. A message may hold a file in base64.
const maxMessage = toolsession.MaxWritten*4/3 + 64<<10

type incoming struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

type response struct {
	ID     json.RawMessage `json:"id"`
	Result any             `json:"result"`
}

type failure struct {
	ID    json.RawMessage `json:"id"`
	Error *rpcError       `json:"error"`
}

type notification struct {
	Method string `json:"method"`
	Params any    `json:"params"`
}

// Error codes of JSON-RPC. The last one is defined by Codex.
const (
	codeInvalid  = -32600
	codeMethod   = -32601
	codeParams   = -32602
	codeInternal = -32603
	codeNotFound = -32004
)

type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func (e *rpcError) Error() string { return e.Message }

func fail(code int, format string, args ...any) *rpcError {
	return &rpcError{Code: code, Message: fmt.Sprintf(format, args...)}
}

func invalid(format string, args ...any) *rpcError   { return fail(codeInvalid, format, args...) }
func badParams(format string, args ...any) *rpcError { return fail(codeParams, format, args...) }
func internal(format string, args ...any) *rpcError  { return fail(codeInternal, format, args...) }

// An answerer handles a request with these parameters, and returns the result to encode as JSON.
type answerer = func(ctx context.Context, params json.RawMessage) (any, error)

// reading returns an answerer that decodes the parameters and calls answer. It ignores unknown
// parameters, which newer clients may send.
func reading[T any](answer func(context.Context, T) (any, error)) answerer {
	return func(ctx context.Context, params json.RawMessage) (any, error) {
		var in T
		if len(params) == 0 {
			params = json.RawMessage("{}")
		}
		if err := json.Unmarshal(params, &in); err != nil {
			return nil, badParams("the parameters are not understood: %v", err)
		}
		return answer(ctx, in)
	}
}

// outgoing queues messages to a client.
type outgoing struct {
	queue chan any
	// gone is closed when run has returned.
	gone chan struct{}
}

// run sends queued messages until the queue is closed or send fails.
func (o *outgoing) run(send func([]byte) error) error {
	defer close(o.gone)
	for m := range o.queue {
		text, err := json.Marshal(m)
		if err == nil {
			err = send(text)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// put queues a message. It blocks while the queue is full, and drops the message if run has ended.
func (o *outgoing) put(m any) {
	select {
	case o.queue <- m:
	case <-o.gone:
	}
}

func (o *outgoing) notify(method string, params any) { o.put(notification{method, params}) }

func (o *outgoing) answer(id json.RawMessage, result any, err error) {
	if err == nil {
		o.put(response{id, result})
		return
	}
	e, ok := errors.AsType[*rpcError](err)
	if !ok {
		e = internal("%v", err)
	}
	o.put(failure{id, e})
}

// Serve serves one client on a pair of streams until the end of in or until ctx is done.
func (s *Server) Serve(ctx context.Context, in io.ReadCloser, out io.Writer) error {
	defer context.AfterFunc(ctx, func() { in.Close() })()
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxMessage)
	return s.serve(ctx, func() ([]byte, error) {
		for lines.Scan() {
			if len(lines.Bytes()) > 0 {
				return lines.Bytes(), nil
			}
		}
		if errors.Is(lines.Err(), bufio.ErrTooLong) {
			return nil, fmt.Errorf("a message has more than %d bytes", maxMessage)
		}
		if lines.Err() != nil {
			return nil, lines.Err()
		}
		return nil, io.EOF
	}, func(text []byte) error {
		_, err := out.Write(append(text, '\n'))
		return err
	})
}

const (
	// pingEvery is the interval of WebSocket pings, and pongTime the timeout of their answers.
	pingEvery = 30 * time.Second
	pongTime  = 30 * time.Second
)

// URL returns the URL for clients of ServeWebSocket. It contains the token, since Codex cannot send
// headers.
func URL(l net.Listener, token string) string {
	return "ws://" + l.Addr().String() + "/?token=" + token
}

// ServeWebSocket serves WebSocket clients (RFC 6455) whose URL has the token, until ctx is done.
// GET /readyz returns 200 as a readiness check.
func (s *Server) ServeWebSocket(ctx context.Context, l net.Listener, token string) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		if !loopback.Same(r.URL.Query().Get("token"), token) {
			loopback.Refuse(w)
			return
		}
		s.accept(ctx, w, r)
	})
	return loopback.Serve(ctx, l, mux)
}

// accept upgrades a request to a WebSocket and serves its client.
func (s *Server) accept(ctx context.Context, w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		// websocket.Accept has sent the error response.
		return
	}
	defer conn.CloseNow()
	conn.SetReadLimit(maxMessage)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go ping(ctx, conn, stop)
	err = s.serve(ctx, func() ([]byte, error) {
		_, text, err := conn.Read(ctx)
		if status := websocket.CloseStatus(err); status == websocket.StatusNormalClosure ||
			status == websocket.StatusGoingAway {
			err = io.EOF
		}
		return text, err
	}, func(text []byte) error { return conn.Write(ctx, websocket.MessageText, text) })
	status, why := websocket.StatusNormalClosure, ""
	if err != nil {
		status, why = websocket.StatusPolicyViolation, err.Error()
	}
	conn.Close(status, why[:min(len(why), 120)])
}

// ping sends pings and calls stop if the client does not answer one.
func ping(ctx context.Context, conn *websocket.Conn, stop func()) {
	for range tick.Each(ctx.Done(), pingEvery) {
		limited, cancel := context.WithTimeout(ctx, pongTime)
		err := conn.Ping(limited)
		cancel()
		if err != nil {
			stop()
			return
		}
	}
}
