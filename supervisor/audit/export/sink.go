package export

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/supervisor/audit"
)

// waitFor is how long the other end may take for one thing.
const waitFor = 30 * time.Second

// defaultPorts are those of syslog over UDP (RFC 5426) and over TCP, as collectors have it.
var defaultPorts = map[string]string{"udp": "514", "tcp": "514"}

// Open returns the sink that an address names: "-" for out, a path of a file that is appended to, or udp:, tcp:, unix: or http(s): where the format
// has that. Nothing is connected before the first Send.
func Open(f Format, to string, h Host, out io.Writer) (Sink, error) {
	if to == "" || to == "-" {
		return &stream{format: f, host: h, w: out}, nil
	}
	u, err := url.Parse(to)
	if err != nil || u.Scheme == "" {
		return openFile(f, h, to)
	}
	cannot := func(want string) error { return fmt.Errorf("%s does not go to %s: it goes to %s", f, to, want) }
	switch f {
	case Syslog:
		switch u.Scheme {
		case "udp", "tcp":
			if u.Hostname() == "" || u.Path != "" || u.User != nil || u.RawQuery != "" {
				return nil, fmt.Errorf("%s is no address of a collector, such as %s://logs.example.com:514", to, u.Scheme)
			}
			port := u.Port()
			if port == "" {
				port = defaultPorts[u.Scheme]
			}
			return &datagrams{host: h, network: u.Scheme, address: net.JoinHostPort(u.Hostname(), port), encode: syslog}, nil
		case "unix":
			return &datagrams{host: h, network: "unixgram", address: socketPath(u, "/dev/log"), encode: syslog}, nil
		}
		return nil, cannot("udp://HOST:PORT, tcp://HOST:PORT, unix:///dev/log, a file or -")
	case Journald:
		if u.Scheme == "unix" {
			entry := func(h Host, r audit.Record, _ int) []byte { return journal(h, r, false) }
			return &datagrams{host: h, network: "unixgram", address: socketPath(u, "/run/systemd/journal/socket"), encode: entry, passes: true}, nil
		}
		return nil, cannot("unix:///run/systemd/journal/socket, a file or -")
	case OTLP:
		if (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" && u.User == nil {
			return newPoster(h, u), nil
		}
		return nil, cannot("http://HOST:4318/v1/logs, https://…, a file or -")
	}
	return nil, cannot("a file or -")
}

// socketPath is the path of a unix: address.
func socketPath(u *url.URL, usual string) string {
	if u.Host+u.Path == "" {
		return usual
	}
	return u.Host + u.Path
}

// A stream is a file or standard output.
type stream struct {
	format Format
	host   Host
	w      io.Writer
	f      *os.File // where it is a file of its own
	begun  bool
}

// openFile appends to a file. A line that a crash left unfinished is ended, so that the next one is whole.
func openFile(f Format, h Host, path string) (Sink, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o640)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		return &stream{format: f, host: h, w: file, f: file}, nil // a pipe or terminal
	}
	var last [1]byte
	if err == nil && info.Size() > 0 {
		if _, err = file.ReadAt(last[:], info.Size()-1); err == nil && last[0] != '\n' {
			_, err = file.WriteString("\n")
		}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &stream{format: f, host: h, w: file, f: file, begun: info.Size() > 0}, nil
}

func (s *stream) Send(_ context.Context, batch []audit.Record) error {
	var b bytes.Buffer
	if !s.begun {
		b.Write(s.format.header())
	}
	for _, r := range batch {
		b.Write(s.format.encode(s.host, r))
	}
	if _, err := s.w.Write(b.Bytes()); err != nil {
		return &PermanentError{err} // part of it may be written: no second try puts that right
	}
	s.begun = true
	if s.f == nil {
		return nil
	}
	if err := s.f.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) { // of a pipe
		return &PermanentError{err}
	}
	return nil
}

func (s *stream) Close() error {
	if s.f == nil {
		return nil
	}
	return s.f.Close()
}

// maxDatagram is what a syslog message over UDP or a socket may have at most, with room for the headers below it.
const maxDatagram = 60000

// datagrams are messages each of its own, or one behind the other on a connection, each with its length before it (RFC 6587, 3.4.1). A network
// protocol without answers cannot say that the other end took them: what the kernel took counts as delivered.
type datagrams struct {
	host    Host
	network string
	address string
	encode  func(h Host, r audit.Record, limit int) []byte
	passes  bool // a message that is too long is passed as a file
	conn    net.Conn
}

func (d *datagrams) Send(ctx context.Context, batch []audit.Record) error {
	if err := d.connect(ctx); err != nil {
		return err
	}
	err := d.send(batch)
	if err != nil {
		d.Close()
	}
	return err
}

func (d *datagrams) connect(ctx context.Context) error {
	if d.conn != nil && d.network == "tcp" && gone(d.conn) {
		d.Close()
	}
	if d.conn != nil {
		return nil
	}
	var err error
	dialer := net.Dialer{Timeout: waitFor}
	if d.conn, err = dialer.DialContext(ctx, d.network, d.address); d.network == "unixgram" && errors.Is(err, syscall.EPROTOTYPE) {
		d.conn, err = dialer.DialContext(ctx, "unix", d.address) // a collector that listens for connections
	}
	return err
}

// gone reports whether the other end has closed the connection, on which it never says anything.
func gone(c net.Conn) bool {
	_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := c.Read(make([]byte, 1))
	return err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
}

func (d *datagrams) send(batch []audit.Record) error {
	if err := d.conn.SetWriteDeadline(time.Now().Add(waitFor)); err != nil {
		return err
	}
	if d.conn.RemoteAddr().Network() == "unixgram" || d.network == "udp" {
		for _, r := range batch {
			if err := d.one(d.encode(d.host, r, maxDatagram)); err != nil {
				return err
			}
		}
		return nil
	}
	var b bytes.Buffer
	for _, r := range batch {
		m := d.encode(d.host, r, 0)
		fmt.Fprintf(&b, "%d ", len(m))
		b.Write(m)
	}
	_, err := d.conn.Write(b.Bytes())
	return err
}

func (d *datagrams) one(m []byte) error {
	_, err := d.conn.Write(m)
	if u, ok := d.conn.(*net.UnixConn); ok && d.passes && errors.Is(err, syscall.EMSGSIZE) {
		return pass(u, m)
	}
	return err
}

// pass hands a message over as a file that has no name any more, as the journal takes it where it is too long for a datagram.
func pass(c *net.UnixConn, m []byte) error {
	f, err := os.CreateTemp("/dev/shm", "jail-journal-")
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.Write(m)
	if err = errors.Join(err, os.Remove(f.Name())); err != nil {
		return err
	}
	conn, err := c.SyscallConn()
	if err != nil {
		return err
	}
	rights := syscall.UnixRights(int(f.Fd()))
	ctlErr := conn.Write(func(fd uintptr) bool { // which net does not send on a connected socket of datagrams
		err = syscall.Sendmsg(int(fd), nil, rights, nil, 0)
		return !errors.Is(err, syscall.EAGAIN)
	})
	return errors.Join(err, ctlErr)
}

func (d *datagrams) Close() error {
	if d.conn == nil {
		return nil
	}
	err := d.conn.Close()
	d.conn = nil
	return err
}
