package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/wire"
)

// frames reads so many frames of a client, as kinds and contents.
func frames(t *testing.T, r *bufio.Reader, n int) string {
	var all strings.Builder
	for range n {
		kind, content, err := readFrame(r, nil, wire.MaxClientFrame)
		if err != nil {
			t.Error(err)
			return ""
		}
		all.WriteByte(byte(kind))
		all.Write(content)
	}
	return all.String()
}

// daemons answer one connection each, one after the other: what comes after the switch to streams
// is theirs.
func daemons(t *testing.T, all ...func(conn net.Conn, r *bufio.Reader)) *Client {
	return newClient(func(context.Context) (net.Conn, error) {
		if len(all) == 0 {
			return nil, io.EOF
		}
		daemon := all[0]
		all = all[1:]
		ours, theirs := net.Pipe()
		go func() {
			defer theirs.Close()
			r := bufio.NewReader(theirs)
			req, err := http.ReadRequest(r)
			if err != nil {
				t.Error(err)
				return
			}
			io.Copy(io.Discard, req.Body)
			io.WriteString(theirs,
				"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+Upgrade+
					"\r\n\r\n")
			daemon(theirs, r)
		}()
		return ours, nil
	}, nil)
}

func sendFrame(t *testing.T, conn net.Conn, kind FrameKind, content string) {
	frame := append([]byte{byte(kind), 0, 0, byte(len(content) >> 8), byte(len(content))},
		content...)
	if _, err := conn.Write(frame); err != nil {
		t.Error(err)
	}
}

func sendResult(t *testing.T, conn net.Conn, res message.Result) {
	text, err := json.Marshal(res)
	if err != nil {
		t.Error(err)
	}
	sendFrame(t, conn, wire.FrameResult, string(text))
}

var ending = message.Result{ExitCode: 125,
	Error: &problem.Error{Code: problem.Ending, Message: "it ends"}}

// A run that a daemon had not begun when it ended, however long it had been at that, is the next
// one's: with all of its input.
func TestRunIsTheNextDaemons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := make(chan string, 2)
		c := daemons(t, func(conn net.Conn, r *bufio.Reader) {
			got <- frames(t, r, 2)
			time.Sleep(3 * patience) // it compiles
			sendResult(t, conn, ending)
		}, func(conn net.Conn, r *bufio.Reader) {
			got <- frames(t, r, 2)
			sendFrame(t, conn, wire.FrameCredit, "")
			sendFrame(t, conn, wire.FrameOutput, "out")
			sendResult(t, conn, message.Result{ExitCode: 7})
		})
		var out bytes.Buffer
		res, err := c.Run(t.Context(), message.Request{}, strings.NewReader("typed"), &out,
			io.Discard)
		if err != nil || res.Error != nil || res.ExitCode != 7 || out.String() != "out" {
			t.Errorf("%+v, %v, %q", res, err, out.String())
		}
		if first, then := <-got, <-got; first != "itypede" || then != first {
			t.Errorf("input of the first %q, of the next %q", first, then)
		}
	})
}

// What a daemon has begun is not begun again; nor is anything asked for without an end.
func TestRunIsBegunOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := daemons(t, func(conn net.Conn, r *bufio.Reader) {
			frames(t, r, 1)
			sendFrame(t, conn, wire.FrameErrorOutput, "x")
			sendResult(t, conn, ending)
		})
		if res, err := c.Run(t.Context(), message.Request{}, nil, io.Discard,
			io.Discard); err != nil || res.Error == nil || res.Error.Code != problem.Ending {
			t.Errorf("%+v, %v", res, err)
		}
		asked := 0
		busy := func(conn net.Conn, r *bufio.Reader) {
			asked++
			frames(t, r, 1)
			sendResult(t, conn, ending)
		}
		all := make([]func(net.Conn, *bufio.Reader), 10_000)
		for i := range all {
			all[i] = busy
		}
		begun := time.Now()
		res, err := daemons(t, all...).Run(t.Context(), message.Request{}, nil, io.Discard,
			io.Discard)
		if err != nil || res.Error == nil || res.Error.Code != problem.Ending || asked < 2 ||
			time.Since(begun) > patience+time.Second {
			t.Errorf("%+v, %v, asked %d times in %v", res, err, asked, time.Since(begun))
		}
	})
}
