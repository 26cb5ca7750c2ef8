package export

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/supervisor/audit"
)

// waitFor bounds one operation of the receiver.
const waitFor = 30 * time.Second

// Open returns the sink for an address: "-" for out, the path of a file to append to, or a unix: or
// http(s): URL if the format supports it. It makes no connection before the first Send.
func Open(f Format, to string, h Host, out io.Writer) (Sink, error) {
	if to == "" || to == "-" {
		return &stream{format: f, host: h, w: out}, nil
	}
	u, err := url.Parse(to)
	if err != nil || u.Scheme == "" {
		return openFile(f, h, to)
	}
	cannot := func(want string) error {
		return fmt.Errorf("%s does not go to %s: it goes to %s", f, to, want)
	}
	switch f {
	case Journald:
		if u.Scheme == "unix" {
			return &journalSocket{host: h, path: socketPath(u)}, nil
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

// socketPath returns the path in a unix: URL; by default the journal's own socket.
func socketPath(u *url.URL) string {
	if u.Host+u.Path == "" {
		return "/run/systemd/journal/socket"
	}
	return u.Host + u.Path
}

// stream is a sink that writes to a file or standard output.
type stream struct {
	format Format
	host   Host
	w      io.Writer
	// f is the file that the sink closes; nil for standard output.
	f *os.File
}

// openFile opens a file for appending. It first terminates a line that a crash left unfinished.
func openFile(f Format, h Host, path string) (Sink, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o640)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		// A pipe or a terminal is only written to.
		return &stream{format: f, host: h, w: file, f: file}, nil
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
	return &stream{format: f, host: h, w: file, f: file}, nil
}

func (s *stream) Send(_ context.Context, batch []audit.Record) error {
	var b bytes.Buffer
	for _, r := range batch {
		b.Write(s.format.encode(s.host, r))
	}
	if _, err := s.w.Write(b.Bytes()); err != nil {
		// The records may be written in part, which a retry would not correct.
		return permanent(err)
	}
	if s.f == nil {
		return nil
	}
	// A pipe cannot be flushed (EINVAL).
	if err := s.f.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) {
		return permanent(err)
	}
	return nil
}

func (s *stream) Close() error {
	if s.f == nil {
		return nil
	}
	return s.f.Close()
}

// journalSocket sends each record to the journal's socket as a datagram. The journal does not
// acknowledge records: they count as delivered when the kernel has accepted them.
type journalSocket struct {
	host Host
	path string
	conn *net.UnixConn
}

func (j *journalSocket) Send(ctx context.Context, batch []audit.Record) error {
	err := j.connect(ctx)
	if err != nil {
		return err
	}
	err = j.conn.SetWriteDeadline(time.Now().Add(waitFor))
	for _, r := range batch {
		if err != nil {
			break
		}
		m := journal(j.host, r, false)
		if _, err = j.conn.Write(m); errors.Is(err, syscall.EMSGSIZE) {
			err = pass(j.conn, m)
		}
	}
	if err != nil {
		j.Close()
	}
	return err
}

func (j *journalSocket) connect(ctx context.Context) error {
	if j.conn != nil {
		return nil
	}
	dialer := net.Dialer{Timeout: waitFor}
	conn, err := dialer.DialContext(ctx, "unixgram", j.path)
	if err != nil {
		return err
	}
	j.conn = conn.(*net.UnixConn)
	return nil
}

// pass sends a message that is too long for a datagram as the descriptor of an unlinked file, as
// the protocol requires.
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
	// Package net sends no descriptors on a connected datagram socket.
	ctlErr := conn.Write(func(fd uintptr) bool {
		err = syscall.Sendmsg(int(fd), nil, rights, nil, 0)
		return !errors.Is(err, syscall.EAGAIN)
	})
	return errors.Join(err, ctlErr)
}

func (j *journalSocket) Close() error {
	if j.conn == nil {
		return nil
	}
	err := j.conn.Close()
	j.conn = nil
	return err
}

// maxAnswer bounds the bytes of a response that are read.
const maxAnswer = 64 << 10

// A poster is a sink that sends OTLP requests by HTTP.
type poster struct {
	host   Host
	url    string
	client *http.Client
}

func newPoster(h Host, u *url.URL) *poster {
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/logs"
	}
	// After a redirect the request would have no body.
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &poster{h, u.String(), &http.Client{Timeout: waitFor, CheckRedirect: stay}}
}

func (p *poster) Send(ctx context.Context, batch []audit.Record) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url,
		bytes.NewReader(otlp(p.host, batch)))
	if err != nil {
		return permanent(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "jail/"+p.host.Version)
	resp, err := p.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case resp.StatusCode == http.StatusTooManyRequests ||
		resp.StatusCode == http.StatusBadGateway ||
		resp.StatusCode == http.StatusServiceUnavailable ||
		resp.StatusCode == http.StatusGatewayTimeout ||
		resp.StatusCode == http.StatusRequestTimeout:
		after, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		return &sendError{error: fmt.Errorf("the server answered %d", resp.StatusCode),
			after: time.Duration(min(max(after, 0), 300)) * time.Second}
	case resp.StatusCode >= 500:
		return fmt.Errorf("the server answered %d", resp.StatusCode)
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		return permanent(fmt.Errorf("the server answered %d: %s", resp.StatusCode,
			audit.Printable(string(body[:min(len(body), 200)]))))
	case err != nil:
		return err
	}
	return rejected(body)
}

// rejected returns an error if the server accepted the request but not all of its records.
func rejected(body []byte) error {
	var answer struct {
		PartialSuccess struct {
			RejectedLogRecords json.Number `json:"rejectedLogRecords"`
			ErrorMessage       string      `json:"errorMessage"`
		} `json:"partialSuccess"`
	}
	if len(body) == 0 || json.Unmarshal(body, &answer) != nil {
		// A body that is not JSON counts as full success.
		return nil
	}
	if n := answer.PartialSuccess.RejectedLogRecords; n != "" && n != "0" {
		return &sendError{error: fmt.Errorf("the server rejected %s records: %s",
			audit.Printable(n.String()), audit.Printable(answer.PartialSuccess.ErrorMessage)),
			delivered: true}
	}
	return nil
}

func (p *poster) Close() error { p.client.CloseIdleConnections(); return nil }
