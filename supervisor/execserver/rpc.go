package execserver

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/jail-sandbox/jail/supervisor/toolsession"
)

// Messages are those of JSON-RPC 2.0 without its member "jsonrpc", one a line or a frame.

// maxMessage bounds a message in bytes: it may hold a file in base64.
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

// Codes of errors, the last one of Codex's own.
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

// decode reads the parameters of a request. Newer clients may send more than this server knows.
func decode(params json.RawMessage, to any) error {
	if len(params) == 0 {
		params = json.RawMessage("{}")
	}
	if err := json.Unmarshal(params, to); err != nil {
		return badParams("the parameters are not understood: %v", err)
	}
	return nil
}

// An answerer answers a request with these parameters.
type answerer = func(ctx context.Context, params json.RawMessage) (any, error)

// reading is the answerer that decodes the parameters for answer.
func reading[T any](answer func(context.Context, T) (any, error)) answerer {
	return func(ctx context.Context, params json.RawMessage) (any, error) {
		var in T
		if err := decode(params, &in); err != nil {
			return nil, err
		}
		return answer(ctx, in)
	}
}

// outgoing sends messages to a client, one after the other.
type outgoing struct {
	queue chan any
	// gone is closed when the client takes no more.
	gone chan struct{}
}

// run sends what is queued until the queue is closed, or the client takes no more.
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

// put queues a message, and waits while the client does not read.
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

// reply sends what a function returns.
func (o *outgoing) reply(id json.RawMessage, f func() (any, error)) {
	result, err := f()
	o.answer(id, result, err)
}

// Serve answers one client on a pair of streams until the client ends the first or ctx is done.
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
