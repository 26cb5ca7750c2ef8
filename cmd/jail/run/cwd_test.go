package run_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// cwdTree is a workspace in which each directory says where it is.
func cwdTree(h *cmdtest.Host) (docs string) {
	h.T.Helper()
	h.Files(map[string]string{"here": "root\n", "docs/here": "docs\n", "docs/deep/here": "deep\n",
		"secret/here": "secret\n",
		"hide.toml":   "policy = 1\nname = \"hide\"\ninclude = [\"base\"]\n[workspace]\naccess = \"shadow\"\nhide = [\"secret\"]\n[tools]\nallow = [\"core-utils/*\"]\n"})
	docs = filepath.Join(h.Work, "docs")
	for link, to := range map[string]string{"link": "docs/deep", "out": "/etc",
		"lost": "/nowhere"} {
		if err := os.Symlink(to, filepath.Join(h.Work, link)); err != nil {
			h.T.Fatal(err)
		}
	}
	return docs
}

// A run starts where its caller stands in the workspace, or where --cwd says: a module, a program
// of the host and a script alike, in a new jail and in one that waited.
func TestCwd(t *testing.T) {
	h := cmdtest.New(t)
	h.Pool(2)
	h.Daemon()
	docs := cwdTree(h)
	beside := filepath.Join(h.Root, "beside")
	if err := os.Symlink(docs, beside); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		dir       string
		flags     []string
		cwd, here string
	}{
		{docs, []string{"--workspace", ".."}, "/workspace/docs", "docs"},
		{filepath.Join(docs, "deep"), []string{"--workspace", h.Work}, "/workspace/docs/deep",
			"deep"},
		{filepath.Join(h.Work, "link"), []string{"--workspace", h.Work}, "/workspace/docs/deep",
			"deep"},
		{beside, []string{"--workspace", ".."}, "/workspace/docs", "docs"},
		{docs, []string{"--workspace", "..", "--cwd", "."}, "/workspace", "root"},
		{docs, []string{"--workspace", "..", "--cwd", "docs/deep/../deep/"}, "/workspace/docs/deep",
			"deep"},
		{docs, []string{"--workspace", "..", "--cwd", "link"}, "/workspace/link", "deep"},
		{docs, []string{"--cwd", "deep"}, "/workspace/deep", "deep"},
		{h.Root, []string{"--workspace", h.Work}, "/workspace", "root"},
		{"/", []string{"--workspace", h.Work, "--cwd", docs}, "/workspace/docs", "docs"},
		{"/", []string{"--workspace", h.Work, "--cwd", "/workspace/docs"}, "/workspace/docs",
			"docs"},
	} {
		// In the profile build the workspace is at its own path.
		root := h.Work
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
			cmd := h.Command(slices.Concat(tool.args[:1], []string{"--discard"}, c.flags,
				tool.args[1:])...)
			cmd.Dir, cmd.Env = c.dir, append(cmd.Environ(), "PWD="+c.dir)
			if o := h.Run(cmd); o.Code != 0 || o.Out != tool.says {
				t.Errorf("in %s, %q: %+v, want %q", c.dir, cmd.Args, o, tool.says)
			}
		}
	}
	// The jails that stand may all be for scripts, which were asked for last.
	warm, tries := "", 0
	cmdtest.Eventually(t, "a run gets a prewarmed jail", func() bool {
		tries++
		warm = fmt.Sprintf("warm-%d", tries)
		o := h.From(docs, "run", "--id", warm, "--workspace", "..", "--", "pwd")
		if o.Out != "/workspace/docs\n" {
			t.Fatalf("%s: %+v", warm, o)
		}
		return h.StartOf(warm) == cmdtest.StartWarm
	})
	var p jail.Plan
	if o := h.From(docs, "plan", "--json", "--workspace", "..", "--",
		"ls"); json.Unmarshal([]byte(o.Out), &p) != nil || p.Command.Cwd != "/workspace/docs" {
		t.Errorf("plan: %+v", o)
	}
	if o := h.Jail("audit", "query", "--json", "--run", warm, "--type",
		"run.started"); !strings.Contains(o.Out, `"cwd":"/workspace/docs"`) {
		t.Errorf("on record: %+v", o)
	}
}

// A working directory that the tool would not find is refused in a sentence that names it, before
// anything runs.
func TestCwdRefused(t *testing.T) {
	h := cmdtest.New(t)
	docs := cwdTree(h)
	if err := os.MkdirAll(filepath.Join(h.Work, "locked/in"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(filepath.Join(h.Work, "locked"), 12345, 12345); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(h.Work, "locked"), 0o700); err != nil {
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
		{[]string{"--cwd", "../" + filepath.Base(h.Work)}, 2, "it is not in the workspace"},
		{[]string{"--cwd", "/etc"}, 2, "directory /etc: it is not in the workspace"},
		{[]string{"--cwd", "secret", "--policy", "hide.toml"}, 126,
			`directory /workspace/secret: the policy hides it: .*secret`},
		{[]string{"--cwd", "docs", "--no-workspace"}, 2,
			"--cwd and --no-workspace contradict each other"},
	} {
		for _, args := range [][]string{{"run", "--", "ls"}, {"sh", "-c", "true"},
			{"plan", "--", "ls"}} {
			h.Wants(h.Jail(append(append([]string{args[0]}, c.flags...), args[1:]...)...), c.code,
				c.want)
		}
	}
	// Where a link leads in the jail only the jail can tell.
	h.Wants(h.Jail("run", "--cwd", "out", "--", "ls"), 126,
		"directory /workspace/out: the tool may not enter it")
	h.Wants(h.Jail("run", "--profile", "python-native", "--cwd", "lost", "--", "python3", "-c", ""),
		127, "directory /workspace/lost: there is no such directory")
	// The tool works as the owner of the workspace, who may not enter it.
	h.Wants(h.Jail("run", "--profile", "build", "--cwd", "locked/in", "--", "ls"), 126,
		"directory "+h.Work+"/locked/in: the tool may not enter it")
	h.Wants(h.From(filepath.Join(h.Work, "secret"), "run", "--workspace", "..", "--policy",
		"../hide.toml", "--", "ls"), 126, "the policy hides it")
	h.Wants(h.From(docs, "run", "--workspace", "..", "--policy", "../hide.toml", "--", "true"), 0,
		"")
}

// An invocation of a session starts where --cwd says, else where the session's --cwd says, else
// where its caller stands; what earlier invocations made and removed counts.
func TestCwdSession(t *testing.T) {
	h := cmdtest.New(t)
	h.Pool(2)
	h.Daemon()
	docs := cwdTree(h)
	id := h.Session("--profile", "build", "--discard")
	at := func(dir string, want string, flags ...string) {
		t.Helper()
		for _, tool := range [][]string{{"pwd"}, {"/bin/pwd"}} {
			o := h.From(dir, append(append([]string{"session", "exec"}, flags...),
				append([]string{id, "--"}, tool...)...)...)
			if o.Code != 0 || o.Out != want+"\n" {
				t.Errorf("in %s, %q, %q: %+v, want %s", dir, flags, tool, o, want)
			}
		}
	}
	at(docs, h.Work+"/docs")
	at(docs, h.Work, "--cwd", ".")
	at("/", h.Work)
	h.Stands(1)
	o := h.From(docs, "session", "exec", "--id", "warm", id, "--", "pwd")
	if o.Out != h.Work+"/docs\n" || h.StartOf("warm") != cmdtest.StartWarm {
		t.Errorf("a prewarmed jail: %+v, %s", o, h.StartOf("warm"))
	}
	h.Wants(h.Exec(id, "--cwd", "made", "--", "pwd"), 127,
		"directory "+h.Work+"/made: there is no such directory")
	h.Wants(h.Exec(id, "--", "sh", "-c", "mkdir made; rm -r docs"), 0, "")
	at("/", h.Work+"/made", "--cwd", "made")
	for _, tool := range []string{"ls", "/bin/ls"} {
		h.Wants(h.From(docs, "session", "exec", id, "--", tool), 127,
			"directory "+h.Work+"/docs: there is no such directory in the workspace")
	}
	h.StopSession(id, 5)

	id = h.Session("--profile", "build", "--discard", "--cwd", "docs")
	at("/", h.Work+"/docs")
	at(filepath.Join(docs, "deep"), h.Work+"/docs")
	at("/", h.Work+"/docs/deep", "--cwd", "docs/deep")
	h.StopSession(id, 0)
	h.Wants(h.Jail("session", "start", "--cwd", "nope"), 127,
		"directory /workspace/nope: there is no such directory")
}

// The API starts a run where dir lies in the workspace, or in cwd.
func TestCwdAPI(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	docs := cwdTree(h)
	c, err := api.Dial(t.Context(), filepath.Join(h.State, "jail.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, r := range []struct {
		req  message.Request
		want string
	}{
		{message.Request{Dir: docs, Workspace: h.Work}, "/workspace/docs"},
		{message.Request{Dir: "/", Workspace: h.Work}, "/workspace"},
		{message.Request{Dir: "nowhere", Workspace: h.Work}, "/workspace"},
		{message.Request{Dir: h.Work, Cwd: "docs/deep"}, "/workspace/docs/deep"},
		{message.Request{Dir: docs, Workspace: h.Work, Cwd: "docs"}, "/workspace/docs"},
	} {
		r.req.Tool = "ls"
		if p, err := c.Plan(t.Context(), r.req); err != nil || p.Command.Cwd != r.want {
			t.Errorf("%+v: %s, %v, want %s", r.req, p.Command.Cwd, err, r.want)
		}
	}
	_, err = c.Plan(t.Context(), message.Request{Tool: "ls", Dir: h.Work, Cwd: "docs\x00"})
	if e := (*problem.Error)(nil); !errors.As(err, &e) || e.Code != problem.Usage {
		t.Errorf("a NUL byte: %v", err)
	}
}
