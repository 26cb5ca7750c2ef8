package session_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/jail/landlock"
)

// holds is an invocation that has something of each row of the table, and says what of that another
// one needs.
const holds = `import ctypes, json, os, signal, socket, stat, sys, threading
common = sys.argv[1]
exec(common)
mine = {"files of the workspace": "a", "/tmp": "/tmp/a", "cache": "/cache/a", "/dev/shm": "/dev/shm/a"}
for path in mine.values():
    open(path, "w").write("text of a")
tcp = socket.create_server(("127.0.0.1", 0))
abstract = socket.socket(socket.AF_UNIX); abstract.bind("\0table-of-sessions"); abstract.listen()
named = socket.socket(socket.AF_UNIX); named.bind("/tmp/named"); named.listen()
libc.shmget(0x7461626c, 4096, 0o1600)
libc.mq_open(b"/table", os.O_CREAT | os.O_RDWR, 0o600, None)
for n in range(100):
    threading.Thread(target=signal.pause, daemon=True).start()
opened = [os.open("/dev/null", os.O_RDONLY) for n in range(200)]
open("big", "wb").write(os.urandom(10 << 20))
os.environ["LEFT"] = "1"
os.chdir("/tmp")
print(json.dumps({"port": tcp.getsockname()[1], "streams": streams(), "proxy": proxy(), "policy": policy()}), flush=True)
while True:
    c, _ = named.accept()
    socket.send_fds(c, [b"x"], [os.open("/tmp/a", os.O_RDONLY)])
    c.close()
`

// sees is an invocation beside that one. It says of each row whether it shares that.
const sees = `import json, signal, threading
exec(sys.argv[1])
of = json.loads(sys.argv[2])
def exists(path):
    return os.path.exists(path)
def connects(s, to):
    try:
        s.connect(to)
        return True
    except OSError:
        return False
def passed():
    s = socket.socket(socket.AF_UNIX)
    if not connects(s, "/tmp/named"):
        return False
    _, fds, _, _ = socket.recv_fds(s, 1, 1)
    return os.read(fds[0], 100) == b"text of a"
def threads():
    try:
        for n in range(120):
            threading.Thread(target=signal.pause, daemon=True).start()
    except RuntimeError:
        return True
    return False
def descriptors():
    try:
        fds = [os.open("/dev/null", os.O_RDONLY) for n in range(200)]
    except OSError:
        return True
    for fd in fds:
        os.close(fd)
    return False
def room():
    try:
        with open("big2", "wb") as f:
            f.write(os.urandom(10 << 20))
    except OSError:
        return True
    finally:
        os.remove("big2")
    return False
def processes():
    found = False
    for pid in os.listdir("/proc"):
        if pid.isdigit() and int(pid) != os.getpid():
            try:
                found = found or b"table-of-sessions" in open("/proc/" + pid + "/cmdline", "rb").read()
            except OSError:
                pass
    return found
print(json.dumps({
    "files of the workspace": exists("a"),
    "` + "`/tmp`" + ` and other tmpfs mounts of the policy": exists("/tmp/a"),
    "caches": exists("/cache/a"),
    "` + "`/dev/shm`" + `": exists("/dev/shm/a"),
    "processes, signals": processes(),
    "loopback, TCP and UDP ports": connects(socket.socket(), ("127.0.0.1", of["port"])),
    "abstract Unix sockets": connects(socket.socket(socket.AF_UNIX), "\0table-of-sessions"),
    "System V IPC, POSIX message queues": libc.shmget(0x7461626c, 4096, 0) >= 0 or libc.mq_open(b"/table", os.O_RDWR) >= 0,
    "standard streams, terminal": bool(set(map(tuple, of["streams"])) & set(map(tuple, streams()))),
    "Unix sockets and named pipes with a path in the workspace or a tmpfs mount": passed(),
    "environment, working directory": "LEFT" in os.environ or "GIVEN" in os.environ or os.getcwd() == "/tmp",
    "limits ` + "`memory`, `pids`, `cpus`" + `": threads(),
    "other limits, ` + "`[fetch.limits]`" + `": descriptors(),
    "limits ` + "`workspace`, `workspace_files`" + `": room(),
    "fetch proxy, its budgets and certificate": of["proxy"] == proxy(),
    "policy": of["policy"] == policy(),
}), flush=True)
`

// common is what both of them need.
const common = `import ctypes, hashlib, json, os, socket, stat, sys
libc = ctypes.CDLL(None)
def streams():
    all = [os.fstat(n) for n in range(3)]
    return [[s.st_dev, s.st_ino] for s in all if not stat.S_ISCHR(s.st_mode)]
def proxy():
    return hashlib.sha256(open("/run/jail/certificates.pem", "rb").read()).hexdigest()
def policy():
    return json.load(open("/run/jail/policy.json"))["digest"]
`

// TestTableOfSessions: each row of the table of docs/sessions.md that says what the invocations of a
// session share is as a session is, with one loopback and with a loopback for each.
func TestTableOfSessions(t *testing.T) {
	cmdtest.Have(t, "/usr/bin/python3")
	table := tableOf(t)
	abi, err := landlock.ABI()
	if err != nil {
		t.Fatal(err)
	}
	for _, loopback := range []string{"shared", "own"} {
		t.Run(loopback, func(t *testing.T) {
			h := cmdtest.New(t)
			h.Daemon()
			id := h.Session("--policy", buildWith(h, "table", `[session]
loopback = "`+loopback+`"
[[mount]]
target = "/cache"
access = "cache"
name = "table"
size = "16MiB"
[[fetch.allow]]
host = "example.com"
ports = [443]
methods = ["GET"]
paths = ["/**"]
[fetch.limits]
requests = 10
bytes_in = "1MiB"
bytes_out = "1MiB"
concurrent = 2
timeout = "30s"
[env]
allow = ["*"]
[limits]
pids = 200
memory = "2GiB"
wall = "20m"
open_files = 256
workspace = "16MiB"
file_size = "16MiB"
`))
			h.Wants(h.Exec(id, "--background", "--id", "a", "--env", "GIVEN=1", "--", "python3", "-c",
				holds, common, "table-of-sessions"), 0, "")
			var of string
			cmdtest.Eventually(t, "the first invocation has everything", func() bool {
				of = h.Jail("logs", "a").Out
				return strings.HasSuffix(of, "\n")
			})
			o := h.Exec(id, "--id", "b", "--", "python3", "-c", "import os, sys\n"+sees, common, of)
			got := map[string]bool{}
			if err := json.Unmarshal([]byte(o.Out), &got); err != nil {
				t.Fatalf("%v: %+v", err, o)
			}
			got["user and group ids"] = cmdtest.PlanOf(h, "a").IDs.Base == cmdtest.PlanOf(h, id).IDs.Base
			h.Wants(h.Jail("kill", "a"), 0, "")
			h.Jail("wait", "a")
			got["id, result, records"] = h.GlobalID("a") == h.GlobalID("b") ||
				len(h.Records("a", "run.finished")) != 1 ||
				len(h.Records("b", "run.finished")) != 1
			for row, says := range table {
				shared, known := got[row]
				delete(got, row)
				want := strings.HasPrefix(says, "yes")
				switch {
				case !known:
					t.Errorf("nothing probes the row %q", row)
					continue
				case strings.HasPrefix(says, "as [`session.loopback`]"),
					strings.HasPrefix(says, "no with Landlock ABI 6") && abi < 6:
					want = loopback == "shared"
				case !want && !strings.HasPrefix(says, "no"):
					t.Errorf("row %q says %q", row, says)
				}
				if shared != want {
					t.Errorf("row %q says %q, and shared is %v", row, says, shared)
				}
			}
			for row := range got {
				t.Errorf("the table has no row %q", row)
			}
			// The control: without the other invocation its limits are no limits.
			o = h.Exec(id, "--", "python3", "-c", "import os, sys\n"+sees, common, of)
			if err := json.Unmarshal([]byte(o.Out), &got); err != nil ||
				got["limits `memory`, `pids`, `cpus`"] {
				t.Errorf("alone: %v, %+v", err, o)
			}
			h.StopSession(id, 2, "--discard")
			var caches []struct{ ID string }
			all := h.Jail("cache", "list", "--json")
			if err := json.Unmarshal([]byte(all.Out), &caches); err != nil {
				t.Fatal(err)
			}
			for _, c := range caches {
				h.Wants(h.Jail("cache", "rm", c.ID), 0, "")
			}
		})
	}
}

// tableOf returns the rows of the table.
func tableOf(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(cmdtest.Tree("docs", "sessions.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text),
		"| of a session | shared by its invocations |\n|---|---|\n")
	rows, _, _ := strings.Cut(rest, "\n\n")
	table := map[string]string{}
	for row := range strings.Lines(rows) {
		cells := strings.Split(strings.Trim(row, "|\n "), " | ")
		if len(cells) != 2 {
			t.Fatalf("row %q", row)
		}
		table[cells[0]] = cells[1]
	}
	if len(table) < 15 {
		t.Fatalf("the table has %d rows", len(table))
	}
	return table
}
