package main_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// askAs makes one request as that user, and returns the answer.
func askAs(d *cmdtest.SharedDaemon, uid int, method, path, body string) (status int, text string) {
	t := d.H.T
	t.Helper()
	c := dialAs(t, uid, d.Socket, 1, func(int) string {
		return fmt.Sprintf(
			"%s %s HTTP/1.1\r\nHost: jail\r\nConnection: Upgrade\r\nUpgrade: %s\r\nContent-Length: %d\r\n\r\n%s", method, path, api.Upgrade, len(body), body)
	})[0]
	defer c.Close()
	if err := c.SetReadDeadline(time.Now().Add(cmdtest.Bound)); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	var from io.Reader = resp.Body
	if resp.StatusCode == http.StatusSwitchingProtocols {
		// The frames, until the daemon ends the connection.
		from = r
	}
	all, err := io.ReadAll(from)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	text = string(all)
	if _, problem, ok := strings.Cut(text, `"error":`); ok && from == r {
		// Before it are numbers of the run's own.
		text = problem
	}
	return resp.StatusCode, text
}

// T-505: whatever the API can do with a run, a session or a shadow, to a stranger another user's is
// not there. The requests are those of openapi.json, which a test holds against what is routed.
func TestStrangersFindNothing(t *testing.T) {
	h := cmdtest.New(t)
	d := h.Daemon()
	d.Admit()
	h.Wants(h.Jail("run", "--quiet", "--detach", "--id", "finish", "--keep", "--", "touch", "made"),
		0, "")
	h.Wants(h.Jail("wait", "finish"), 0, "")
	proposed := h.Jail("commit", "--propose", "finish")
	h.Wants(proposed, 0, "")
	action := strings.TrimSpace(proposed.Out)
	living := h.Live("living", "--no-workspace")
	h.Session("--id", "opened", "--no-workspace")
	text, err := os.ReadFile(cmdtest.Tree("supervisor", "api", "openapi.json"))
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths map[string]map[string]any
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	bodies := map[string]string{"exec": `{"tool":"true"}`}
	queries := map[string]string{"/v1/branches/{id}/diff": "?with=finish"}
	asked := 0
	for path, methods := range doc.Paths {
		if !strings.Contains(path, "{id}") {
			continue
		}
		for method := range methods {
			method = strings.ToUpper(method)
			if method == http.MethodPut {
				// Makes what is asked for; a name that is taken is told as such.
				continue
			}
			if strings.HasPrefix(path, "/v1/containers/") {
				// They are for root alone, whatever the id is.
				body := "{}"
				if filepath.Base(path) == "exec" {
					body = `{"process":{}}`
				}
				at := strings.ReplaceAll(path, "{id}", "x")
				status, said := askAs(d, cmdtest.Stranger, method, at, body)
				if status != http.StatusForbidden {
					t.Errorf("%s %s by a stranger: %d %s", method, path, status, said)
				}
				continue
			}
			asked++
			body := bodies[filepath.Base(path)]
			if body == "" && method != http.MethodGet {
				body = "{}"
			}
			at := func(id string) string { return strings.ReplaceAll(path, "{id}", id) + queries[path] }
			missing, said := askAs(d, cmdtest.Stranger, method, at("nobody"), body)
			if !strings.Contains(said, `"`+problem.NotFound+`"`) {
				t.Errorf("%s %s of nobody's: %d %s", method, path, missing, said)
			}
			there := false
			for _, id := range []string{"finish", "living", "opened", action} {
				status, text := askAs(d, cmdtest.Stranger, method, at(id), body)
				if status != missing || strings.ReplaceAll(text, id, "nobody") != said {
					t.Errorf("%s %s by a stranger: %d %s, want %d %s", method, at(id), status, text,
						missing, said)
				}
				if method == http.MethodGet && !there { // the control
					status, _ := askAs(d, 0, method, at(id), "")
					there = status == http.StatusOK
				}
			}
			if method == http.MethodGet && !there {
				t.Errorf("%s %s: root finds nothing either", method, path)
			}
		}
	}
	if asked < 12 {
		t.Errorf("only %d requests are known", asked)
	}
	living.Says("still here")
	living.In.Close()
	h.Wants(living.Wait(), 0, "")
	h.Wants(h.Exec("opened", "--", "true"), 0, "")
	h.StopSession("opened", 0)
	h.Discard("finish")
}

// T-503: who is root in a user namespace of their own is for the daemon the user that they are on
// the host.
func TestRootOfANamespace(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon().Admit()
	live := h.Live("roots", "--no-workspace")
	root := func(args ...string) cmdtest.Outcome {
		t.Helper()
		cmd := h.Command(args...)
		one := []syscall.SysProcIDMap{{ContainerID: 0, HostID: cmdtest.Stranger, Size: 1}}
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: one,
			GidMappings: one, Credential: &syscall.Credential{NoSetGroups: true}}
		cmd.Dir = "/"
		return h.Run(cmd)
	}
	if o := root("ps", "--json"); liveIDs(t, o) != "" {
		t.Errorf("it sees %+v", o)
	}
	h.Wants(root("kill", "roots"), 127, `no run "roots" is running`)
	h.Wants(root("run", "--id", "theirs", "--no-workspace", "--", "true"), 0, "")
	if r := h.Finished("theirs"); r.Actor.UID != cmdtest.Stranger {
		t.Errorf("%+v", r)
	}
	live.Says("still here")
	live.In.Close()
	h.Wants(live.Wait(), 0, "")
}

// T-506: what a caller names by its path is opened as the caller could, and what a link leads to as
// well. Nothing waits for a pipe, and of what the caller cannot see nobody says whether it is
// there.
func TestPathsOfACaller(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon().Admit()
	const secret = "the secret of a test"
	closed, open, own := filepath.Join(h.Root, "closed"), filepath.Join(h.Root, "open"),
		filepath.Join(h.Root, "own")
	err := errors.Join(os.Mkdir(own, 0o755), os.WriteFile(filepath.Join(own, "file"), nil, 0o644),
		os.Chown(own, cmdtest.Stranger, cmdtest.Stranger),
		os.Mkdir(closed, 0o700), os.Mkdir(open, 0o755), os.WriteFile(filepath.Join(closed, "there"),
			[]byte(secret), 0o644),
		os.WriteFile(filepath.Join(open, "roots"), []byte(secret), 0o600),
		syscall.Mkfifo(filepath.Join(open, "pipe"), 0o666), os.Chmod(filepath.Join(open, "pipe"),
			0o666))
	if err != nil {
		t.Fatal(err)
	}
	other := func(args ...string) cmdtest.Outcome {
		t.Helper()
		o := h.Run(cmdtest.As(h.Command(args...), cmdtest.Stranger))
		if strings.Contains(o.Out+o.Err, secret) {
			t.Errorf("%q: %+v", args, o)
		}
		return o
	}
	// ways returns the runs that are given a path: as a module, as the workspace, and as what a
	// policy mounts.
	ways := func(path string) [][]string {
		t.Helper()
		policy := filepath.Join(h.Root, "policy.toml")
		if err := os.WriteFile(policy, fmt.Appendf(nil,
			"policy = 1\ninclude = [\"default\"]\n[[mount]]\nsource = %q\ntarget = \"/given\"\naccess = \"read\"\n", path), 0o644); err != nil {
			t.Fatal(err)
		}
		return [][]string{{"--no-workspace", "--", path}, {"--workspace", path, "--discard", "--",
			"true"}, {"--policy", policy, "--no-workspace", "--", "ls", "/given"}}
	}
	for n, path := range []string{h.Probe, own, own} { // the control
		args := append([]string{"run"}, ways(path)[n]...)
		if n == 0 {
			args = append(args, "exit", "0")
		}
		h.Wants(other(args...), 0, "")
	}
	for n, path := range []string{closed, filepath.Join(closed, "there"), filepath.Join(open,
		"roots"), filepath.Join(open, "pipe"), "/root/x", "/etc/shadow", "/dev/zero", "/dev/tty",
		"/proc/1/environ", "/proc/self/mem",
		filepath.Join(h.State, "state", "modules")} {
		link := filepath.Join(open, fmt.Sprintf("link%d", n))
		if err := os.Symlink(path, link); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{path, link} {
			for _, args := range ways(name) {
				if o := other(append([]string{"run"}, args...)...); o.Code == 0 {
					t.Errorf("%q: it ran: %+v", args, o)
				}
			}
		}
	}
	for _, args := range [][]string{{"--no-workspace", "--", closed + "/%"},
		{"--workspace", closed + "/%", "--", "true"}} {
		var said [2]cmdtest.Outcome
		for n, name := range []string{"there", "nowhere"} {
			var with []string
			for _, a := range args {
				with = append(with, strings.ReplaceAll(a, "%", name))
			}
			said[n] = other(append([]string{"run"}, with...)...)
			said[n].Err = strings.ReplaceAll(said[n].Err, name, "%")
		}
		if said[0] != said[1] || said[0].Code != 126 {
			t.Errorf("%q tells what is there: %+v, %+v", args, said[0], said[1])
		}
	}
}

// T-506: a link to a descriptor of the daemon leads nobody past a directory that they may not enter.
func TestLinksToDescriptors(t *testing.T) {
	h := cmdtest.New(t)
	d := h.Daemon()
	d.Admit()
	const secret = "/a/secret/of/a/test"
	closed := filepath.Join(h.Root, "closed")
	project := filepath.Join(closed, "project")
	if err := errors.Join(os.Mkdir(closed, 0o700), os.Mkdir(project, 0o755),
		os.WriteFile(filepath.Join(project, "file"), []byte("#!"+secret+"\n"), 0o755)); err != nil {
		t.Fatal(err)
	}
	h.Wants(h.Jail("session", "start", "--id", "live", "--discard", "--workspace", project), 0, "")
	of := fmt.Sprintf("/proc/%d/fd", d.Cmd.Process.Pid)
	entries, err := os.ReadDir(of)
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, e := range entries {
		if to, err := os.Readlink(filepath.Join(of, e.Name())); err != nil || to != project {
			continue
		}
		link := filepath.Join(h.Root, "link"+e.Name())
		policy := link + ".toml"
		if err := errors.Join(os.Symlink("/proc/self/fd/"+e.Name(), link), os.WriteFile(policy,
			fmt.Appendf(nil, "policy = 1\ninclude = [\"build\"]\n[[mount]]\nsource = %q\n"+
				"target = \"/given\"\naccess = \"read+exec\"\n[tools]\nnative = [\"/given/**\"]\n", link),
			0o644)); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"--policy", policy, "--no-workspace", "--", "cat", "/given/file"},
			{"--policy", policy, "--no-workspace", "--", "/given/file"},
			{"--no-workspace", "--", link + "/file"}} {
			tried++
			o := h.Run(cmdtest.As(h.Command(append([]string{"run"}, args...)...), cmdtest.Stranger))
			if o.Code == 0 || strings.Contains(o.Out+o.Err, secret) {
				t.Errorf("%q: %+v", args, o)
			}
		}
	}
	if tried == 0 {
		t.Error("the daemon has the directory not open: nothing was tried")
	}
	h.Wants(h.Jail("session", "stop", "live"), 0, "")
}

// T-507: the daemon takes no descriptors from its clients: those that come with a request are
// closed, and the request is answered.
func TestDescriptorsFromAClient(t *testing.T) {
	h := cmdtest.New(t)
	d := h.Daemon()
	h.Wants(h.Jail("run", "--no-workspace", "--", "true"), 0, "")
	before := settledDescriptors(d)
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	// The most that one message may have.
	many := make([]int, 253)
	for n := range many {
		many[n] = int(null.Fd())
	}
	c := dialAs(t, 0, d.Socket, 1, func(int) string { return askVersion })[0].(*net.UnixConn)
	r := bufio.NewReader(c)
	for n := range 20 {
		if n > 0 {
			if _, _, err := c.WriteMsgUnix([]byte(askVersion), syscall.UnixRights(many...),
				nil); err != nil {
				t.Fatal(err)
			}
		}
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil ||
			resp.StatusCode != http.StatusOK {
			t.Errorf("%s, %v", resp.Status, err)
		}
		if now := openDescriptors(d); now > before+8 {
			t.Fatalf("the daemon has %d descriptors, and %d before", now, before)
		}
	}
}

// T-510: what a tool has in its environment, and what it reads, are in no process's arguments,
// which every user can read.
func TestNoSecretsInArguments(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	const secret = "a-secret-of-this-test"
	policy := filepath.Join(h.Root, "policy.toml")
	if err := os.WriteFile(policy,
		[]byte("policy = 1\ninclude = [\"default\"]\n[env]\npass = [\"TOKEN\"]\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	cmd := h.Command("run", "--id", "secretive", "--policy", policy, "--no-workspace", "--",
		h.Probe, "lines")
	cmd.Env = append(cmd.Env, "TOKEN="+secret)
	live := h.LiveWith(cmd, "secretive")
	live.Says(secret)
	look := func(what string) bool {
		t.Helper()
		found, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil || len(found) == 0 {
			t.Fatal(found, err)
		}
		for _, path := range found {
			if text, err := os.ReadFile(path); err == nil && strings.Contains(string(text), what) {
				return true
			}
		}
		return false
	}
	if look(secret) {
		t.Error("it can be read in /proc")
	}
	if !look("secretive") {
		t.Error("this test sees no arguments")
	}
	live.In.Close()
	h.Wants(live.Wait(), 0, "")
}
