package fetch

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/supervisor/fetch/fetchtest"
)

// TestHTTP2: to a host the proxy speaks HTTP/1.1 and says so in its greeting; one that will not, or
// that speaks HTTP/2 without being asked, gives no answer that could be read in two ways (T-242,
// T-250).
func TestHTTP2(t *testing.T) {
	w := newWorld(t, anyTo, intercepts)
	var proto atomic.Value
	serve := fetchtest.HTTP(t, func(rw http.ResponseWriter, r *http.Request) {
		proto.Store(r.Proto)
		// The proxy may have gone.
		_, _ = io.WriteString(rw, "hi")
	})
	// An empty frame SETTINGS, with which a server begins.
	settings := "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	goAway := "\x00\x00\x08\x07\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01"
	for i, c := range []struct {
		name   string
		offers []string
		serve  func(net.Conn)
	}{
		{"both", []string{"h2", "http/1.1"}, serve},
		{"only", []string{"h3"},
			serve}, // Go's own servers let a client without h2 pass that offers nothing else
		{"deaf", nil, func(c net.Conn) {
			_, _ = io.WriteString(c, settings)
			_, _ = c.Read(make([]byte, 4096))
			_, _ = io.WriteString(c, goAway)
		}},
		{"after", nil, func(c net.Conn) { // an answer that calls itself HTTP/2
			_, _ = c.Read(make([]byte, 4096))
			_, _ = io.WriteString(c, "HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\nhi")
		}},
	} {
		name, ip := c.name+".example.com", fmt.Sprintf("93.184.216.%d", 60+i)
		w.names.Set(name, []string{ip})
		config := w.ca.Config(t, time.Now().Add(time.Hour), name)
		config.NextProtos = c.offers
		fetchtest.StartHost(t, ip+":443", config, c.serve)
	}
	if status, body := w.get("https://both.example.com/"); status != 200 || body != "hi" ||
		proto.Load() != "HTTP/1.1" {
		t.Errorf("%d %q, and the host was spoken to in %v", status, body, proto.Load())
	}
	for _, name := range []string{"only", "deaf", "after"} {
		if status, body := w.get("https://" + name + ".example.com/"); status != 502 ||
			!strings.Contains(body, codeUpstream) {
			t.Errorf("%s: %d %q", name, status, body)
		}
	}
	if _, ends, _ := w.notes.take(); len(ends) != 4 || ends[1].Error == "" || ends[2].Error == "" ||
		ends[3].Error == "" {
		t.Errorf("on record is %+v", ends)
	}
	// In a tunnel that the proxy opens it is offered HTTP/2 and takes HTTP/1.1; a tool that speaks
	// nothing else is told so in the greeting.
	c, err := w.inside("both.example.com", 443)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.ConnectionState().NegotiatedProtocol; got != "http/1.1" {
		t.Errorf("inside the tunnel: %q", got)
	}
	c.NetConn().Close()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(w.proxy.authority.pem)
	conn := w.tunnelTo("both.example.com:443")
	if err := tls.Client(conn, &tls.Config{ServerName: "both.example.com", RootCAs: roots,
		NextProtos: []string{"h2"}}).Handshake(); err == nil {
		t.Error("a tool that speaks HTTP/2 alone was let in")
	}
}

// tunnelTo asks for a tunnel and returns its inside.
func (w *world) tunnelTo(authority string) net.Conn {
	w.t.Helper()
	conn := w.stream()
	fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", authority, authority)
	var head []byte
	for one := make([]byte, 1); !bytes.HasSuffix(head, []byte("\r\n\r\n")); head = append(head,
		one[0]) {
		if _, err := conn.Read(one); err != nil {
			w.t.Fatalf("CONNECT %s: %q, %v", authority, head, err)
		}
	}
	if !bytes.HasPrefix(head, []byte("HTTP/1.1 200 ")) {
		w.t.Fatalf("CONNECT %s: %q", authority, head)
	}
	return conn
}

// TestHTTP2Opaque: what a tool and a host speak within their own TLS is their affair, HTTP/2 too.
func TestHTTP2Opaque(t *testing.T) {
	w := newWorld(t,
		"[[fetch.allow]]\nhost = \"up.example.com\"\nports = [443]\nmethods = [\"*\"]\n"+
			"paths = [\"/**\"]\ntls = \"opaque\"\n")
	w.names.Set(upName, []string{upIP})
	config := w.ca.Config(t, time.Now().Add(time.Hour), upName)
	config.NextProtos = []string{"h2", "http/1.1"}
	fetchtest.StartHost(t, upIP+":443", config, fetchtest.HTTP(t, func(rw http.ResponseWriter,
		r *http.Request) {
		_, _ = io.WriteString(rw, r.Proto)
	}))
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(w.ca.PEM)
	transport := &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: "proxy"}),
		ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: roots},
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return w.stream(),
				nil
		}}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Get("https://up.example.com/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "HTTP/2.0" ||
		resp.ProtoMajor != 2 {
		t.Errorf("%s: %q, %v", resp.Proto, body, err)
	}
}

// TestExplodingAnswers: the proxy never unpacks what a host has packed. An answer counts as what it
// is on the wire, and one without an end ends where its rule says (T-248, T-273).
func TestExplodingAnswers(t *testing.T) {
	rule := "[[fetch.allow]]\nhost = \"up.example.com\"\nports = [80]\nmethods = [\"*\"]\n" +
		"paths = [\"/**\"]\n"
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	zeros := make([]byte, 1<<20)
	for range 64 {
		if _, err := z.Write(zeros); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	gzipped := "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Encoding: gzip\r\n"
	whole := fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", gzipped, bomb.Len(), bomb.String())
	endless := func(piece string) func(io.Writer) {
		return func(to io.Writer) {
			_, err := io.WriteString(to, gzipped+"Transfer-Encoding: chunked\r\n\r\n")
			for err == nil {
				_, err = io.WriteString(to, piece)
			}
		}
	}
	for name, c := range map[string]struct {
		policy string
		answer func(io.Writer)
		whole  bool
		// Bytes that the tool may get, head and all.
		most int
	}{
		"a bomb, packed, fits": {rule + "response_size = \"128KiB\"\n", func(to io.Writer) {
			_,
				_ = io.WriteString(to, whole)
		}, true, 80 << 10},
		"endless": {rule + "response_size = \"100KiB\"\n",
			endless("1000\r\n" + strings.Repeat("\x00", 4096) + "\r\n"), false, 110 << 10},
		// Each byte takes six on the wire, and the wire is what counts for the run.
		"one byte a chunk": {rule + strings.Replace(limits, "bytes_in = \"64MiB\"",
			"bytes_in = \"60KiB\"", 1), endless(strings.Repeat("1\r\nx\r\n", 500)), false,
			64 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.policy)
			w.names.Set(upName, []string{upIP})
			up := fetchtest.StartHost(t, upIP+":80", nil, plain(func(to io.Writer, _ *http.Request,
				_ string) {
				c.answer(to)
			}))
			out := w.send(firstLines + "Accept-Encoding: gzip\r\n\r\n")
			_, ends, _ := w.notes.take()
			if !strings.HasPrefix(out, "HTTP/1.1 200 OK\r\n") || len(out) > c.most ||
				len(ends) != 1 || ends[0].Truncated == c.whole {
				t.Fatalf("%d bytes, on record is %+v", len(out), ends)
			}
			got, wrote, _ := up.Took()
			if c.whole && (!strings.HasSuffix(out, bomb.String()) || ends[0].BytesIn != wrote ||
				ends[0].BytesOut != int64(len(got))) {
				t.Errorf("%d bytes of %d came, the host sent %d and had %d, on record is %+v",
					len(out), len(whole), wrote, len(got), ends)
			}
			if !c.whole && strings.HasSuffix(out, "0\r\n\r\n") {
				t.Error("an answer that was cut off looks whole")
			}
		})
	}
}
