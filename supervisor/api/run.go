package api

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/stdio"
	"github.com/jail-sandbox/jail/supervisor/wire"
)

// run starts a run and switches the connection to its streams.
func (srv *Server) run(w http.ResponseWriter, r *http.Request) {
	var req message.Request
	srv.streamed(w, r, &req, func(ctx context.Context, c caller.Caller,
		s stdio.Streams) message.Result {
		id, done, err := srv.s.Names().Take(c, req.ID)
		if err != nil {
			return failedResult(req.ID, err)
		}
		defer done()
		req.ID = id
		return srv.s.Run(ctx, c, req, s)
	})
}

// failedResult returns the result of a request that failed before there was a run. id is the
// requested one, or "".
func failedResult(id string, err error) message.Result {
	e := problem.From(err)
	return message.Result{ID: id, ExitCode: e.Exit(), Error: e, Denied: []runners.Denial{}}
}

// streamed reads a request into req, calls do, and carries its streams over the connection. If the
// request does not ask for streams, the answer is only the result.
func (srv *Server) streamed(w http.ResponseWriter, r *http.Request, req any,
	do func(context.Context, caller.Caller, stdio.Streams) message.Result) {
	caller, err := callerOf(r.Context())
	if err == nil {
		err = sameNumber(r)
	}
	if err == nil {
		err = readJSON(r, req)
	}
	var tracked func()
	if err == nil {
		tracked, err = srv.s.Enter()
	}
	if err != nil {
		refuse(w, srv.s, caller, err)
		return
	}
	defer tracked()
	query := r.URL.Query()
	joined := query.Get(wire.QueryOutput) == wire.OutputJoined
	if r.Header.Get("Upgrade") != Upgrade {
		writeJSON(w, http.StatusOK, srv.s.Names().Result(caller,
			unstreamed(func(s stdio.Streams) message.Result {
				s.Tracked, s.Joined = tracked, joined
				return srv.resulting(func() message.Result { return do(r.Context(), caller, s) })
			})))
		return
	}
	// Before Hijack, since Shutdown does not wait for hijacked connections.
	srv.streams.Add(1)
	defer srv.streams.Done()
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		writeProblem(w, problem.From(err))
		return
	}
	defer conn.Close()
	switching := "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " +
		Upgrade + "\r\n"
	passed := query.Get(wire.QueryStreams) == wire.StreamsPassed && passes(req)
	if passed {
		switching += wire.StreamsHeader + ": " + wire.StreamsPassed + "\r\n"
	}
	if _, err := io.WriteString(conn, switching+"\r\n"); err != nil {
		return
	}
	srv.carry(conn, buffered.Reader, func(ctx context.Context, s stdio.Streams) message.Result {
		s.Tracked, s.Joined = tracked, joined
		if !passed {
			s.Pass = nil
		}
		if query.Get(wire.QueryInput) == wire.InputNone {
			s.In = nil
		}
		return srv.s.Names().Result(caller, do(ctx, caller, s))
	})
}

// sameNumber returns an error if the request names another version of the API.
func sameNumber(r *http.Request) error {
	if number := r.Header.Get(wire.NumberHeader); number != "" &&
		number != strconv.Itoa(wire.Number) {
		return problem.New(problem.Usage, "the client speaks API %.20q, and this daemon API %d",
			number, wire.Number)
	}
	return nil
}

func (srv *Server) carry(plain net.Conn, buffered *bufio.Reader,
	do func(context.Context, stdio.Streams) message.Result) {
	// Not the request's context, which ends with the switch: the run ends with the connection.
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	conn := newParting(plain)
	calm := context.AfterFunc(srv.ending, conn.hurry)
	defer calm()
	var mu sync.Mutex
	in := newInput(frameWriter{&mu, conn, wire.FrameCredit})
	var reading sync.WaitGroup
	reading.Go(func() {
		// The client closed the connection, or broke the protocol.
		cancel(in.receive(buffered))
	})
	res := srv.resulting(func() message.Result {
		return do(ctx, stdio.Streams{
			In:    in,
			Out:   frameWriter{&mu, conn, wire.FrameOutput},
			Err:   frameWriter{&mu, conn, wire.FrameErrorOutput},
			Sizes: in.sizes,
			Pass: func(in, out *os.File) error {
				mu.Lock()
				defer mu.Unlock()
				return conn.pass(in, out)
			},
		})
	})
	if broke := frameError(""); errors.As(context.Cause(ctx), &broke) && (res.Error == nil ||
		errors.Is(res.Error, context.Canceled)) {
		res.Error = problem.New(problem.Usage, "the client broke the protocol: %v", broke)
		res.ExitCode = res.Error.Exit()
	}
	text, err := json.Marshal(res)
	if err == nil {
		// A client that is gone needs no result; the audit log has it.
		_, _ = frameWriter{&mu, conn, wire.FrameResult}.Write(text)
	}
	in.stop()
	conn.Close()
	reading.Wait()
}

// input is the tool's standard input from the client. Receiving never blocks: credit bounds the
// frames under way, so there is always room, and the end of the connection is noticed at once even
// if the tool does not read.
type input struct {
	credit frameWriter
	frames chan []byte
	quit   chan struct{}
	// The last size of the client's terminal.
	sizes chan runners.Terminal
	// The client has sent the end of its input.
	whole atomic.Bool
	rest  []byte
}

func newInput(credit frameWriter) *input {
	return &input{credit: credit, frames: make(chan []byte, wire.InputWindow),
		quit: make(chan struct{}), sizes: make(chan runners.Terminal, 1)}
}

// receive handles the frames of the client until the connection ends, and returns why it ended.
func (in *input) receive(conn *bufio.Reader) error {
	ended := false
	end := func() {
		if !ended {
			ended = true
			close(in.frames)
		}
	}
	defer end()
	for {
		kind, content, err := readFrame(conn, nil, wire.MaxClientFrame)
		switch {
		case err != nil:
			return err
		case kind == wire.FrameInputEnd:
			in.whole.Store(true)
			end()
		case kind == wire.FrameSize && len(content) == 4:
			in.resize(runners.Terminal{Rows: binary.BigEndian.Uint16(content),
				Columns: binary.BigEndian.Uint16(content[2:])})
		case kind == wire.FrameInput && !ended && len(content) > 0:
			select {
			case in.frames <- content:
			default:
				return frameError("more frames of input than it had leave for")
			}
		default:
			return frameError(
				fmt.Sprintf("frame of kind %q with %d bytes, which it cannot send here", kind,
					len(content)))
		}
	}
}

// resize stores the last size for its reader. Only this function sends to sizes.
func (in *input) resize(size runners.Terminal) {
	select {
	case <-in.sizes:
	default:
	}
	in.sizes <- size
}

// Read reads the client's input, and sends credit for another frame. It fails with
// [io.ErrUnexpectedEOF] if the client is gone before it sent the end of its input.
func (in *input) Read(p []byte) (int, error) {
	if len(in.rest) == 0 {
		select {
		case content, ok := <-in.frames:
			if !ok && !in.whole.Load() {
				return 0, io.ErrUnexpectedEOF
			}
			if !ok {
				return 0, io.EOF
			}
			in.rest = content
		case <-in.quit:
			return 0, io.EOF
		}
		if _, err := in.credit.Write(nil); err != nil {
			return 0, err
		}
	}
	n := copy(p, in.rest)
	in.rest = in.rest[n:]
	return n, nil
}

// stop ends a waiting Read, after the run has ended.
func (in *input) stop() { close(in.quit) }

// maxPlain bounds each output of an answer without streams, in bytes: the daemon keeps it in memory
// until the run has ended.
const maxPlain = 16 << 20

// unstreamed carries out a run without streams: it has no input, and its output is in the result.
// The run ends when the client closes the connection.
func unstreamed(do func(stdio.Streams) message.Result) message.Result {
	out, errOut := stdio.Kept{Most: maxPlain}, stdio.Kept{Most: maxPlain}
	res := do(stdio.Streams{Out: &out, Err: &errOut})
	res.Stdout, res.Stderr = out.Bytes(), errOut.Bytes()
	res.Truncated = res.Truncated || out.Cut || errOut.Cut
	return res
}
