//go:build wasip1 || linux

// Command rawfetch says to the fetch proxy what no client would, from inside a jail: as a WASI guest over the streams of its listener or by the
// host functions, as a program of the host over the jail's loopback. Its standard input is JSON, a list of what to say; for each it prints a line of
// JSON with what came back.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"time"
)

// A say is one thing to say.
type say struct {
	Name string
	Way  string // stream, tunnel or function
	Raw  []byte // over a stream, or inside a tunnel
	Host string // of the tunnel

	// What a function is called with.
	Method, URL, Headers string
	Body                 []byte
	Length               int64
}

// A heard is what came back.
type heard struct {
	Name     string
	First    string // the beginning of the answer, or the error
	Statuses int    // how many answers there are in it
	Errno    int    // of a function
}

const (
	patience = 60 * time.Second // against hanging alone
	most     = 64 << 10         // bytes of what comes back
	shown    = 400
)

var statusLine = regexp.MustCompile(`HTTP/1\.1 \d{3} `)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "rawfetch:", err)
		os.Exit(1)
	}
}

func run() error {
	var all []say
	if err := json.NewDecoder(os.Stdin).Decode(&all); err != nil {
		return err
	}
	w := bufio.NewWriter(os.Stdout)
	out := json.NewEncoder(w)
	for _, s := range all {
		h := heard{Name: s.Name}
		switch s.Way {
		case "function":
			h.First, h.Errno = call(s)
		default:
			text, err := speak(s)
			if err != nil && text == "" {
				text = "error: " + err.Error()
			}
			h.First, h.Statuses = text[:min(len(text), shown)], len(statusLine.FindAllString(text, -1))
		}
		if err := out.Encode(h); err != nil {
			return err
		}
	}
	return w.Flush()
}

// speak sends raw bytes and returns all that comes back.
func speak(s say) (string, error) {
	conn, err := dial()
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	var to interface {
		io.ReadWriter
		CloseWrite() error
	} = conn.(*net.TCPConn)
	if s.Way == "tunnel" {
		if to, err = tunnel(conn, s.Host); err != nil {
			return "", err
		}
	}
	go func() {
		_, _ = to.Write(s.Raw) // the proxy may refuse before it has read all
		_ = to.CloseWrite()
	}()
	text, err := io.ReadAll(io.LimitReader(to, most))
	return string(text), err
}
