package execserver_test

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

func TestMain(m *testing.M) { os.Exit(cmdtest.Main(m)) }

type object = map[string]any

// A client speaks to one exec-server.
type client struct {
	h    *cmdtest.Host
	send func(text string) error
	// lines are the messages of the server, until it ends.
	lines <-chan string
	// end ends the connection and returns what became of the server.
	end func() error

	last int
	// notes are the notifications that have come.
	notes []message
}

type message struct {
	ID     int
	Method string
	Params struct {
		ProcessID string
		Seq       uint64
		ExitCode  *int
	}
	Result object
	Error  *struct {
		Code    int
		Message string
	}
}

// connect starts jail exec-server and speaks to it over its standard streams.
func connect(h *cmdtest.Host, flags ...string) *client {
	h.T.Helper()
	cmd := h.Command(append([]string{"exec-server"}, flags...)...)
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if inErr != nil || outErr != nil {
		h.T.Fatal(inErr, outErr)
	}
	var errOut strings.Builder
	cmd.Stderr = &errOut
	if err := cmd.Start(); err != nil {
		h.T.Fatal(err)
	}
	lines := make(chan string)
	go func() {
		defer close(lines)
		for r := bufio.NewReader(out); ; {
			l, err := r.ReadString('\n')
			if err != nil {
				return
			}
			lines <- l
		}
	}()
	end := sync.OnceValue(func() error {
		in.Close()
		for range lines {
		}
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("%w: %s", err, errOut.String())
		}
		return nil
	})
	h.T.Cleanup(func() { end() })
	return &client{h: h, lines: lines, end: end, send: func(text string) error {
		_, err := io.WriteString(in, text+"\n")
		return err
	}}
}

// begin does the handshake.
func (c *client) begin() *client {
	c.h.T.Helper()
	c.works("initialize", object{"clientName": "test"})
	c.say(object{"method": "initialized", "params": object{}})
	return c
}

func (c *client) say(m any) {
	c.h.T.Helper()
	text, err := json.Marshal(m)
	if err == nil {
		err = c.send(string(text))
	}
	if err != nil {
		c.h.T.Fatal(err)
	}
}

// call sends a request and returns its answer.
func (c *client) call(method string, params object) message {
	c.h.T.Helper()
	c.last++
	c.say(object{"id": c.last, "method": method, "params": params})
	for text := range c.lines {
		var m message
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			c.h.T.Fatalf("%s: %v", text, err)
		}
		if m.Method == "" {
			if m.ID != c.last {
				c.h.T.Fatalf("an answer to %d, not to %d", m.ID, c.last)
			}
			return m
		}
		c.notes = append(c.notes, m)
	}
	c.h.T.Fatalf("the server has ended: %v", c.end())
	return message{}
}

func (c *client) works(method string, params object) object {
	c.h.T.Helper()
	m := c.call(method, params)
	if m.Error != nil {
		c.h.T.Errorf("%s %v: %+v", method, params, *m.Error)
	}
	return m.Result
}

func (c *client) fails(code int, want, method string, params object) {
	c.h.T.Helper()
	m := c.call(method, params)
	if m.Error == nil || m.Error.Code != code || !strings.Contains(m.Error.Message, want) {
		c.h.T.Errorf("%s %v: %+v, %v; want %d %q", method, params, m.Error, m.Result, code, want)
	}
}

// uri is the name of a file of the workspace.
func (c *client) uri(name string) string { return "file://" + filepath.Join(c.h.Work, name) }

// start starts a process.
func (c *client) start(id string, more object, argv ...string) {
	c.h.T.Helper()
	params := object{"processId": id, "argv": argv, "cwd": c.uri(""), "env": object{}, "tty": false,
		"arg0": nil}
	for k, v := range more {
		params[k] = v
	}
	c.works("process/start", params)
}

// ended reads a process to its end and returns what it wrote and how it ended.
func (c *client) ended(id string) (output string, code int) {
	c.h.T.Helper()
	var after any
	for {
		r := c.works("process/read", object{"processId": id, "afterSeq": after, "maxBytes": 1 << 16,
			"waitMs": 60_000})
		chunks, _ := r["chunks"].([]any)
		for _, each := range chunks {
			text, err := base64.StdEncoding.DecodeString(each.(object)["chunk"].(string))
			if err != nil {
				c.h.T.Fatal(err)
			}
			output += string(text)
		}
		next, ok := r["nextSeq"].(float64)
		if !ok {
			c.h.T.Fatalf("process/read %s: %v", id, r)
		}
		after = uint64(next) - 1
		if r["closed"] == true {
			return output, int(r["exitCode"].(float64))
		}
	}
}

// stop ends the session that a server leaves.
func stop(h *cmdtest.Host) {
	h.T.Helper()
	for _, s := range h.Sessions() {
		h.Wants(h.Jail("session", "stop", "--discard", s.ID), 0, "")
	}
}
