package fetch

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/supervisor/fetch/fetchtest"
)

// BenchmarkServe is one request after the other on one stream, within this process.
func BenchmarkServe(b *testing.B) {
	w := benchWorld(b)
	benchStream(b, w.stream())
}

// BenchmarkProcess is the same through a proxy's own process and what it asks of the daemon, with a
// record in memory.
func BenchmarkProcess(b *testing.B) {
	w := benchWorld(b)
	p := startProcess(b, w, func(error) {})
	socket := control.New(p.Door)
	benchStream(b, openStream(b, socket))
	b.Cleanup(func() { p.Close(); socket.Close() })
}

func benchWorld(b *testing.B) *world {
	w := newWorld(b,
		anyTo+"[fetch.limits]\nrequests = 100000000\nbytes_in = \"1TiB\"\nbytes_out = \"1TiB\"\n"+
			"concurrent = 64\ntimeout = \"10s\"\n")
	w.names.Set(upName, []string{upIP})
	fetchtest.StartHost(b, upIP+":80", nil, says("hi"))
	return w
}

func benchStream(b *testing.B, conn io.ReadWriter) {
	r := bufio.NewReader(conn)
	for b.Loop() {
		if _, err := io.WriteString(conn, firstLines+"\r\n"); err != nil {
			b.Fatal(err)
		}
		resp, err := http.ReadResponse(r, nil)
		if err == nil && resp.StatusCode != 200 {
			err = fmt.Errorf("status %d", resp.StatusCode)
		}
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
