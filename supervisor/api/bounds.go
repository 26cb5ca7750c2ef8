package api

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail/asuser"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

const (
	// bodyBound bounds how long a client may take to send a request body that is not a stream.
	bodyBound = 30 * time.Second
	// maxBodies bounds the total size in bytes of the request bodies that are read at one time.
	maxBodies = 256 << 20
	// turnedAway bounds how many surplus connections get an answer at one time; others are closed
	// without one.
	turnedAway = 16
	// toTurnAway bounds the time for one such answer.
	toTurnAway = time.Second
)

// shares divide a bound among users. A user may hold seven eighths of what the others leave, so
// that no user takes all; a sixteenth is reserved for root, since the watchdog is a client of root.
type shares struct {
	bound int64

	mu    sync.Mutex
	taken int64
	held  map[uint32]int64
}

func newShares(bound int64) *shares { return &shares{bound: bound, held: map[uint32]int64{}} }

// take reserves n for a user. It returns the function that releases n, or nil if n is more than the
// user may have.
func (s *shares) take(uid uint32, n int64) (give func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	most := s.bound - (s.taken - s.held[uid])
	if uid != 0 {
		most = (max(most-max(s.bound/16, 1), 0)*7 + 7) / 8
	}
	if s.held[uid]+n > most {
		return nil
	}
	s.taken += n
	s.held[uid] += n
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.taken -= n
		if s.held[uid] -= n; s.held[uid] == 0 {
			delete(s.held, uid)
		}
	})
}

// boundedListener is a listener that bounds the open connections, in total and per user.
type boundedListener struct {
	net.Listener
	open *shares
	// away holds a token for each connection that is being turned away.
	away chan struct{}
	// reserve is a spare descriptor. Accept closes it to answer a client with an error when the
	// process has no other left. It is nil if it could not be reopened.
	reserve *os.File
}

func newBoundedListener(l net.Listener, connections int) *boundedListener {
	b := &boundedListener{Listener: l, open: newShares(int64(connections)),
		away: make(chan struct{}, turnedAway)}
	b.refill()
	return b
}

func (b *boundedListener) refill() {
	if b.reserve == nil {
		// Without a reserve, clients wait in the socket's queue.
		b.reserve, _ = os.Open(os.DevNull)
	}
}

// refuse accepts the next client with the reserved descriptor and answers that none is left. It
// returns short if another goroutine used the reserve first.
func (b *boundedListener) refuse(short error) error {
	if b.reserve == nil {
		return short
	}
	b.reserve.Close()
	b.reserve = nil
	defer b.refill()
	conn, err := b.Listener.Accept()
	if err != nil {
		return err
	}
	turnAway(conn, problem.Short(short))
	return nil
}

// counted is a connection that releases its share when it is closed.
type counted struct {
	*net.UnixConn
	give func()
}

func (c counted) Close() error {
	defer c.give()
	return c.UnixConn.Close()
}

// Accept returns the next connection within the bounds. Surplus ones get an error as their answer.
func (b *boundedListener) Accept() (net.Conn, error) {
	for {
		b.refill()
		conn, err := b.Listener.Accept()
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
			if err := b.refuse(err); err != nil {
				return nil, err
			}
			continue
		}
		unix, ok := conn.(*net.UnixConn)
		if err != nil || !ok {
			// A connection that is not of a Unix socket is refused by callerOf.
			return conn, err
		}
		p, err := asuser.PeerOf(unix)
		if err != nil {
			// The client has closed it.
			unix.Close()
			continue
		}
		if give := b.open.take(p.UID, 1); give != nil {
			return counted{unix, give}, nil
		}
		select {
		case b.away <- struct{}{}:
			go func() {
				turnAway(unix, tooMany)
				<-b.away
			}()
		default:
			unix.Close()
		}
	}
}

var tooMany = problem.New(problem.Busy,
	"jaild is busy: the connections of this user, or of all users, are at their limit").
	WithHint("try again when some have ended")

// turnAway reads one request and answers it with the error why. It reads the whole body, since a
// client that is still sending would not see the answer.
func turnAway(conn net.Conn, why *problem.Error) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(toTurnAway))
	req, err := http.ReadRequest(bufio.NewReader(io.LimitReader(conn, maxRequest)))
	if err != nil {
		// The client sees the end of the connection.
		return
	}
	_, _ = io.Copy(io.Discard, req.Body)
	text, err := json.Marshal(Problem{why})
	if err != nil {
		return
	}
	resp := http.Response{StatusCode: http.StatusServiceUnavailable, ProtoMajor: 1, ProtoMinor: 1,
		Request: req, Close: true,
		Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: int64(len(text)),
		Body: io.NopCloser(strings.NewReader(string(text)))}
	// The client may be gone.
	_ = resp.Write(conn)
}

// measured wraps a handler: it bounds the time for reading a request body, and the total bytes of
// the bodies that are being read.
func measured(next http.Handler) http.Handler {
	bodies := newShares(maxBodies)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, err := callerOf(r.Context())
		if r.ContentLength == 0 || err != nil {
			next.ServeHTTP(w, r)
			return
		}
		size := r.ContentLength
		if size < 0 || size > maxRequest {
			// Reading ends at maxRequest.
			size = maxRequest
		}
		give := bodies.take(caller.UID, size)
		if give == nil {
			w.Header().Set("Connection", "close")
			writeProblem(w, problem.New(problem.Busy,
				"jaild is busy: the request bodies of this user, or of all users, are at their "+
					"limit").
				WithHint("try again"))
			return
		}
		defer give()
		control := http.NewResponseController(w)
		// Only a test's connection has no deadlines.
		_ = control.SetReadDeadline(time.Now().Add(bodyBound))
		r.Body = &measuredBody{r.Body, func() {
			_ = control.SetReadDeadline(time.Time{})
			give()
		}}
		next.ServeHTTP(w, r)
	})
}

type measuredBody struct {
	io.ReadCloser
	end func()
}

func (b *measuredBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.end()
	}
	return n, err
}
