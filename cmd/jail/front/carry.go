package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/cmd/jail/internal/ended"
	"github.com/jail-sandbox/jail/supervisor/wire"
)

const (
	// answerBound is how long a daemon may take to answer a request, as in package client.
	answerBound = 30 * time.Second
	// patience is how long a client waits for the next daemon after one that is ending, as in
	// package api. pause is the time between two tries.
	patience = 15 * time.Second
	pause    = 20 * time.Millisecond
)

// connect connects to the daemon's socket at path.
func connect(path string) (*os.File, error) {
	fd, err := syscall.Socket(syscall.AF_UNIX,
		syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if err := syscall.Connect(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
		syscall.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// post sends a request and reads the header of the answer. It returns the status, and the reader
// for the rest.
func post(conn *os.File, path, headers string, body []byte) (int, *bufio.Reader, error) {
	head := "POST " + path + " HTTP/1.1\r\nHost: jail\r\n" + headers + "Content-Length: " +
		strconv.Itoa(len(body)) + "\r\n\r\n"
	// After a failed write, the daemon may still have answered why.
	_, sent := conn.Write(append([]byte(head), body...))
	if err := conn.SetReadDeadline(time.Now().Add(answerBound)); err != nil {
		return 0, nil, err
	}
	r := bufio.NewReaderSize(conn, wire.MaxClientFrame)
	line, err := readLine(r)
	version, rest, _ := strings.Cut(line, " ")
	code, _, _ := strings.Cut(rest, " ")
	status, wrong := strconv.Atoi(code)
	if err == nil && (version != "HTTP/1.1" || wrong != nil) {
		err = fmt.Errorf("malformed HTTP response %.60q", line)
	}
	for err == nil && line != "" {
		line, err = readLine(r)
	}
	if err != nil {
		return 0, nil, errors.Join(sent, err)
	}
	return status, r, conn.SetReadDeadline(time.Time{})
}

// readLine returns the next line of a header without its line ending.
func readLine(r *bufio.Reader) (string, error) {
	line, err := r.ReadSlice('\n')
	return strings.TrimRight(string(line), "\r\n"), err
}

// upgrade has the headers that ask for the switch to streams.
const upgrade = "Connection: Upgrade\r\nUpgrade: " + wire.Upgrade + "\r\n" + wire.NumberHeader +
	": 1\r\n"

// A carrier copies the streams of one run.
type carrier struct {
	ask    ask
	socket string
	body   []byte
	credit chan struct{}
	link   link
}

// A link is the connection to the daemon of a run. If the daemon ends before it has begun anything,
// the link connects to its successor.
type link struct {
	// mu is held while a frame is written.
	mu sync.Mutex
	// sent is the input sent to a daemon that has not begun yet, to be sent again.
	sent []byte
	// begun says that the daemon has taken input or sent output.
	begun bool

	// ending guards cancelled. It is only held briefly, so that a signal can end a wait for a
	// daemon.
	ending sync.Mutex
	// conn changes with both mutexes held.
	conn *os.File
	// cancelled says that the run must not be sent to another daemon.
	cancelled bool
}

// carry runs the tool through the daemon and exits with its exit code. It returns if no daemon
// accepts the request, before anything has begun.
func (a ask) carry() {
	c := &carrier{ask: a, socket: socket(), credit: make(chan struct{}, wire.InputWindow)}
	if c.socket == "" {
		return
	}
	conn, err := connect(c.socket)
	if err != nil {
		return
	}
	if c.body, err = json.Marshal(a.request); err != nil {
		return
	}
	status, r, err := post(conn, a.path+a.query, upgrade, c.body)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		conn.Close()
		tell(outcome{Failure: &ended.Failure{Code: failedCode, Hint: wire.SlowHint,
			Message: fmt.Sprintf("the daemon on %s has not answered for %v", c.socket,
				answerBound)}})
	}
	if err != nil || status != statusSwitching {
		conn.Close()
		return
	}
	c.link.attach(conn)
	// Until here, a signal ends this process, which closes the connection and ends the run.
	stop := ended.Forward(c.kill, c.link.cancel)
	for range wire.InputWindow {
		c.credit <- struct{}{}
	}
	go c.sendInput()
	c.finish(c.receive(conn, r), stop)
}

const statusSwitching = 101

// attach sets the connection of the run, and resends the input that an earlier daemon did not use.
func (l *link) attach(conn *os.File) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ending.Lock()
	l.conn = conn
	if l.cancelled {
		conn.Close()
	}
	l.ending.Unlock()
	if len(l.sent) > 0 {
		// The reader sees the error.
		_, _ = conn.Write(l.sent)
	}
}

// cancel closes the connection, which ends the run, and prevents a new one.
func (l *link) cancel() {
	l.ending.Lock()
	defer l.ending.Unlock()
	l.cancelled = true
	l.conn.Close()
}

func (l *link) wanted() bool {
	l.ending.Lock()
	defer l.ending.Unlock()
	return !l.cancelled
}

// send sends one frame to the daemon. Before the daemon has begun, it ignores write errors.
func (l *link) send(kind byte, content []byte) error {
	frame := append(binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(content))), content...)
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.conn.Write(frame)
	if !l.begun {
		l.sent, err = append(l.sent, frame...), nil
	}
	return err
}

func (l *link) begins() {
	// No other goroutine changes it.
	if !l.begun {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.begun, l.sent = true, nil
	}
}

// sendInput sends standard input, one frame for each credit from the daemon.
func (c *carrier) sendInput() {
	buf := make([]byte, wire.MaxClientFrame)
	for {
		<-c.credit
		n, err := 0, error(nil)
		for n == 0 && err == nil {
			n, err = os.Stdin.Read(buf)
		}
		if n > 0 && c.link.send(wire.FrameInput, buf[:n]) != nil {
			return
		}
		if err != nil {
			break
		}
	}
	// After the end of the run the error does not matter.
	_ = c.link.send(wire.FrameInputEnd, nil)
}

// An end is the end of a run's frames: a result or a failure.
type end struct {
	result  json.RawMessage
	failure *ended.Failure
}

func failure(message, hint string) end {
	return end{failure: &ended.Failure{Code: failedCode, Message: message, Hint: hint}}
}

// receive copies the tool's output until its end. If the daemon ends before it has begun anything,
// it asks the next daemon.
func (c *carrier) receive(conn *os.File, r *bufio.Reader) end {
	e := c.frames(r)
	for deadline := time.Now().Add(patience); !c.link.begun && e.ending(); {
		conn.Close()
		if time.Now().After(deadline) {
			return e
		}
		time.Sleep(pause)
		if !c.link.wanted() {
			return failure(wire.Cut, wire.CutHint)
		}
		var err error
		if conn, err = connect(c.socket); err != nil {
			return failure(wire.Gone, wire.GoneHint)
		}
		status, r, err := post(conn, c.ask.path+c.ask.query, upgrade, c.body)
		if err != nil {
			conn.Close()
			return failure(wire.NoAnswer, wire.NoAnswerHint)
		}
		c.link.attach(conn)
		if status == statusSwitching {
			e = c.frames(r)
		} else {
			e = problem(r)
		}
	}
	return e
}

// ending reports whether the end means that the daemon is ending and has begun nothing.
func (e end) ending() bool {
	if f := e.failure; f != nil {
		return f.Code == wire.CodeEnding
	}
	var res result
	return json.Unmarshal(e.result, &res) == nil && res.Error != nil &&
		res.Error.Code == wire.CodeEnding
}

// problem returns the error in the answer of a daemon that refused the request.
func problem(r io.Reader) end {
	var p struct {
		Error *ended.Failure `json:"error"`
	}
	if json.NewDecoder(io.LimitReader(r, 1<<20)).Decode(&p) == nil && p.Error != nil {
		return end{failure: p.Error}
	}
	return failure(wire.NoAnswer, wire.NoAnswerHint)
}

// frames handles the frames from the daemon until the result.
func (c *carrier) frames(r *bufio.Reader) end {
	var head [5]byte
	var buf []byte
	for {
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return broken(err)
		}
		size := binary.BigEndian.Uint32(head[1:])
		if size > wire.MaxFrame {
			return broken(fmt.Errorf("frame of %d bytes, at most %d", size, wire.MaxFrame))
		}
		if uint32(cap(buf)) < size {
			buf = make([]byte, size)
		}
		content := buf[:size]
		if _, err := io.ReadFull(r, content); err != nil {
			return broken(err)
		}
		if head[0] != wire.FrameResult {
			c.link.begins()
		}
		var err error
		stream := "standard output"
		switch head[0] {
		case wire.FrameCredit:
			select {
			case c.credit <- struct{}{}:
			default:
			}
		case wire.FrameOutput:
			_, err = os.Stdout.Write(content)
		case wire.FrameErrorOutput:
			stream = "standard error"
			_, err = os.Stderr.Write(content)
		case wire.FrameResult:
			return end{result: content}
		default:
			return failure(fmt.Sprintf("%s: the daemon sent a frame of kind %q", wire.NoSense,
				head[0]), wire.NoSenseHint)
		}
		if err != nil {
			return failure(stream+": "+cause(err).Error(), "")
		}
	}
}

// broken returns the failure for a connection that ended in the middle of a run's streams.
func broken(err error) end {
	for _, other := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, other) {
			return failure(wire.Cut, wire.CutHint)
		}
	}
	return failure(fmt.Sprintf(wire.Cut+": %v", err), wire.CutHint)
}

// A result has the fields of message.Result that decide whether jail-full must print something.
type result struct {
	ID        string            `json:"id"`
	ExitCode  int               `json:"exit_code"`
	Limit     *struct{}         `json:"limit"`
	Denied    []denied          `json:"denied"`
	Warnings  []json.RawMessage `json:"warnings"`
	Changes   changes           `json:"changes"`
	Workspace string            `json:"workspace"`
	Trap      *struct{}         `json:"trap"`
	Error     *ended.Failure    `json:"error"`
}

// A denied is a refused operation. A probe is one that programs try and do without.
type denied struct {
	Probe bool `json:"probe"`
}

// tells reports whether the command prints the refusal.
func (d denied) tells() bool { return !d.Probe }

type changes struct {
	Added    int64 `json:"added"`
	Modified int64 `json:"modified"`
	Deleted  int64 `json:"deleted"`
}

// finish exits with the tool's exit code if at most a line about changed files is to be printed.
// Otherwise jail-full prints the result and sets the exit code. stop returns the signal that ended
// the run, or 0.
func (c *carrier) finish(e end, stop func() syscall.Signal) {
	c.link.cancel()
	s := stop()
	if e.failure != nil {
		if s != 0 {
			// The connection was cut before there was a result.
			os.Exit(ended.ExitSignal + int(s))
		}
		tell(outcome{Failure: e.failure})
	}
	var res result
	err := json.Unmarshal(e.result, &res)
	if err != nil || res.Limit != nil || slices.ContainsFunc(res.Denied, denied.tells) ||
		len(res.Warnings) > 0 || res.Trap != nil || res.Error != nil {
		tell(outcome{Result: e.result, Quiet: c.ask.quiet, Explain: c.ask.explain})
	}
	if !c.ask.quiet {
		// An error cannot be reported: stderr itself failed.
		_, _ = os.Stderr.WriteString(ended.Changes(res.ID, res.Workspace, res.Changes.Added,
			res.Changes.Modified, res.Changes.Deleted, false))
	}
	os.Exit(res.ExitCode)
}

// kill asks the daemon to end the run with signal s in its result.
func (c *carrier) kill(s syscall.Signal) error {
	conn, err := connect(c.socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	status, _, err := post(conn, wire.PathRuns+"/"+c.ask.request.ID+"/kill", "Connection: close\r\n",
		[]byte(`{"signal":`+strconv.Itoa(int(s))+`}`))
	if err == nil && status != 200 {
		err = fmt.Errorf("status %d", status)
	}
	return err
}

// cause returns the errno in err, without the operation and the path.
func cause(err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	return err
}
