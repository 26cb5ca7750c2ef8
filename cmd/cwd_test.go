package cmd_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// from runs a command of jail with another working directory.
func (h *host) from(dir string, args ...string) outcome {
	h.t.Helper()
	cmd := h.command(args...)
	cmd.Dir = dir
	return h.run(cmd)
}

// cwdTree is a workspace in which each directory says where it is.
func (h *host) cwdTree() (docs string) {
	h.t.Helper()
	h.files(map[string]string{"here": "root\n", "docs/here": "docs\n", "docs/deep/here": "deep\n",
		"secret/here": "secret\n",
		"hide.toml":   "policy = 1\nname = \"hide\"\ninclude = [\"base\"]\n[workspace]\naccess = \"shadow\"\nhide = [\"secret\"]\n[tools]\nallow = [\"core-utils/*\"]\n"})
	docs = filepath.Join(h.work, "docs")
	for link, to := range map[string]string{"link": "docs/deep", "out": "/etc",
		"lost": "/nowhere"} {
		if err := os.Symlink(to, filepath.Join(h.work, link)); err != nil {
			h.t.Fatal(err)
		}
	}
	return docs
}

// A run starts where its caller stands in the workspace, or where --cwd says: a module, a program
// of the host and a script alike, in a new jail and in one that waited.
func TestCwd(t *testing.T) {
	h := newHost(t)
	h.pool(2)
	h.daemon()
	docs := h.cwdTree()
	beside := filepath.Join(h.root, "beside")
	if err := os.Symlink(docs, beside); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		dir       string
		flags     []string
		cwd, here string
	}{
		{docs, []string{"--workspace", ".."}, "/workspace/docs", "docs"},
		{filepath.Join(docs, "deep"), []string{"--workspace", h.work}, "/workspace/docs/deep",
			"deep"},
		{filepath.Join(h.work, "link"), []string{"--workspace", h.work}, "/workspace/docs/deep",
			"deep"},
		{beside, []string{"--workspace", ".."}, "/workspace/docs", "docs"},
		{docs, []string{"--workspace", "..", "--cwd", "."}, "/workspace", "root"},
		{docs, []string{"--workspace", "..", "--cwd", "docs/deep/../deep/"}, "/workspace/docs/deep",
			"deep"},
		{docs, []string{"--workspace", "..", "--cwd", "link"}, "/workspace/link", "deep"},
		{docs, []string{"--cwd", "deep"}, "/workspace/deep", "deep"},
		{h.root, []string{"--workspace", h.work}, "/workspace", "root"},
		{"/", []string{"--workspace", h.work, "--cwd", docs}, "/workspace/docs", "docs"},
		{"/", []string{"--workspace", h.work, "--cwd", "/workspace/docs"}, "/workspace/docs",
			"docs"},
	} {
		// In the profile build the workspace is at its own path.
		root := h.work
		if !slices.Contains(c.flags, "--workspace") {
			root = c.dir
		}
		own := root + strings.TrimPrefix(c.cwd, "/workspace")
		for _, tool := range []struct {
			args []string
			says string
		}{
			{[]string{"run", "--", "cat", "here"}, c.here + "\n"},
			{[]string{"run", "--profile", "build", "--", "sh", "-c", "pwd; cat here"},
				own + "\n" + c.here + "\n"},
			{[]string{"sh", "-c", "pwd; cat here"}, c.cwd + "\n" + c.here + "\n"},
		} {
			cmd := h.command(slices.Concat(tool.args[:1], []string{"--discard"}, c.flags,
				tool.args[1:])...)
			cmd.Dir, cmd.Env = c.dir, append(cmd.Environ(), "PWD="+c.dir)
			if o := h.run(cmd); o.code != 0 || o.out != tool.says {
				t.Errorf("in %s, %q: %+v, want %q", c.dir, cmd.Args, o, tool.says)
			}
		}
	}
	// The jails that stand may all be for scripts, which were asked for last.
	warm, tries := "", 0
	eventually(t, "a run gets a prewarmed jail", func() bool {
		tries++
		warm = fmt.Sprintf("warm-%d", tries)
		o := h.from(docs, "run", "--id", warm, "--workspace", "..", "--", "pwd")
		if o.out != "/workspace/docs\n" {
			t.Fatalf("%s: %+v", warm, o)
		}
		return h.startOf(warm) == startWarm
	})
	var p jail.Plan
	if o := h.from(docs, "plan", "--json", "--workspace", "..", "--",
		"ls"); json.Unmarshal([]byte(o.out), &p) != nil || p.Command.Cwd != "/workspace/docs" {
		t.Errorf("plan: %+v", o)
	}
	if o := h.jail("audit", "query", "--json", "--run", warm, "--type",
		"run.started"); !strings.Contains(o.out, `"cwd":"/workspace/docs"`) {
		t.Errorf("on record: %+v", o)
	}
}

// A working directory that the tool would not find is refused in a sentence that names it, before
// anything runs.
func TestCwdRefused(t *testing.T) {
	h := newHost(t)
	docs := h.cwdTree()
	if err := os.MkdirAll(filepath.Join(h.work, "locked/in"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(filepath.Join(h.work, "locked"), 12345, 12345); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(h.work, "locked"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		flags []string
		code  int
		want  string
	}{
		{[]string{"--cwd", "nope"}, 127,
			"directory /workspace/nope: there is no such directory in the workspace"},
		{[]string{"--cwd", "here"}, 127, "directory /workspace/here: there is no such directory"},
		{[]string{"--cwd", "here/x"}, 127,
			"directory /workspace/here/x: there is no such directory"},
		{[]string{"--cwd", "../" + filepath.Base(h.work)}, 2, "it is not in the workspace"},
		{[]string{"--cwd", "/etc"}, 2, "directory /etc: it is not in the workspace"},
		{[]string{"--cwd", "secret", "--policy", "hide.toml"}, 126,
			`directory /workspace/secret: the policy hides it: .*secret`},
		{[]string{"--cwd", "docs", "--no-workspace"}, 2,
			"--cwd and --no-workspace contradict each other"},
	} {
		for _, args := range [][]string{{"run", "--", "ls"}, {"sh", "-c", "true"},
			{"plan", "--", "ls"}} {
			h.wants(h.jail(append(append([]string{args[0]}, c.flags...), args[1:]...)...), c.code,
				c.want)
		}
	}
	// Where a link leads in the jail only the jail can tell.
	h.wants(h.jail("run", "--cwd", "out", "--", "ls"), 126,
		"directory /workspace/out: the tool may not enter it")
	h.wants(h.jail("run", "--profile", "python-native", "--cwd", "lost", "--", "python3", "-c", ""),
		127, "directory /workspace/lost: there is no such directory")
	// The tool works as the owner of the workspace, who may not enter it.
	h.wants(h.jail("run", "--profile", "build", "--cwd", "locked/in", "--", "ls"), 126,
		"directory "+h.work+"/locked/in: the tool may not enter it")
	h.wants(h.from(filepath.Join(h.work, "secret"), "run", "--workspace", "..", "--policy",
		"../hide.toml", "--", "ls"), 126, "the policy hides it")
	h.wants(h.from(docs, "run", "--workspace", "..", "--policy", "../hide.toml", "--", "true"), 0,
		"")
}

// An invocation of a session starts where --cwd says, else where the session's --cwd says, else
// where its caller stands; what earlier invocations made and removed counts.
func TestCwdSession(t *testing.T) {
	h := newHost(t)
	h.pool(2)
	h.daemon()
	docs := h.cwdTree()
	id := h.session("--profile", "build", "--discard")
	at := func(dir string, want string, flags ...string) {
		t.Helper()
		for _, tool := range [][]string{{"pwd"}, {"/bin/pwd"}} {
			o := h.from(dir, append(append([]string{"session", "exec"}, flags...),
				append([]string{id, "--"}, tool...)...)...)
			if o.code != 0 || o.out != want+"\n" {
				t.Errorf("in %s, %q, %q: %+v, want %s", dir, flags, tool, o, want)
			}
		}
	}
	at(docs, h.work+"/docs")
	at(docs, h.work, "--cwd", ".")
	at("/", h.work)
	h.stands(1)
	o := h.from(docs, "session", "exec", "--id", "warm", id, "--", "pwd")
	if o.out != h.work+"/docs\n" || h.startOf("warm") != startWarm {
		t.Errorf("a prewarmed jail: %+v, %s", o, h.startOf("warm"))
	}
	h.wants(h.exec(id, "--cwd", "made", "--", "pwd"), 127,
		"directory "+h.work+"/made: there is no such directory")
	h.wants(h.exec(id, "--", "sh", "-c", "mkdir made; rm -r docs"), 0, "")
	at("/", h.work+"/made", "--cwd", "made")
	for _, tool := range []string{"ls", "/bin/ls"} {
		h.wants(h.from(docs, "session", "exec", id, "--", tool), 127,
			"directory "+h.work+"/docs: there is no such directory in the workspace")
	}
	h.stopSession(id, 5)

	id = h.session("--profile", "build", "--discard", "--cwd", "docs")
	at("/", h.work+"/docs")
	at(filepath.Join(docs, "deep"), h.work+"/docs")
	at("/", h.work+"/docs/deep", "--cwd", "docs/deep")
	h.stopSession(id, 0)
	h.wants(h.jail("session", "start", "--cwd", "nope"), 127,
		"directory /workspace/nope: there is no such directory")
}

// The API starts a run where dir lies in the workspace, or in cwd.
func TestCwdAPI(t *testing.T) {
	h := newHost(t)
	h.daemon()
	docs := h.cwdTree()
	c, err := api.Dial(t.Context(), filepath.Join(h.state, "jail.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, r := range []struct {
		req  message.Request
		want string
	}{
		{message.Request{Dir: docs, Workspace: h.work}, "/workspace/docs"},
		{message.Request{Dir: "/", Workspace: h.work}, "/workspace"},
		{message.Request{Dir: "nowhere", Workspace: h.work}, "/workspace"},
		{message.Request{Dir: h.work, Cwd: "docs/deep"}, "/workspace/docs/deep"},
		{message.Request{Dir: docs, Workspace: h.work, Cwd: "docs"}, "/workspace/docs"},
	} {
		r.req.Tool = "ls"
		if p, err := c.Plan(t.Context(), r.req); err != nil || p.Command.Cwd != r.want {
			t.Errorf("%+v: %s, %v, want %s", r.req, p.Command.Cwd, err, r.want)
		}
	}
	_, err = c.Plan(t.Context(), message.Request{Tool: "ls", Dir: h.work, Cwd: "docs\x00"})
	if e := (*problem.Error)(nil); !errors.As(err, &e) || e.Code != problem.Usage {
		t.Errorf("a NUL byte: %v", err)
	}
}
