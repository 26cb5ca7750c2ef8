package execserver_test

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// TestFiles: a client reads and changes files of the shadow, by programs of the host and by jail's own
// modules, and the real directory stays as it is.
func TestFiles(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	h.Write(map[string]string{"f": "old\n", "d/e/g": "deep\n", "-n": "dash\n"})
	if err := os.Symlink("d", filepath.Join(h.Work, "link")); err != nil {
		t.Fatal(err)
	}
	for _, profile := range []string{"build", "default"} {
		c := connect(h, "--profile", profile)
		c.fails(-32600, "initialize", "fs/readFile", object{"path": c.uri("f")})
		info, _ := c.works("initialize", object{"clientName": "test"})["environmentInfo"].(object)
		if info["cwd"] != c.uri("") || info["platformOs"] != "linux" {
			t.Errorf("environment %v", info)
		}
		c.say(object{"method": "initialized"})
		reads(c)
		lists(c)
		changes(c)
		// What is outside of the jail is not there.
		c.fails(-32004, "No such file", "fs/readFile", object{"path": "file://" +
			filepath.Join(h.State, "jail.sock")})
		for _, bad := range []string{"/etc/passwd", "http://x/f", "file:f", "%"} {
			c.fails(-32602, "URI", "fs/readFile", object{"path": bad})
		}
		c.fails(-32602, "NUL", "fs/readFile", object{"path": "file:///a%00b"})
		c.fails(-32600, "another host", "fs/readFile", object{"path": "file://host/f"})
		if err := c.end(); err != nil {
			t.Error(err)
		}
		h.Holds("f", "old\n")
		stop(h)
	}
}

func b64(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

func (c *client) at(name string) object { return object{"path": c.uri(name), "sandbox": nil} }

// is checks what a file has.
func (c *client) is(name, want string) {
	c.h.T.Helper()
	if got := c.works("fs/readFile", c.at(name))["dataBase64"]; got != b64(want) {
		c.h.T.Errorf("%s has %v", name, got)
	}
}

func reads(c *client) {
	t := c.h.T
	t.Helper()
	c.is("f", "old\n")
	c.is("-n", "dash\n")
	c.is("link/e/g", "deep\n")
	c.fails(-32004, "No such file", "fs/readFile", c.at("none"))
	c.fails(-32600, "Is a directory", "fs/readFile", c.at("d"))
	c.works("fs/writeFile", object{"path": c.uri("f"), "dataBase64": b64("new\n")})
	c.is("f", "new\n")
	c.works("fs/writeFile", object{"path": c.uri("empty"), "dataBase64": ""})
	c.is("empty", "")
	c.fails(-32004, "No such file", "fs/writeFile", object{"path": c.uri("no/f"), "dataBase64": ""})
	c.fails(-32602, "base64", "fs/writeFile", object{"path": c.uri("f"), "dataBase64": "!"})

	m := c.works("fs/getMetadata", c.at("link"))
	if m["isDirectory"] != true || m["isSymlink"] != true || m["isFile"] != false {
		t.Errorf("metadata of a link %v", m)
	}
	m = c.works("fs/getMetadata", c.at("f"))
	if m["isFile"] != true || m["size"] != 4.0 || m["modifiedAtMs"].(float64) < 1e12 {
		t.Errorf("metadata of a file %v", m)
	}
	c.fails(-32004, "No such file", "fs/getMetadata", c.at("none"))
	if got := c.works("fs/canonicalize", c.at("link/e/g"))["path"]; got != c.uri("d/e/g") {
		t.Errorf("canonical %v", got)
	}

	c.works("fs/open", object{"handleId": "h", "path": c.uri("f")})
	c.fails(-32600, "in use", "fs/open", object{"handleId": "h", "path": c.uri("f")})
	// It is read as it was when it was opened.
	c.works("fs/writeFile", object{"path": c.uri("f"), "dataBase64": b64("later\n")})
	o := c.works("fs/readBlock", object{"handleId": "h", "offset": 1, "len": 2})
	if o["chunk"] != b64("ew") || o["eof"] != false {
		t.Errorf("a block %v", o)
	}
	o = c.works("fs/readBlock", object{"handleId": "h", "offset": 3, "len": 1 << 40})
	if o["chunk"] != b64("\n") || o["eof"] != true {
		t.Errorf("the last block %v", o)
	}
	c.works("fs/close", object{"handleId": "h"})
	c.fails(-32004, "unknown file handle", "fs/readBlock", object{"handleId": "h", "len": 1})
}

func lists(c *client) {
	t := c.h.T
	t.Helper()
	list := fmt.Sprint(c.works("fs/readDirectory", c.at(""))["entries"])
	for _, want := range []string{"map[fileName:f isDirectory:false isFile:true]",
		"map[fileName:d isDirectory:true isFile:false]",
		"map[fileName:link isDirectory:true isFile:false]"} {
		if !strings.Contains(list, want) {
			t.Errorf("the directory lacks %s: %s", want, list)
		}
	}
	c.fails(-32603, "Not a directory", "fs/readDirectory", c.at("f"))
	c.fails(-32004, "No such file", "fs/walk", object{"path": c.uri("none"),
		"options": object{"maxDepth": 1, "maxDirectories": 1, "maxEntries": 1}})
	c.fails(-32602, "maxEntries", "fs/walk", object{"path": c.uri(""), "options": object{}})
	for _, w := range []struct {
		depth, most int
		follow      bool
		has, lacks  string
		truncated   bool
	}{
		{0, 100, false, c.uri("d") + "]", "/d/e", false},
		{9, 100, false, c.uri("d/e/g"), "/link", false},
		{9, 100, true, c.uri("link/e/g"), "none", false},
		{9, 1, false, "kind:", "/d/e/g", true},
	} {
		got := c.works("fs/walk", object{"path": c.uri(""), "options": object{"maxDepth": w.depth,
			"maxDirectories": 100, "maxEntries": w.most, "followDirectorySymlinks": w.follow}})
		list := fmt.Sprint(got["entries"])
		if !strings.Contains(list, w.has) || strings.Contains(list, w.lacks) ||
			got["truncated"] != w.truncated {
			t.Errorf("walk %+v: %v", w, got)
		}
	}
}

func changes(c *client) {
	t := c.h.T
	t.Helper()
	c.works("fs/createDirectory", c.at("a/b"))
	c.fails(-32603, "exists", "fs/createDirectory", object{"path": c.uri("a/b"), "recursive": false})
	c.works("fs/copy", object{"sourcePath": c.uri("f"), "destinationPath": c.uri("a/b/f")})
	c.fails(-32600, "into itself", "fs/copy", object{"sourcePath": c.uri("a"),
		"destinationPath": c.uri("a/b/c"), "recursive": true})
	c.works("fs/copy", object{"sourcePath": c.uri("a"), "destinationPath": c.uri("a2"),
		"recursive": true})
	c.is("a2/b/f", "later\n")
	if m := c.call("fs/remove", object{"path": c.uri("a2"), "recursive": false}); m.Error == nil {
		t.Error("a directory that is not empty is removed")
	}
	c.works("fs/remove", c.at("a2"))
	c.works("fs/remove", c.at("a2"))
	c.fails(-32004, "No such file", "fs/remove", object{"path": c.uri("a2"), "force": false})
	c.works("fs/createDirectory", c.at("void"))
	c.works("fs/remove", object{"path": c.uri("void"), "recursive": false})
	c.fails(-32004, "No such file", "fs/getMetadata", c.at("void"))
}

// TestProcesses: processes of a client are invocations of the session.
func TestProcesses(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	h.Write(map[string]string{"f": "old\n"})
	c := connect(h).begin()
	c.start("a", nil, "/bin/bash", "-c", "cat f; echo new >f; echo problem >&2; pwd; exit 3")
	if out, code := c.ended("a"); code != 3 || !strings.Contains(out, "old\n") ||
		!strings.Contains(out, "problem\n") || !strings.Contains(out, h.Work+"\n") {
		t.Errorf("%q, %d", out, code)
	}
	h.Holds("f", "old\n")
	// The same is notified, in the order of its numbers.
	exits := 0
	for n, note := range c.notes {
		if note.Params.ProcessID != "a" || note.Params.Seq != uint64(n+1) {
			t.Errorf("notification %d is %+v", n+1, note)
		}
		if note.Method == "process/exited" && *note.Params.ExitCode == 3 {
			exits++
		}
	}

	c.start("in", object{"pipeStdin": true}, "head", "-n", "1")
	o := c.works("process/write", object{"processId": "in", "chunk": b64("hi\n"), "writeId": "1"})
	if o["status"] != "accepted" {
		t.Errorf("write %v", o)
	}
	if out, code := c.ended("in"); out != "hi\n" || code != 0 {
		t.Errorf("%q, %d", out, code)
	}
	// Its end has been notified by now.
	if last := c.notes[len(c.notes)-1]; exits != 1 && last.Method == "" {
		t.Errorf("notified %+v", c.notes)
	}
	c.start("tty", object{"tty": true}, "bash", "-c", "read a; tty && stty size && echo got $a")
	c.works("process/write", object{"processId": "tty", "chunk": b64("hi\n")})
	if out, code := c.ended("tty"); !strings.Contains(out, "/dev/pts/") || code != 0 ||
		!strings.Contains(out, "24 80") || !strings.Contains(out, "got hi") {
		t.Errorf("%q, %d", out, code)
	}

	// The environment is that of the policy, and what the client adds.
	c.start("env", object{"env": object{"A": "2"}, "envPolicy": object{"inherit": "all",
		"exclude": []string{}, "set": object{"A": "1", "B": "b"}, "includeOnly": []string{}}}, "env")
	out, _ := c.ended("env")
	for _, want := range []string{"A=2\n", "B=b\n", "HOME=/home/tool\n"} {
		if !strings.Contains("\n"+out, "\n"+want) {
			t.Errorf("the environment lacks %q: %q", want, out)
		}
	}
	if strings.Contains(out, "JAIL_STATE") {
		t.Errorf("environment %q", out)
	}

	// What is refused says so in its output.
	for program, want := range map[string]int{"no-such-program": 127, "/nope": 126} {
		c.start(program, nil, program)
		if out, code := c.ended(program); code != want || !strings.HasPrefix(out, "jail: error: ") {
			t.Errorf("%s: %q, %d", program, out, code)
		}
	}
	for want, params := range map[string]object{
		"argv":      {"processId": "x", "argv": []string{}},
		"processId": {"argv": []string{"true"}},
		"arg0":      {"processId": "x", "argv": []string{"true"}, "arg0": "other"},
	} {
		params["cwd"] = c.uri("")
		c.fails(-32602, want, "process/start", params)
	}
	c.fails(-32600, "enforceManagedNetwork", "process/start", object{"processId": "x",
		"argv": []string{"true"}, "cwd": c.uri(""), "enforceManagedNetwork": true})
	c.fails(-32600, "unknown process", "process/read", object{"processId": "none"})
	c.fails(-32602, "signal", "process/signal", object{"processId": "none", "signal": "kill"})
	c.fails(-32601, "http/request", "http/request", object{})
	c.fails(-32601, "does not implement", "fs/nothing", object{})
	c.fails(-32600, "once", "initialize", object{})
	if err := c.end(); err != nil {
		t.Error(err)
	}
	stop(h)
}

// TestEnds: processes end when a client says so, and with their client.
func TestEnds(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	c := connect(h).begin()
	c.start("deaf", nil, "sleep", "1000")
	c.fails(-32600, "already exists", "process/start", object{"processId": "deaf",
		"argv": []string{"x"}, "cwd": c.uri("")})
	if r := c.works("process/write", object{"processId": "deaf", "chunk": ""}); r["status"] != "stdinClosed" {
		t.Errorf("write %v", r)
	}
	if r := c.works("process/terminate", object{"processId": "deaf"}); r["running"] != true {
		t.Errorf("terminate %v", r)
	}
	if _, code := c.ended("deaf"); code != 137 {
		t.Errorf("after terminate %d", code)
	}
	if r := c.works("process/terminate", object{"processId": "deaf"}); r["running"] != false {
		t.Errorf("terminate again %v", r)
	}
	c.start("trap", nil, "bash", "-c", "trap 'exit 9' INT; echo ready; while :; do sleep 0.1; done")
	if r := c.works("process/read", object{"processId": "trap", "waitMs": 60_000}); r["closed"] != false {
		t.Errorf("read %v", r)
	}
	c.works("process/signal", object{"processId": "trap", "signal": "interrupt"})
	if _, code := c.ended("trap"); code != 9 && code != 130 {
		t.Errorf("after interrupt %d", code)
	}
	// Many at one time.
	for n := range 50 {
		c.start(fmt.Sprint(n), nil, "echo", fmt.Sprint(n))
	}
	for n := range 50 {
		if out, code := c.ended(fmt.Sprint(n)); out != fmt.Sprintln(n) || code != 0 {
			t.Errorf("%d: %q, %d", n, out, code)
		}
	}
	c.start("lasts", nil, "bash", "-c", "echo here; sleep 1000")
	c.works("process/read", object{"processId": "lasts", "waitMs": 60_000})
	if err := c.end(); err != nil {
		t.Error(err)
	}
	cmdtest.Eventually(t, "the process of the client that is gone ends", func() bool {
		all := h.Sessions()
		return len(all) == 1 && all[0].Running == 0
	})
	stop(h)
}

// TestApproval: a process whose tool waits for an approval says which, and starts once that is given.
func TestApproval(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	policy := filepath.Join(t.TempDir(), "ask.toml")
	if err := os.WriteFile(policy, []byte(`policy = 1
name = "ask"
about = "Ask about one program."
include = ["build"]

[[approve]]
action = "tool"
tool = "/usr/bin/id"
mode = "ask"
`), 0o644); err != nil {
		t.Fatal(err)
	}
	c := connect(h, "--policy", policy).begin()
	c.start("a", nil, "/usr/bin/id", "-u")
	out, code := c.ended("a")
	_, id, _ := strings.Cut(out, "jail approvals approve ")
	id, _, _ = strings.Cut(id, " ")
	if code != 126 || id == "" {
		t.Fatalf("%q, %d", out, code)
	}
	h.Wants(h.Jail("approvals", "approve", id), 0, "")
	c.start("b", nil, "/usr/bin/id", "-u")
	if out, code := c.ended("b"); code != 0 {
		t.Errorf("after the approval %q, %d", out, code)
	}
	c.end()
	stop(h)
}

// TestBroken: what breaks the protocol is answered or ends the connection, and nothing hangs.
func TestBroken(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	for name, each := range map[string]struct {
		input, out, err string
		code            int
	}{
		"no JSON":              {"hello\n", `"code":-32600`, "", 0},
		"an empty object":      {"{}\n", `"code":-32600`, "", 0},
		"a batch":              {"[]\n", `"code":-32600`, "", 0},
		"half a request":       {`{"id":1,"meth`, `"code":-32600`, "", 0},
		"an odd notification":  {`{"method":"drop"}` + "\n", "", "is not expected", 125},
		"initialized too soon": {`{"method":"initialized"}` + "\n", "", "is not expected", 125},
		"a huge message":       {strings.Repeat("x", 12<<20), "", "more than", 125},
		"nothing":              {"", "", "", 0},
		"another's session": {`{"id":1,"method":"initialize","params":{"clientName":"x",` +
			`"resumeSessionId":"y"}}` + "\n", "unknown session", "", 0},
	} {
		cmd := h.Command("exec-server")
		cmd.Stdin = strings.NewReader(each.input)
		o := h.Run(cmd)
		if o.Code != each.code || !strings.Contains(o.Out, each.out) || !strings.Contains(o.Err, each.err) {
			t.Errorf("%s: %d, %q, %q", name, o.Code, o.Out, o.Err)
		}
	}
	h.Wants(h.Jail("exec-server", "--listen", "ws://0.0.0.0:0"), 2, "must be a number of the loopback")
	h.Wants(h.Jail("exec-server", "--listen", "tcp"), 2, "neither stdio nor")
	// A server whose client says nothing more ends with a signal.
	cmd := h.Command("exec-server")
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if inErr != nil || outErr != nil {
		t.Fatal(inErr, outErr)
	}
	defer in.Close()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	io.WriteString(in, `{"id":1,"method":"initialize","params":{"clientName":"x"}}`+"\n")
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	interrupted(t, cmd.Process, cmd.Wait)
	stop(h)
}

// interrupted checks that a command ends as every one does that is interrupted.
func interrupted(t *testing.T, p *os.Process, wait func() error) {
	t.Helper()
	if err := p.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := wait(); err == nil || !strings.Contains(err.Error(), "interrupt") {
		t.Errorf("it ended with %v", err)
	}
}

// TestWebSocket: only who has the token, and names the address itself, reaches the server; each client
// has processes of its own.
func TestWebSocket(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	h.Write(map[string]string{"f": "old\n"})
	cmd := h.Command("exec-server", "--listen", "ws://127.0.0.1:0")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	url, err := bufio.NewReader(out).ReadString('\n')
	if url = strings.TrimSpace(url); err != nil || !strings.HasPrefix(url, "ws://127.0.0.1:") {
		t.Fatalf("it said %q, %v", url, err)
	}
	bare, _, _ := strings.Cut(url, "?")
	for name, each := range map[string]struct {
		url, host, origin string
		want              int
	}{
		"no token":       {bare, "", "", 401},
		"another token":  {bare + "?token=x", "", "", 401},
		"another origin": {url, "", "http://evil.example", 403},
		"a rebound name": {url, "evil.example", "", 403},
		"another path":   {strings.Replace(url, "/?", "/x?", 1), "", "", 404},
	} {
		o := &websocket.DialOptions{Host: each.host, HTTPHeader: http.Header{}}
		if each.origin != "" {
			o.HTTPHeader.Set("Origin", each.origin)
		}
		conn, r, err := websocket.Dial(t.Context(), each.url, o)
		if err == nil {
			conn.CloseNow()
			t.Errorf("%s: connected", name)
		} else if r == nil || r.StatusCode != each.want {
			t.Errorf("%s: %v, %+v", name, err, r)
		}
	}
	dial := func() *client {
		conn, _, err := websocket.Dial(t.Context(), url, nil)
		if err != nil {
			t.Fatal(err)
		}
		conn.SetReadLimit(1 << 20)
		lines := make(chan string)
		go func() {
			defer close(lines)
			for {
				_, text, err := conn.Read(t.Context())
				if err != nil {
					return
				}
				lines <- string(text)
			}
		}()
		return &client{h: h, lines: lines, end: conn.CloseNow, send: func(text string) error {
			return conn.Write(t.Context(), websocket.MessageText, []byte(text))
		}}
	}
	a, b := dial().begin(), dial().begin()
	a.start("p", nil, "bash", "-c", "echo new >f; echo here; sleep 1000")
	a.works("process/read", object{"processId": "p", "waitMs": 60_000})
	b.fails(-32600, "unknown process", "process/read", object{"processId": "p"})
	b.start("p", nil, "cat", "f")
	if out, code := b.ended("p"); out != "new\n" || code != 0 {
		t.Errorf("%q, %d", out, code)
	}
	h.Holds("f", "old\n")
	// One that is cut off loses its processes, and no other one does.
	a.end()
	cmdtest.Eventually(t, "the process of the client that is gone ends", func() bool {
		all := h.Sessions()
		return len(all) == 1 && all[0].Running == 0
	})
	b.start("q", nil, "echo", "on")
	if out, _ := b.ended("q"); out != "on\n" {
		t.Errorf("%q", out)
	}
	interrupted(t, cmd.Process, cmd.Wait)
	stop(h)
}
