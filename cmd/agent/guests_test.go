package agent_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// loop is a guest in Python that makes the calls of its events, over the connections that connect
// makes. It tells what it can do to the file of its database by name.
const loop = `
import http.client, json, os, socket, sys

%CONNECT%

def ask(method, path, body=None):
    c = connect()
    c.request(method, path, body and json.dumps(body))
    answer = json.loads(c.getresponse().read())
    c.close()
    return answer

def look(name):
    try:
        return open(name, "rb").read(6).decode()
    except OSError as e:
        return type(e).__name__

while True:
    n = ask("GET", "/events?wait=30000")
    if n["type"] == "wake":
        print("awake", os.environ["AGENT_ID"], os.environ["AGENT_BINDINGS"], file=sys.stderr)
    if n["type"] == "sleep":
        sys.exit(0)
    if n["type"] == "event":
        e = n["event"]
        answers = []
        for c in e["data"]["calls"]:
            if c["method"] == "look":
                answers.append({"result": look(c["params"]["name"])})
                continue
            call = {"method": c["method"], "params": c.get("params", {})}
            answers.append(ask("POST", "/rpc/" + c["binding"], call))
        ask("POST", "/rpc/PUBSUB", {"method": "send", "params": {"content": answers}})
        ask("POST", "/rpc/HOST", {"method": "checkpoint", "params": {"seq": e["seq"]}})
`

const overListener = `
listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, fileno=int(os.environ["JAIL_AGENT_FD"]))

class Stream(socket.socket):
    def _real_close(self):
        try:
            super()._real_close()
        except OSError:
            pass  # some builds of CPython know no more of a stream than to read and write it

class Connection(http.client.HTTPConnection):
    def connect(self):
        fd, _ = listener._accept()
        self.sock = Stream(socket.AF_INET, socket.SOCK_STREAM, 0, fileno=fd)

def connect():
    return Connection("agent")
`

const overLoopback = `
def connect():
    return http.client.HTTPConnection("127.0.0.1", 3129)
`

// TestScripts: a guest in Python has the same calls over the listener of its bundle's engine, and on
// the loopback of a jail of the host's Python. The latter cannot open the database by its name.
func TestScripts(t *testing.T) {
	h := cmdtest.NewPolicyHost(t, nil)
	cmdtest.CompiledBundles(h.Host, "python")
	for name, connect := range map[string]string{"agent": overListener,
		"agent-native": overLoopback} {
		t.Run(name, func(t *testing.T) {
			for _, o := range []owner{root, {1234, "1234"}} {
				dir := state(t, h, o)
				req := request(t, o, dir)
				req.Profile, req.Tool = name, "python3"
				if name == "agent-native" {
					cmdtest.Have(t, "/usr/bin/python3")
					req.Tool = "/usr/bin/python3"
				}
				req.Args = []string{"-c", strings.Replace(loop, "%CONNECT%", connect, 1)}
				r, _ := wake(t, h, o, req)
				answers, failed := r.event(1, sql("exec", "CREATE TABLE t (a)"),
					sql("run", "INSERT INTO t VALUES (?)", "x"), sql("query", "SELECT * FROM t"),
					call{"HOST", "look", map[string]any{"name": "/run/jail/agent/state/state.db"}},
					call{"STORAGE", "nonsense", map[string]any{}})
				if failed != nil {
					t.Fatalf("%+v\n%s", failed, r.output())
				}
				if string(answers[2].Result) != `[{"a":"x"}]` {
					t.Errorf("%s, %+v", answers[2].Result, answers[2].Error)
				}
				var seen string
				if err := json.Unmarshal(answers[3].Result, &seen); err != nil ||
					!strings.HasSuffix(seen, "Error") {
					t.Errorf("the database by its name: %q, %v", seen, err)
				}
				if e := answers[4].Error; e == nil || e.Code != "no_method" {
					t.Errorf("%+v", e)
				}
				res := r.sleep()
				if res.ExitCode != 0 || res.Error != nil {
					t.Errorf("%+v\n%s", res, r.output())
				}
				if !strings.Contains(r.output(), "awake agent:"+o.name+":test PUBSUB,STORAGE") {
					t.Errorf("the guest wrote %q", r.output())
				}
				// The control: on the host it is a database.
				text, err := os.ReadFile(filepath.Join(dir, "state.db"))
				if err != nil || !strings.HasPrefix(string(text), "SQLite") {
					t.Errorf("%.6q, %v", text, err)
				}
			}
		})
	}
}
