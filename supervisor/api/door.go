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
	// bodyBound is how long a client may take to send the body of a request, which is no stream.
	bodyBound = 30 * time.Second
	// maxBodies bounds the bodies that are being read at one time, in bytes, all together.
	maxBodies = 256 << 20
	// turnedAway is how many connections beyond the bound are told so at one time; more are closed
	// without a word.
	turnedAway = 16
	// toTurnAway is how long that may take each.
	toTurnAway = time.Second
)

// shares hand out parts of a bound. A user may hold seven eighths of what the others leave, so that
// none takes it all; a sixteenth is root's alone, whose watchdog is among the clients.
type shares struct {
	bound int64

	mu    sync.Mutex
	taken int64
	held  map[uint32]int64
}

func newShares(bound int64) *shares { return &shares{bound: bound, held: map[uint32]int64{}} }

// take returns what gives n back, or nil if the user may not have so much.
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

// door is a listener that bounds the connections that are open at one time.
type door struct {
	net.Listener
	open *shares
	// away holds a token for each connection that is being turned away.
	away chan struct{}
	// reserve is a descriptor that Accept gives up to turn a client away when the process has no
	// other left. It is nil while it could not be opened again.
	reserve *os.File
}

func newDoor(l net.Listener, connections int) *door {
	d := &door{Listener: l, open: newShares(int64(connections)), away: make(chan struct{},
		turnedAway)}
	d.refill()
	return d
}

func (d *door) refill() {
	if d.reserve == nil {
		// Without a reserve a client waits in the queue of the socket, which is what it did before.
		d.reserve, _ = os.Open(os.DevNull)
	}
}

// refuse answers the next client with the reason that no descriptor is left, on the reserved one.
// It returns the error of Accept if another goroutine took the reserved descriptor first.
func (d *door) refuse(short error) error {
	if d.reserve == nil {
		return short
	}
	d.reserve.Close()
	d.reserve = nil
	defer d.refill()
	conn, err := d.Listener.Accept()
	if err != nil {
		return err
	}
	turnAway(conn, problem.Short(short))
	return nil
}

// A counted connection gives its place back when it is closed.
type counted struct {
	*net.UnixConn
	give func()
}

func (c counted) Close() error {
	defer c.give()
	return c.UnixConn.Close()
}

// Accept waits for one that may come in.
func (d *door) Accept() (net.Conn, error) {
	for {
		d.refill()
		conn, err := d.Listener.Accept()
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
			if err := d.refuse(err); err != nil {
				return nil, err
			}
			continue
		}
		unix, ok := conn.(*net.UnixConn)
		if err != nil || !ok {
			// what is no Unix socket is refused where the caller is asked for
			return conn, err
		}
		p, err := asuser.PeerOf(unix)
		if err != nil {
			unix.Close() // it is gone already
			continue
		}
		if give := d.open.take(p.UID, 1); give != nil {
			return counted{unix, give}, nil
		}
		select {
		case d.away <- struct{}{}:
			go func() {
				turnAway(unix, tooMany)
				<-d.away
			}()
		default:
			unix.Close()
		}
	}
}

var tooMany = problem.New(problem.Busy,
	"jaild is busy: it has as many connections as it takes, of you or in all").
	WithHint("try again when some have ended")

// turnAway answers one request with why, once the request is read: a client that has not sent all
// of it would see a broken connection and no answer.
func turnAway(conn net.Conn, why *problem.Error) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(toTurnAway))
	req, err := http.ReadRequest(bufio.NewReader(io.LimitReader(conn, maxRequest)))
	if err != nil {
		// it is told by the end
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
	// a client that is gone needs no answer
	_ = resp.Write(conn)
}

// measured bounds the bodies of requests in time, and all together in bytes, until they are read.
func (srv *Server) measured(next http.Handler) http.Handler {
	bodies := newShares(maxBodies)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, err := callerOf(r.Context())
		if r.ContentLength == 0 || err != nil {
			next.ServeHTTP(w, r)
			return
		}
		size := r.ContentLength
		if size < 0 || size > maxRequest {
			size = maxRequest // where reading ends
		}
		give := bodies.take(caller.UID, size)
		if give == nil {
			w.Header().Set("Connection", "close")
			writeProblem(w, problem.New(problem.Busy,
				"jaild is busy: it is reading as much of requests as it takes, of you or in all").
				WithHint("try again"))
			return
		}
		defer give()
		control := http.NewResponseController(w)
		// what knows no deadlines is a test's
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
