package tools

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/runners/wasi/guest"
)

// withProxy is a context whose guests reach a proxy of the tests, which decides nothing, so that a
// test sees how a command handles responses. The tests of the built programs use the real proxy.
var withProxy = sync.OnceValue(func() context.Context {
	host, child, err := control.Pair("fetch socket")
	if err != nil {
		panic(err)
	}
	go func() {
		for {
			var request control.OpenStream
			if _, err := host.Receive(&request); err != nil {
				return
			}
			fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
			if err != nil {
				panic(err)
			}
			theirs, ours := os.NewFile(uintptr(fds[0]), "stream"), os.NewFile(uintptr(fds[1]),
				"stream")
			if err := host.Send(control.Opened{}, theirs); err != nil {
				panic(err)
			}
			theirs.Close()
			conn, err := net.FileConn(ours)
			if err != nil {
				panic(err)
			}
			ours.Close()
			go serveStream(conn)
		}
	}()
	return guest.WithProxy(context.Background(), guest.NewProxy(child))
})

// serveStream answers one request as the fetch proxy does.
func serveStream(conn net.Conn) {
	defer conn.Close()
	req, err := http.ReadRequest(bufio.NewReader(conn))
	if err != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	resp, err := exchange(ctx, req)
	if err != nil {
		resp = refusal(err)
	}
	go func() {
		_, _ = conn.Read(make([]byte, 1)) // nothing comes any more: the guest is gone
		cancel()
	}()
	defer resp.Body.Close()
	head := fmt.Sprintf("HTTP/1.1 %s\r\n", resp.Status)
	for name, values := range resp.Header {
		for _, v := range values {
			head += name + ": " + v + "\r\n"
		}
	}
	none := req.Method == http.MethodHead || resp.StatusCode == 204 || resp.StatusCode == 304
	chunks := resp.ContentLength < 0 && !none
	if chunks {
		head += "Transfer-Encoding: chunked\r\n"
	}
	fmt.Fprint(conn, head+"Connection: close\r\n\r\n")
	if none {
		return
	}
	buf := make([]byte, 10000)
	for {
		n, err := resp.Body.Read(buf)
		if n > 0 && chunks {
			fmt.Fprintf(conn, "%x\r\n%s\r\n", n, buf[:n])
		} else if n > 0 {
			conn.Write(buf[:n])
		}
		if err != nil {
			if chunks && errors.Is(err, io.EOF) {
				fmt.Fprint(conn, "0\r\n\r\n")
			}
			return
		}
	}
}

var upstream = &http.Transport{DisableKeepAlives: true, DisableCompression: true}

func exchange(ctx context.Context, req *http.Request) (*http.Response, error) {
	switch {
	case !req.URL.IsAbs():
		return nil, errors.New("bad_request the request names no http:// or https:// URL")
	case strings.HasPrefix(req.URL.Path, "/denied"):
		return nil, errors.New(`fetch_denied GET http://x/denied is not allowed: "quoted"`)
	}
	out := req.Clone(ctx)
	out.RequestURI, out.Close = "", false
	out.Header.Del("Connection")
	resp, err := upstream.RoundTrip(out)
	var e *net.DNSError
	switch {
	case errors.As(err, &e):
		return nil, errors.New("upstream " + req.URL.Hostname() + ": no such host (name has no " +
			"address)")
	case err != nil:
		return nil, errors.New("upstream " + strings.ReplaceAll(err.Error(), "\n", " "))
	}
	return resp, nil
}

func refusal(err error) *http.Response {
	code, message, _ := strings.Cut(err.Error(), " ")
	body, _ := json.Marshal(map[string]any{"error": map[string]string{"code": code, "message": message,
		"next": "do something else"}})
	status := map[string]int{"upstream": 502, "fetch_denied": 403, "bad_request": 400}[code]
	return &http.Response{Status: fmt.Sprint(status, " X"), StatusCode: status, ContentLength: int64(len(body)), Body: io.NopCloser(strings.NewReader(string(body))),
		Header: http.Header{"X-Jail-Fetch": {code}, "Content-Length": {fmt.Sprint(len(body))}}}
}

// web is a host that says what it was asked, and does what tests want.
func web(w http.ResponseWriter, r *http.Request) {
	path, q := r.URL.Path, r.URL.Query()
	switch {
	case strings.HasPrefix(path, "/status/"):
		var code int
		fmt.Sscanf(path, "/status/%d", &code)
		w.WriteHeader(code)
		fmt.Fprintln(w, "status", code)
	case path == "/redirect":
		var code int
		if fmt.Sscan(q.Get("code"), &code); code == 0 {
			code = 302
		}
		w.Header().Set("Location", q.Get("to"))
		w.WriteHeader(code)
		fmt.Fprintln(w, "elsewhere")
	case strings.HasPrefix(path, "/loop"):
		http.Redirect(w, r, path+"x", http.StatusFound)
	case path == "/slow":
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
		case <-time.After(30 * time.Second):
		}
	case path == "/cut":
		w.Header().Set("Content-Length", "1000")
		w.Write([]byte("only this"))
	case path == "/empty":
	case path == "/chunks":
		for i := range 5 {
			fmt.Fprintf(w, "chunk %d\n", i)
			w.(http.Flusher).Flush()
		}
	case path == "/big":
		w.Write([]byte(strings.Repeat("0123456789abcdef", 200_000)))
	case r.URL.Path == "/agent":
		fmt.Fprint(w, r.UserAgent())
	default:
		body, _ := io.ReadAll(r.Body)
		u := (&url.URL{Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery}).String()
		fmt.Fprintf(w, "%s %s\nbody=%q\n"+
			"type=%q accept=%q x=%q auth=%q cookie=%q referer=%q length=%d\n", r.Method, u, body, r.Header.Get(
			"Content-Type"),
			r.Header.Get("Accept"), r.Header["X-Test"], r.Header.Get("Authorization"), r.Header.Get(
				"Cookie"), r.Referer(), r.ContentLength)
		if strings.HasPrefix(r.UserAgent(), "given") {
			fmt.Fprintln(w, r.UserAgent())
		}
	}
}
