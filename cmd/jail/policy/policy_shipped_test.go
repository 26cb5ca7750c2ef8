package policy_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// Each shipped profile keeps what the file beside it expects, of the policy and of jails that run
// with it.
func TestShippedProfilesKeepTheirTests(t *testing.T) {
	h := cmdtest.New(t)
	cmdtest.CompiledBundles(h, "core-utils", "js", "python")
	files, err := filepath.Glob(cmdtest.Tree("profiles", "*.expect"))
	if err != nil || len(files) < 5 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, f := range files {
		abs, err := filepath.Abs(f)
		if err != nil {
			t.Fatal(err)
		}
		// These are many runs, for which the bound of one command is short beside load.
		cmd := exec.Command(filepath.Join(h.Bin, "jail"), "policy", "test", abs)
		cmd.Dir, cmd.Env = h.Work, h.Env
		o := h.Run(cmd)
		if o.Code != 0 || strings.Contains(o.Out, "not started") {
			t.Errorf("exit code %d\n%s%s", o.Code, o.Out, o.Err)
		}
	}
	// The control: what is not so is found, of a policy and of a run.
	wrong := filepath.Join(h.Root, "wrong.expect")
	if err := os.WriteFile(wrong,
		[]byte("policy default\nallow read /etc/passwd\nrun true => exit 1\nrun true => exit 0\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	o := h.Jail("policy", "test", wrong)
	if o.Code != 1 || !strings.Contains(o.Out, ":2: allow read /etc/passwd: got deny") ||
		!strings.Contains(o.Out, ":3: ") || !strings.Contains(o.Out, "1 of 3 kept") {
		t.Errorf("exit code %d\n%s%s", o.Code, o.Out, o.Err)
	}
}

// What a policy says of single tools is what their jails have, and a jail of programs of the host
// can say what it is.
func TestToolSectionsInForce(t *testing.T) {
	h := cmdtest.New(t)
	file := filepath.Join(h.Root, "own.toml")
	text := "policy = 1\nname = \"own\"\ninclude = [\"build\"]\n[tools]\nallow = [\"core-utils/*\"]\n[tool.\"core-utils/cat\".limits]\npids = 20\n" +
		"[[tool.\"/usr/bin/env\".mount]]\nsource = \"/usr\"\naccess = \"read+exec\"\n[[tool.\"/usr/bin/env\".mount]]\nsource = \"/lib64\"\naccess = \"read+exec\"\n" +
		"[[tool.\"/usr/bin/env\".mount]]\nsource = \"/lib\"\naccess = \"read+exec\"\n"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	type plan struct {
		Cgroup struct{ PIDs int64 }
		Mounts []struct{ Target string }
	}
	planOf := func(tool string) (p plan) {
		t.Helper()
		o := h.Jail("plan", "--policy", file, "--json", "--", tool)
		if err := json.Unmarshal([]byte(o.Out), &p); o.Code != 0 || err != nil {
			t.Fatalf("plan of %s: %v, exit code %d\n%s", tool, err, o.Code, o.Err)
		}
		return p
	}
	has := func(p plan, target string) bool {
		for _, m := range p.Mounts {
			if m.Target == target {
				return true
			}
		}
		return false
	}
	if wide, narrow := planOf("wc"), planOf("cat"); wide.Cgroup.PIDs <= narrow.Cgroup.PIDs ||
		narrow.Cgroup.PIDs < 20 || narrow.Cgroup.PIDs > 40 {
		t.Errorf("tasks: %d for wc, %d for cat", wide.Cgroup.PIDs, narrow.Cgroup.PIDs)
	}
	if wide, narrow := planOf("/usr/bin/head"), planOf("/usr/bin/env"); !has(wide,
		"/etc/alternatives") || has(narrow, "/etc/alternatives") || !has(narrow, "/usr") {
		t.Errorf("mounts: %v for head, %v for env", wide.Mounts, narrow.Mounts)
	}
	// Inside, the jail tells what it is, and not where things lie on the host.
	o := h.Jail("run", "--policy", file, "--", "/usr/bin/cat", "/run/jail/policy.json")
	if o.Code != 0 || !strings.Contains(o.Out, `"digest":"sha256:`) || strings.Contains(o.Out,
		h.Root) {
		t.Errorf("exit code %d: %.300s\n%s", o.Code, o.Out, o.Err)
	}
	if o := h.Jail("run", "--policy", file, "--", "/bin/sh", "-c",
		"echo > /run/jail/policy.json"); o.Code == 0 {
		t.Error("a jail can rewrite what it says of itself")
	}
	// And jail itself answers there, without asking anyone outside.
	text += "[[mount]]\nsource = \"" + h.Bin +
		"\"\ntarget = \"/opt/jail\"\naccess = \"read+exec\"\n"
	if err := os.WriteFile(file, []byte(strings.Replace(text, "[tools]\n",
		"[tools]\nnative = [\"/opt/jail/jail*\"]\n", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	o = h.Jail("run", "--policy", file, "--", "/opt/jail/jail", "policy", "explain", "--self",
		"--why", "write:/usr/x", "--why", "write:/tmp/x")
	if o.Code != 1 || !strings.Contains(o.Out, "write /usr/x: no\n") || !strings.Contains(o.Out,
		"write /tmp/x: yes\n") {
		t.Errorf("exit code %d: %s\n%s", o.Code, o.Out, o.Err)
	}
}

// Every command of the guide does what the guide says.
func TestGuide(t *testing.T) {
	guide, err := os.ReadFile(cmdtest.Tree("docs", "authoring.md"))
	if err != nil {
		t.Fatal(err)
	}
	h := cmdtest.New(t)
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(h.Work, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("README.md", "one\n")
	mine, ran := "", 0
	for _, block := range strings.Split(string(guide), "\n\n") {
		if !strings.HasPrefix(block, "    ") {
			continue
		}
		block = strings.ReplaceAll(strings.TrimPrefix(block, "    "), "\n    ", "\n") + "\n"
		switch {
		case strings.HasPrefix(block, "policy = 1"):
			mine = block
			write("mine.toml", mine)
			write("old.toml", mine)
			write("new.toml", mine)
		case strings.HasPrefix(block, "[without]"):
			now, err := os.ReadFile(filepath.Join(h.Work, "mine.toml"))
			if err != nil || !strings.Contains(string(now), "/usr/share") {
				t.Fatalf("the guide's --write wrote nothing: %v\n%s", err, now)
			}
			write("mine.toml", string(now)+block)
		case strings.HasPrefix(block, "allow "):
			write("mine.expect", block)
		default:
			for line := range strings.Lines(block) {
				args := strings.Fields(line)
				if len(args) < 2 || args[0] != "jail" {
					t.Fatalf("what is %q?", line)
				}
				ran++
				want := 0
				if strings.Contains(line, "explain --why") {
					// The guide says that the answer is no.
					want = 1
				}
				cmd := h.Command(args[1:]...)
				cmd.Dir = h.Work
				if o := h.Run(cmd); o.Code != want {
					t.Errorf("%sexit code %d, want %d\n%s%s", line, o.Code, want, o.Out, o.Err)
				}
			}
		}
	}
	if ran < 10 {
		t.Errorf("only %d commands in the guide", ran)
	}
}
