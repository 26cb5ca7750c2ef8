package fetch

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Bounds of connections to hosts.
const (
	// connectTime bounds the time to connect to one address.
	connectTime   = 10 * time.Second
	handshakeTime = 10 * time.Second
	maxAnswerHead = 256 << 10 // bytes
	// maxIdle bounds the idle connections to one host.
	maxIdle  = 4
	idleTime = 15 * time.Second
	// oldest bounds the age of a kept connection, so that the host's name is resolved again.
	oldest = time.Minute
)

// meter counts the bytes of a connection on the wire, and fails reads and writes when a budget is
// used up.
type meter struct {
	net.Conn
	in, out atomic.Int64
	mu      sync.Mutex
	budgets []*budget
	spent   error
}

func (m *meter) Read(p []byte) (int, error) {
	n, err := m.Conn.Read(p)
	m.in.Add(int64(n))
	if e := m.spend(int64(n), 0); e != nil {
		return 0, e
	}
	return n, err
}

// Write counts p against the budgets before it sends.
func (m *meter) Write(p []byte) (int, error) {
	if err := m.spend(0, int64(len(p))); err != nil {
		return 0, err
	}
	n, err := m.Conn.Write(p)
	m.out.Add(int64(n))
	return n, err
}

func (m *meter) spend(in, out int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.budgets {
		if err := p.spend(in, out); err != nil && m.spent == nil {
			m.spent = err
		}
	}
	return m.spent
}

func (m *meter) charge(budgets []*budget) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.budgets = budgets
}

// upstream is one connection to a host.
type upstream struct {
	meter *meter
	// conn is the meter, or the TLS connection over it.
	conn net.Conn
	r    *bufio.Reader
	cap  *capped
	addr netip.AddrPort
	// socket is the path of the Unix socket that the connection is to; "" if it is to addr.
	socket  string
	made    time.Time
	used    time.Time
	version string
	peer    string
	connect time.Duration
	tls     time.Duration
}

// capped is a reader that bounds the bytes of a head. Bodies have other bounds.
type capped struct {
	r    io.Reader
	left int64
}

var errAnswerHead = errors.New("the head of the answer is too large")

func (c *capped) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, errAnswerHead
	}
	n, err := c.r.Read(p)
	c.left -= int64(n)
	return n, err
}

func (c *capped) lift()  { c.left = math.MaxInt64 }
func (c *capped) lower() { c.left = maxAnswerHead }

// dial connects to the first of addrs that accepts. The caller has checked all of them.
func dial(ctx context.Context, addrs []netip.Addr, port uint16, budgets []*budget) (*upstream,
	error) {
	var errs []error
	for _, a := range addrs {
		start := time.Now()
		one, cancel := context.WithTimeout(ctx, connectTime)
		to := netip.AddrPortFrom(a.Unmap(), port)
		conn, err := (&net.Dialer{}).DialContext(one, "tcp", to.String())
		cancel()
		if err != nil {
			errs = append(errs, err)
			if ctx.Err() != nil {
				break
			}
			continue
		}
		u := newUpstream(conn, start, budgets)
		u.addr = to
		return u, nil
	}
	return nil, errors.Join(errs...)
}

// newUpstream returns the upstream for a connection whose setup began at start.
func newUpstream(conn net.Conn, start time.Time, budgets []*budget) *upstream {
	m := &meter{Conn: conn, budgets: budgets}
	return &upstream{meter: m, conn: m, made: time.Now(), connect: time.Since(start)}
}

// address returns the address of the host in the form of records.
func (u *upstream) address() string {
	if u.socket != "" {
		return "unix:" + u.socket
	}
	return u.addr.String()
}

func (u *upstream) reader() {
	u.cap = &capped{r: u.conn, left: math.MaxInt64}
	u.r = bufio.NewReaderSize(u.cap, 16<<10)
}

// secure starts TLS on the connection. It verifies the certificate for host against roots.
func (u *upstream) secure(ctx context.Context, host string, roots *x509.CertPool) error {
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	start := time.Now()
	conn := tls.Client(u.meter, &tls.Config{ServerName: host, RootCAs: roots,
		MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}})
	if err := conn.HandshakeContext(ctx); err != nil {
		return fmt.Errorf("TLS: %w", err)
	}
	state := conn.ConnectionState()
	u.conn, u.tls, u.version = conn, time.Since(start), tls.VersionName(state.Version)
	u.peer = fmt.Sprintf("sha256:%x", sha256.Sum256(state.PeerCertificates[0].Raw))
	return nil
}

// close closes the connection. An error is ignored: unsent bytes are lost anyway.
func (u *upstream) close() { _ = u.meter.Conn.Close() }

// pool keeps idle connections for later requests of the run to the same scheme, host and port.
type pool struct {
	mu   sync.Mutex
	idle map[string][]*upstream
}

func (p *pool) take(key string) *upstream {
	p.mu.Lock()
	defer p.mu.Unlock()
	for list := p.idle[key]; len(list) > 0; list = p.idle[key] {
		u := list[len(list)-1]
		p.idle[key] = list[:len(list)-1]
		if time.Since(u.used) < idleTime && time.Since(u.made) < oldest && u.quiet() {
			return u
		}
		u.close()
	}
	return nil
}

// quiet reports whether an idle connection is still open and has received no bytes.
func (u *upstream) quiet() bool {
	raw, ok := u.meter.Conn.(syscall.Conn)
	if !ok || u.r.Buffered() > 0 {
		return false
	}
	conn, err := raw.SyscallConn()
	if err != nil {
		return false
	}
	var peekErr error
	err = conn.Read(func(fd uintptr) bool {
		var b [1]byte
		_, _, peekErr = syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		return true
	})
	return err == nil && errors.Is(peekErr, syscall.EAGAIN)
}

func (p *pool) put(key string, u *upstream) {
	u.used = time.Now()
	u.meter.charge(nil)
	// The next read reports an error.
	_ = u.meter.SetDeadline(time.Time{})
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.idle == nil {
		p.idle = map[string][]*upstream{}
	}
	if len(p.idle[key]) >= maxIdle {
		u.close()
		return
	}
	p.idle[key] = append(p.idle[key], u)
}
