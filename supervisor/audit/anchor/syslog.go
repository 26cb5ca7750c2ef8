package anchor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/supervisor/audit"
)

// syslogPort is the default port of a collector (RFC 5426; collectors use it for TCP, too).
const syslogPort = "514"

// notePriority is facility 13, "log audit", with severity 6, "informational" (RFC 5424, table 1).
const notePriority = 13*8 + 6

// openSyslog returns the sender for a syslog collector at udp://HOST[:PORT], tcp://HOST[:PORT] or
// unix:///PATH. Syslog has no responses: a message that the kernel accepted counts as sent.
func openSyslog(u *url.URL) (sender, error) {
	network, address := u.Scheme, u.Host+u.Path
	switch u.Scheme {
	case "udp", "tcp":
		if u.Hostname() == "" || u.Path != "" || u.User != nil || u.RawQuery != "" {
			return nil, fmt.Errorf(
				"%s is no address of a collector, such as %s://logs.example.com:%s", u, u.Scheme,
				syslogPort)
		}
		port := cmp.Or(u.Port(), syslogPort)
		address = net.JoinHostPort(u.Hostname(), port)
	case "unix":
		network = "unixgram"
		address = cmp.Or(address, "/dev/log")
	default:
		return nil, fmt.Errorf("%s is no address of a collector", u)
	}
	return func(ctx context.Context, h audit.Head) error {
		return sendSyslog(ctx, network, address, h)
	}, nil
}

func sendSyslog(ctx context.Context, network, address string, h audit.Head) error {
	dialer := net.Dialer{Timeout: sendWithin}
	conn, err := dialer.DialContext(ctx, network, address)
	if network == "unixgram" && errors.Is(err, syscall.EPROTOTYPE) {
		// The collector has a stream socket.
		conn, err = dialer.DialContext(ctx, "unix", address)
	}
	if err != nil {
		return err
	}
	// Without a name the message has none.
	host, _ := os.Hostname()
	m := syslogMessage(host, h, time.Now())
	if n := conn.RemoteAddr().Network(); n == "tcp" || n == "unix" {
		// RFC 6587, 3.4.1: the length stands before the message.
		m = fmt.Appendf(nil, "%d %s", len(m), m)
	}
	err = conn.SetWriteDeadline(time.Now().Add(sendWithin))
	if err == nil {
		_, err = conn.Write(m)
	}
	return errors.Join(err, conn.Close())
}

// syslogMessage returns the RFC 5424 message with h as JSON, after the cookie "@cee:" by which
// collectors recognize JSON. [audit.ParseAnchors] finds the note in it.
func syslogMessage(host string, h audit.Head, now time.Time) []byte {
	// RFC 5424, 7.3.1: from 1 to 2147483647.
	id := max(h.Size&(1<<31-1), 1)
	return fmt.Appendf(nil,
		"<%d>1 %s %s jail %d anchor [origin software=\"jail\"][meta sequenceId=\"%d\"] @cee: %s",
		notePriority, now.UTC().Format("2006-01-02T15:04:05.000000Z"), hostName(host), os.Getpid(),
		id, headJSON(h))
}

// hostName returns a host's name in the form that RFC 5424 requires.
func hostName(s string) string {
	s = strings.Map(func(c rune) rune {
		if c <= ' ' || c > '~' {
			return -1
		}
		return c
	}, s)
	if s == "" {
		return "-"
	}
	return s[:min(len(s), 255)]
}
