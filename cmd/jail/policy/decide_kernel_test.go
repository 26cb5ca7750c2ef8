package policy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/profiles"
	"github.com/jail-sandbox/jail/supervisor/message"
)

// leastQuestions is how many the policy and the kernel are asked, together, over the shipped
// profiles.
const leastQuestions = 5000

// T-524: what Decide says is what the kernel does: the questions are made from the policy's own
// mounts and from the host around them, and a program inside the jail tries each. What is the
// jail's own, and in no policy, is left out: /proc, /dev, /run, and its tables of users.
func TestDecideIsWhatTheKernelDoes(t *testing.T) {
	h := cmdtest.NewPolicyHost(t, nil)
	for name, text := range map[string]string{"a.txt": "x", "sub/b.txt": "x", ".env": "SECRET",
		"sub/.env": "SECRET", "deploy/server.pem": "KEY", "sub/c.key": "KEY",
		"prog": "#!/workspace/decides\n"} {
		path := filepath.Join(h.Work, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, []byte(text), 0o755), os.Chmod(path, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("cp", cmdtest.Must(cmdtest.DecidesProgram())(t),
		filepath.Join(h.Work, "decides")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	host := hostPaths(t)
	total, yes := 0, 0
	var readonlyBatch []cmdtest.Asked
	for _, name := range []string{"default", "readonly", "strict", "python", "fetch", "build",
		"worker", "python-native"} {
		batch, req := questions(h, t, name, host)
		got := answersTo(h, req, batch)
		differ := 0
		for i, q := range batch {
			if got[i] != q.Want {
				if differ++; differ <= 10 {
					t.Errorf("%s: %s %s: the policy says %v, the kernel %v", name, q.Op, q.What,
						q.Want, got[i])
				}
			}
			if q.Want {
				yes++
			}
		}
		if differ > 0 {
			t.Errorf("%s: %d of %d questions are answered differently", name, differ, len(batch))
		}
		total += len(batch)
		if name == "readonly" {
			readonlyBatch = batch
		}
	}
	t.Logf("%d questions, %d of them answered with yes", total, yes)
	if total < leastQuestions || yes < total/10 || yes > total*9/10 {
		t.Errorf("%d questions, %d of them answered with yes: want at least %d, and some of each",
			total, yes, leastQuestions)
	}
	// The control: a jail of another profile than the one that was asked is found out.
	_, other := questions(h, t, "default", nil)
	got, differ := answersTo(h, other, readonlyBatch), 0
	for i, q := range readonlyBatch {
		if got[i] != q.Want {
			differ++
		}
	}
	if differ == 0 {
		t.Error("a jail of another profile is not told from the one that was asked about")
	}
}

// hostPaths are names of the host, none of which has a link on its way, and which the host's own
// modes let everyone read.
func hostPaths(t *testing.T) []string {
	t.Helper()
	var all []string
	for root, most := range map[string]int{"/usr/bin": 60, "/usr/lib": 60, "/usr/share": 50,
		"/usr/sbin": 15, "/etc": 50, "/var": 30, "/opt": 10, "/home": 10, "/srv": 5, "/root": 10,
		"/boot": 5} {
		var here []string
		seen := 0
		_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if seen++; seen > 4000 {
				return fs.SkipAll
			}
			if err != nil || d.Type()&fs.ModeSymlink != 0 || !openToAll(path) {
				if d != nil && d.IsDir() {
					return fs.SkipDir
				}
				return nil
			}
			if d.Type().IsRegular() || d.IsDir() {
				here = append(here, path)
			}
			return nil
		})
		step := max(len(here)/most, 1)
		for i := 0; i < len(here) && i/step < most; i += step {
			all = append(all, here[i])
		}
	}
	// The names by which a host with one tree of programs has them twice.
	for _, path := range slices.Clone(all) {
		for _, pair := range [][2]string{{"/usr/bin/", "/bin/"}, {"/usr/sbin/", "/sbin/"},
			{"/usr/lib/", "/lib/"}} {
			if rest, ok := strings.CutPrefix(path, pair[0]); ok {
				if info, err := os.Stat(pair[1] + rest); err == nil && len(rest)%3 == 0 &&
					info.Mode().IsRegular() {
					all = append(all, pair[1]+rest)
				}
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// openToAll reports whether the modes of a path let everyone who sees it read it.
func openToAll(path string) bool {
	info, err := os.Stat(path)
	if err != nil {
		return false
	}
	want := fs.FileMode(0o004)
	if info.IsDir() {
		want = 0o005
	}
	return info.Mode().Perm()&want == want
}

// questions makes a batch for a profile, and the request whose jail is to answer it.
func questions(h *cmdtest.PolicyHost, t *testing.T, name string, host []string) ([]cmdtest.Asked,
	message.Request) {
	t.Helper()
	set, err := profiles.Load("")
	if err != nil {
		t.Fatal(err)
	}
	p, err := set.Get(name)
	if err != nil {
		t.Fatal(err)
	}
	native := len(p.File.Policy.Tools.Native) > 0
	text := fmt.Sprintf("policy = 1\ninclude = [%q]\n[tools]\nmodules = [\"**\"]\n", name)
	tool := cmdtest.Must(cmdtest.DecidesModule())(t)
	if native {
		text, tool = fmt.Sprintf(
			"policy = 1\ninclude = [%q]\n[tools]\nnative = [\"/workspace/decides\"]\n"+
				"[workspace]\ntarget = \"/workspace\"\n", name), "/workspace/decides"
	}
	file, err := set.Parse(syntax.Profile, "asked.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	eff, err := policy.Resolve(file.Layer("profile", "asked.toml"))
	if err != nil {
		t.Fatal(err)
	}
	req := message.Request{Tool: tool, Policy: text, PolicyName: "asked.toml"}
	req.Dir = h.Work
	if native && name == "python-native" {
		// Its workspace is not executable as a whole; the one program in it that asks comes as a
		// mount does.
		text = strings.Replace(text, "/workspace/decides", "/asks/decides",
			1) + fmt.Sprintf("[[mount]]\nsource = %q\ntarget = \"/asks\"\naccess = \"read+exec\"\n",
			filepath.Dir(copyOfDecides(h, t)))
		if file, err = set.Parse(syntax.Profile, "asked.toml", []byte(text)); err != nil {
			t.Fatal(err)
		}
		if eff, err = policy.Resolve(file.Layer("profile", "asked.toml")); err != nil {
			t.Fatal(err)
		}
		req.Tool, req.Policy = "/asks/decides", text
	}
	plan, err := h.S.Preparer().Plan(context.Background(), h.Caller(0), req)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return batchOf(eff, plan, host, native), req
}

func copyOfDecides(h *cmdtest.PolicyHost, t *testing.T) string {
	t.Helper()
	path := filepath.Join(h.Root, "opt", "decides")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cp", cmdtest.Must(cmdtest.DecidesProgram())(t),
		path).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

func batchOf(eff policy.Effective, plan jail.Plan, host []string, native bool) []cmdtest.Asked {
	inside := []string{"/", "/etc", "/home", "/tmp", "/tmp/x", "/tmp/prog", "/home/tool",
		"/home/tool/x", "/workspace", "/workspace/a.txt", "/workspace/sub", "/workspace/sub/b.txt",
		"/workspace/.env", "/workspace/sub/.env", "/workspace/deploy/server.pem",
		"/workspace/sub/c.key", "/workspace/new", "/workspace/sub/new", "/workspace/prog",
		"/etc/shadow", "/etc/hostname", "/root/.ssh/id_ed25519", "/var/run/docker.sock",
		"/usr/jail-decides", "/etc/jail-decides", "/opt/jail-decides", "/jail-decides"}
	var batch []cmdtest.Asked
	exists := func(path string) bool {
		return !strings.HasPrefix(path, "/workspace/new") && !strings.HasSuffix(path, "/new") &&
			!strings.HasSuffix(path, "/x") && !strings.HasSuffix(path, "/jail-decides") &&
			path != "/tmp/prog"
	}
	if native {
		batch = append(batch, cmdtest.Asked{Op: "copy", What: "/tmp/prog",
			Want: eff.Decide(policy.Open{Path: "/tmp/prog", Want: policy.Write}).Allowed})
		exists = func(path string) bool {
			return !strings.HasSuffix(path, "new") && !strings.HasSuffix(path, "/x") &&
				!strings.HasSuffix(path, "decides")
		}
	}
	for _, path := range append(inside, host...) {
		// A module's root is the list of its mounts' names, which the engine makes.
		if own(plan, path) || path == "/" && !native {
			continue
		}
		if exists(path) {
			batch = append(batch,
				cmdtest.Asked{Op: "read", What: path, Want: eff.Decide(policy.Open{Path: path, Want: policy.Read}).Allowed})
		}
		// A program of the host can make a file of its own by a name that is hidden: what was there
		// it does not see, and what it makes there is never committed.
		if write := eff.Decide(policy.Open{Path: path, Want: policy.Write}); !native ||
			!strings.HasPrefix(write.Rule, "workspace.hide") {
			batch = append(batch, cmdtest.Asked{Op: "write", What: path, Want: write.Allowed})
		}
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() &&
			info.Mode().Perm()&0o001 != 0 && !sameAsGranted(eff, path) || strings.HasSuffix(path,
			"/prog") {
			may := eff.Decide(policy.Native{Path: path}).Allowed &&
				eff.Decide(policy.Open{Path: path, Want: policy.Exec}).Allowed
			batch = append(batch, cmdtest.Asked{Op: "exec", What: path, Want: may})
		}
	}
	for _, host := range []string{"192.0.2.1", "1.1.1.1", "169.254.169.254", "10.0.0.1"} {
		for _, port := range []uint16{22, 80, 443, 53} {
			batch = append(batch, cmdtest.Asked{Op: "connect", What: fmt.Sprintf("%s:%d", host, port),
				Want: eff.Decide(policy.Connect{Host: host, Port: port}).Allowed})
		}
	}
	return batch
}

// own reports whether a path is the jail's own, of which no policy speaks.
func own(plan jail.Plan, path string) bool {
	for _, p := range []string{"/proc", "/dev", "/run", "/sys"} {
		if path == p || strings.HasPrefix(path, p+"/") {
			return true
		}
	}
	return slices.ContainsFunc(plan.Files, func(f jail.File) bool {
		return f.Path == path || strings.HasPrefix(f.Path, path+"/")
	})
}

// sameAsGranted reports whether a file may run under another of its names: the kernel knows files,
// and a policy names.
func sameAsGranted(eff policy.Effective, path string) bool {
	info, err := os.Stat(path)
	if err != nil {
		return false
	}
	names := slices.Clone(jail.Loaders)
	for _, g := range eff.Policy().Tools.Native {
		if g.Literal() {
			names = append(names, g.String())
		}
	}
	return slices.ContainsFunc(names, func(name string) bool {
		other, err := os.Stat(name)
		return name != path && err == nil && os.SameFile(info, other)
	})
}

func answersTo(h *cmdtest.PolicyHost, req message.Request, batch []cmdtest.Asked) []bool {
	h.T.Helper()
	in, err := json.Marshal(batch)
	if err != nil {
		h.T.Fatal(err)
	}
	r, out := h.Start(bytes.NewReader(in), nil, req)
	var answers []bool
	if err := json.Unmarshal([]byte(out), &answers); r.ExitCode != 0 || err != nil ||
		len(answers) != len(batch) {
		h.T.Fatalf("exit code %d, %+v, limit %v: %v, %.500s", r.ExitCode, r.Error, r.Limit, err,
			out)
	}
	return answers
}
