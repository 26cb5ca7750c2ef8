package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"sync"

	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/wire"
)

// Run starts a tool, copies its streams until its end and returns the result. in may be nil: then a
// program of the host reads /dev/null. If out and errOut are the same comparable writer, the tool
// gets one pipe for both outputs, so that their order is kept. Failures of jail are in the result;
// the error is for a daemon that does not answer. When ctx ends, the connection is closed and the
// run ends.
func (c *Client) Run(ctx context.Context, req message.Request, in io.Reader, out,
	errOut io.Writer) (message.Result, error) {
	return c.RunSized(ctx, req, in, out, errOut, nil)
}

// RunSized is Run for a tool with a terminal. sizes has the terminal's new sizes, nil for no
// terminal.
func (c *Client) RunSized(ctx context.Context, req message.Request, in io.Reader, out,
	errOut io.Writer, sizes <-chan runners.Terminal) (message.Result, error) {
	return c.link.streamed(ctx, PathRuns+streamQuery(in, out, errOut), req, in, out, errOut, sizes)
}

// streamQuery returns the URL query for the streams: one pipe for both outputs if the writers are
// the same, and no input if in is nil.
func streamQuery(in io.Reader, out, errOut io.Writer) string {
	var asks []string
	if reflect.ValueOf(out).Comparable() && reflect.ValueOf(errOut).Comparable() && out == errOut {
		asks = append(asks, wire.Joined)
	}
	if in == nil {
		asks = append(asks, wire.NoInput)
	}
	if asks == nil {
		return ""
	}
	return "?" + strings.Join(asks, "&")
}

// streamed sends a request with streams, copies them and returns the result. If the daemon ends
// before it has begun anything, it asks the next daemon.
func (l *link) streamed(ctx context.Context, path string, req any, in io.Reader, out,
	errOut io.Writer, sizes <-chan runners.Terminal) (res message.Result, err error) {
	s := &runStream{credit: make(chan struct{}, wire.InputWindow)}
	defer close(s.credit)
	for range wire.InputWindow {
		s.credit <- struct{}{}
	}
	send := sync.OnceFunc(func() {
		go s.sendInput(in)
		if sizes != nil {
			go s.sendSizes(ctx, sizes)
		}
	})
	var passed carried
	defer passed.close()
	err = again(ctx, func() error {
		conn, err := l.dial(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		defer context.AfterFunc(ctx, func() { conn.Close() })()
		from := io.Reader(conn)
		if unix, ok := conn.(*net.UnixConn); ok && strings.Contains(path, wire.Passed) {
			passed.files = &passedReader{UnixConn: unix}
			from = passed.files
		}
		r, agreed, err := startStreams(conn, from, path, req)
		if err != nil {
			return err
		}
		s.connect(conn)
		if agreed {
			s.passed = func() error { return passed.begin(in, out) }
		} else {
			send()
		}
		if res, err = s.receive(r, out, errOut); err == nil && res.Error != nil && !s.begun {
			return res.Error
		}
		if err == nil {
			passed.end()
		}
		return err
	})
	if err != nil && (res.Error == nil || err != res.Error) {
		return res, l.explain(errors.Join(ctx.Err(), err))
	}
	return res, nil
}

// startStreams sends the request and switches to streams. It returns the reader for the frames, and
// whether the daemon passes the tool's pipes.
func startStreams(conn io.Writer, from io.Reader, path string, req any) (r *bufio.Reader,
	passed bool, err error) {
	body, err := json.Marshal(req)
	if err != nil {
		return nil, false, err
	}
	ask, err := http.NewRequest("POST", "http://jail"+path, bytes.NewReader(body))
	if err != nil {
		return nil, false, err
	}
	ask.Header.Set("Connection", "Upgrade")
	ask.Header.Set("Upgrade", Upgrade)
	// After a failed write, the daemon may still have answered why.
	sent := ask.Write(conn)
	r = bufio.NewReaderSize(from, 128<<10)
	resp, err := http.ReadResponse(r, ask)
	if err != nil {
		return nil, false, errors.Join(sent, err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		defer resp.Body.Close()
		return nil, false, readProblem(resp)
	}
	return r, resp.Header.Get(wire.StreamsHeader) == wire.StreamsPassed, nil
}

type runStream struct {
	credit chan struct{}

	mu   sync.Mutex
	conn net.Conn
	// Input sent to a daemon that has not begun yet, to be sent again.
	sent []byte
	// The daemon has read input or sent output.
	begun bool
	// passed copies input and output through the pipes that the daemon passed.
	passed func() error
}

// connect sets the connection of the stream, and resends the input that an earlier daemon did not
// use.
func (s *runStream) connect(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn = conn; len(s.sent) > 0 {
		// The reader sees the error.
		_, _ = conn.Write(s.sent)
	}
}

// Write sends frames to the daemon. s.mu is held.
func (s *runStream) Write(p []byte) (int, error) {
	if s.begun {
		return s.conn.Write(p)
	}
	s.sent = append(s.sent, p...)
	// An error shows when the answer is read.
	_, _ = s.conn.Write(p)
	return len(p), nil
}

func (s *runStream) begins() {
	// Only this function changes begun, so that it is read without the lock.
	if !s.begun {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.begun, s.sent = true, nil
	}
}

// sendInput sends the caller's input, one frame for each credit from the daemon.
func (s *runStream) sendInput(in io.Reader) {
	w := frameWriter{&s.mu, s, wire.FrameInput}
	buf := make([]byte, wire.MaxClientFrame)
	for in != nil {
		if _, ok := <-s.credit; !ok {
			return
		}
		n, err := readSome(in, buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			break
		}
	}
	// After the end of the run the error does not matter.
	_, _ = frameWriter{&s.mu, s, wire.FrameInputEnd}.Write(nil)
}

// sendSizes sends each new size of the caller's terminal.
func (s *runStream) sendSizes(ctx context.Context, sizes <-chan runners.Terminal) {
	w := frameWriter{&s.mu, s, wire.FrameSize}
	for {
		select {
		case size, ok := <-sizes:
			if !ok {
				return
			}
			content := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, size.Rows),
				size.Columns)
			if _, err := w.Write(content); err != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

func (s *runStream) receive(r *bufio.Reader, out, errOut io.Writer) (message.Result, error) {
	buf := make([]byte, 64<<10)
	for {
		kind, content, err := readFrame(r, buf, wire.MaxFrame)
		if err != nil {
			return message.Result{}, &cutError{err}
		}
		if kind != wire.FrameResult {
			s.begins()
		}
		switch kind {
		case wire.FrameCredit:
			select {
			case s.credit <- struct{}{}:
			default:
			}
		case wire.FrameOutput:
			err = writeOutput(out, content)
		case wire.FrameErrorOutput:
			err = writeOutput(errOut, content)
		case wire.FramePassed:
			if s.passed == nil {
				return message.Result{}, errors.New("the daemon passed pipes that were not asked for")
			}
			err = s.passed()
			s.passed = nil
		case wire.FrameInputEnd:
			return message.Result{}, errNoResult
		case wire.FrameResult:
			var res message.Result
			return res, json.Unmarshal(content, &res)
		default:
			return message.Result{}, fmt.Errorf("the daemon sent a frame of kind %q", kind)
		}
		if err != nil {
			return message.Result{}, err
		}
	}
}

// logs is receive for a run that may not have ended: then the result is nil.
func (s *runStream) logs(r *bufio.Reader, out, errOut io.Writer) (*message.Result, error) {
	res, err := s.receive(r, out, errOut)
	if errors.Is(err, errNoResult) {
		return nil, nil
	}
	return &res, err
}

// errNoResult means that the output so far is complete and the run has not ended.
var errNoResult = errors.New("the run goes on")

// readSome reads until it has at least one byte or an error.
func readSome(in io.Reader, buf []byte) (n int, err error) {
	for n == 0 && err == nil {
		n, err = in.Read(buf)
	}
	return n, err
}

// An outputError is an error of the caller's own output, not of the daemon.
type outputError struct{ err error }

func (e *outputError) Error() string { return e.err.Error() }
func (e *outputError) Unwrap() error { return e.err }

func writeOutput(w io.Writer, content []byte) error {
	if _, err := w.Write(content); err != nil {
		return &outputError{err}
	}
	return nil
}
