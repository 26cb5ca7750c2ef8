package fetch

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/supervisor/fetch/fetchtest"
)

func intercepts(s *Setup) { s.Intercept = true }

// inside returns the inside of a tunnel whose TLS ends at the proxy.
func (w *world) inside(host string, port int) (*tls.Conn, error) {
	w.t.Helper()
	conn := w.stream()
	fmt.Fprintf(conn, "CONNECT %s:%d HTTP/1.1\r\nHost: %s:%d\r\n\r\n", host, port, host, port)
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, &http.Request{Method: "CONNECT"})
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != 200 {
		body, err := io.ReadAll(resp.Body)
		return nil, fmt.Errorf("%d %s, %v", resp.StatusCode, body, err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(w.proxy.authority.pem)
	c := tls.Client(conn,
		&tls.Config{ServerName: host, RootCAs: roots, NextProtos: []string{"h2", "http/1.1"}})
	return c, c.Handshake()
}

// sendInside sends raw bytes inside a tunnel and returns all that comes back.
func (w *world) sendInside(host string, port int, raw string) string {
	w.t.Helper()
	c, err := w.inside(host, port)
	if err != nil {
		return err.Error()
	}
	defer c.NetConn().Close()
	go func() {
		// The proxy may refuse before it has read all.
		_, _ = io.WriteString(c, raw)
		_ = c.CloseWrite()
	}()
	// What was said before a reset counts.
	out, _ := io.ReadAll(c)
	return string(out)
}

// TestIntercept: inside a tunnel that the run's own authority opens, each request is decided with
// its method and path, and sent as any other.
func TestIntercept(t *testing.T) {
	w := newWorld(t,
		"[[fetch.allow]]\nhost = \"up.example.com\"\nports = [443, 8443]\nmethods = [\"GET\"]\n"+
			"paths = [\"/ok/**\"]\nwebsocket = false\ntls = \"intercept\"\n"+
			"[[fetch.allow]]\nhost = \"opaque.example.com\"\nports = [443]\nmethods = [\"*\"]\n"+
			"paths = [\"/**\"]\ntls = \"opaque\"\n", intercepts)
	for _, name := range []string{upName, "opaque.example.com", "evil.example.com"} {
		w.names.Set(name, []string{upIP})
	}
	config := w.ca.Config(t, time.Now().Add(time.Hour), upName, "opaque.example.com")
	up := fetchtest.StartHost(t, upIP+":443", config, plain(func(wr io.Writer, r *http.Request,
		_ string) {
		text := r.Host + " " + r.RequestURI
		fmt.Fprintf(wr, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
	}))
	one := "GET /ok/%d HTTP/1.1\r\nHost: up.example.com\r\n\r\n"
	out := w.sendInside(upName, 443, fmt.Sprintf(one, 1)+fmt.Sprintf(one, 2)+
		"GET /no HTTP/1.1\r\nHost: up.example.com\r\n\r\n"+fmt.Sprintf(one, 3))
	if strings.Count(out, "HTTP/1.1 200") != 2 || !strings.Contains(out,
		"up.example.com /ok/2HTTP/1.1 403") || strings.Contains(out, "/ok/3") {
		t.Errorf("%q", out)
	}
	intents, ends, refused := w.notes.take()
	if len(intents) != 2 || len(ends) != 2 || len(refused) != 1 ||
		intents[0].Mode != modeIntercept || intents[0].Scheme != "https" ||
		intents[1].Path != "/ok/2" ||
		refused[0].Mode != modeIntercept || refused[0].Path != "/no" ||
		!strings.HasPrefix(ends[0].Peer, "sha256:") {
		t.Errorf("%+v %+v %+v", intents, ends, refused)
	}
	up.Took()
	for name, raw := range map[string]string{
		"another host": "GET /ok/ HTTP/1.1\r\nHost: evil.example.com\r\n\r\n",
		"a URL": "GET https://up.example.com/ok/ HTTP/1.1\r\n" +
			"Host: up.example.com\r\n\r\n",
		"another URL": "GET http://evil.example.com/ok/ HTTP/1.1\r\n" +
			"Host: evil.example.com\r\n\r\n",
		"a user": "GET @evil.example.com/ok/ HTTP/1.1\r\nHost: up.example.com\r\n\r\n",
		"a tunnel": "CONNECT up.example.com:443 HTTP/1.1\r\n" +
			"Host: up.example.com:443\r\n\r\n",
		"an asterisk":       "OPTIONS * HTTP/1.1\r\nHost: up.example.com\r\n\r\n",
		"the preface of h2": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"another port":      "GET /ok/ HTTP/1.1\r\nHost: up.example.com:8443\r\n\r\n",
		"a websocket": "GET /ok/ HTTP/1.1\r\nHost: up.example.com\r\n" +
			"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n",
		"a method":            "DELETE /ok/ HTTP/1.1\r\nHost: up.example.com\r\n\r\n",
		"a way out of a path": "GET /ok/../no HTTP/1.1\r\nHost: up.example.com\r\n\r\n",
	} {
		if out := w.sendInside(upName, 443, raw+fmt.Sprintf(one, 9)); !strings.HasPrefix(out,
			"HTTP/1.1 40") || len(statusLine.FindAllString(out, -1)) != 1 {
			t.Errorf("%s: %q", name, out)
		}
	}
	if _, err := w.inside("evil.example.com", 443); err == nil || !strings.Contains(err.Error(),
		"403") {
		t.Errorf("a host that no rule grants: %v", err)
	}
	if _, err := w.inside(upName, 22); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("a port that no rule grants: %v", err)
	}
	if _, err := w.inside("opaque.example.com", 443); err == nil || !strings.Contains(err.Error(),
		"unknown authority") {
		t.Errorf("an opaque tunnel answers with the proxy's certificate: %v", err)
	}
	w.forget()
	if got, _, _ := up.Took(); bytes.Contains(got, []byte("/ok/")) {
		t.Errorf("the host was sent %q", got)
	}
	w.notes.take()
	for name, sni := range map[string]string{"another name": "evil.example.com", "no name": "",
		"an address": "93.184.216.34"} {
		if err := w.greet(sni, w.ca.PEM); err == nil {
			t.Errorf("%s is let in", name)
		}
	}
	// A control of what is trusted.
	if err := w.greet(upName, w.ca.PEM); err == nil {
		t.Error("the authority of the world vouches for the proxy")
	}
	if _, _, refused := w.notes.take(); len(refused) < 1 || !strings.Contains(refused[0].Rule,
		"TLS with the proxy") {
		t.Errorf("%+v", refused)
	}
}

// greet opens a tunnel and sends a greeting with that name.
func (w *world) greet(sni string, roots []byte) error {
	conn := w.stream()
	fmt.Fprint(conn, "CONNECT up.example.com:443 HTTP/1.1\r\nHost: up.example.com:443\r\n\r\n")
	if resp, err := http.ReadResponse(bufio.NewReader(conn),
		&http.Request{Method: "CONNECT"}); err != nil || resp.StatusCode != 200 {
		return fmt.Errorf("%v, %v", resp, err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(roots)
	config := &tls.Config{ServerName: sni, RootCAs: pool}
	if sni == "" || net.ParseIP(sni) != nil {
		// Nothing but what the proxy says counts.
		config.InsecureSkipVerify = true
	}
	return tls.Client(conn, config).Handshake()
}

// TestAuthority: two runs trust each other's authority for nothing, and a certificate is for its
// host and a server alone.
func TestAuthority(t *testing.T) {
	one, err := newAuthority(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	two, err := newAuthority(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("a", 60) + ".example.com"
	for _, host := range []string{upName, long} {
		c, err := one.sign(host)
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := x509.ParseCertificate(c.Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		for name, a := range map[string]struct {
			from *authority
			host string
			use  x509.ExtKeyUsage
			want bool
		}{
			"its own":      {one, host, x509.ExtKeyUsageServerAuth, true},
			"another run":  {two, host, x509.ExtKeyUsageServerAuth, false},
			"another host": {one, "x." + host, x509.ExtKeyUsageServerAuth, false},
			"a client":     {one, host, x509.ExtKeyUsageClientAuth, false},
		} {
			pool := x509.NewCertPool()
			pool.AppendCertsFromPEM(a.from.pem)
			if _, err := leaf.Verify(x509.VerifyOptions{DNSName: a.host, Roots: pool,
				KeyUsages: []x509.ExtKeyUsage{a.use}}); (err == nil) != a.want {
				t.Errorf("%s, %s: %v", host, name, err)
			}
		}
		if again, err := one.sign(host); err != nil || again != c {
			t.Errorf("%s has a second certificate, %v", host, err)
		}
	}
}
