package policy_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/jail/verify"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// wantRefused wants a run to be refused, with that in its message.
func wantRefused(h *cmdtest.PolicyHost, req message.Request, says string) {
	h.T.Helper()
	r, out := h.Start(nil, nil, req)
	if r.ExitCode != problem.ExitRefused || r.Error == nil || !strings.Contains(r.Error.Message,
		says) || out != "" {
		h.T.Errorf("%s %s: exit code %d, %+v, %q: want a refusal that says %q", req.Tool, req.Args,
			r.ExitCode, r.Error, out, says)
	}
}

// A change of the ceiling holds for the next run, and not for one that has begun; a broken one
// changes nothing; both are on record (T-538).
func TestReloadInForce(t *testing.T) {
	h := cmdtest.NewPolicyHost(t,
		map[string]string{"ceiling": "policy = 1\n[limits]\nmemory = \"200MiB\"\n"})
	before := h.WantRun(cmdtest.Request("default", "echo", "x")).Policy
	in, stdin := io.Pipe()
	started, ended := make(chan struct{}), make(chan message.Result)
	go func() {
		r, _ := h.Start(in, func() { close(started) }, cmdtest.Request("default", "cat"))
		ended <- r
	}()
	select {
	case <-started:
	case r := <-ended:
		t.Fatalf("it ended at once: exit code %d, %+v", r.ExitCode, r.Error)
	}
	h.Write("ceiling", "policy = 1\n[limits]\nmemory = \"100MiB\"\n")
	after := h.WantRun(cmdtest.Request("default", "echo", "x")).Policy
	if after == before {
		t.Error("the next run has the policy of before")
	}
	stdin.Close()
	if r := <-ended; r.Policy != before || r.ExitCode != 0 {
		t.Errorf("the run that had begun: exit code %d, policy %s, began with %s", r.ExitCode,
			r.Policy, before)
	}
	h.Write("ceiling", "policy = 1\n[limits]\nmemory = 7\n")
	if now := h.WantRun(cmdtest.Request("default", "echo", "x")).Policy; now != after {
		t.Errorf("a broken ceiling changed the policy of runs to %s", now)
	}
	status := h.S.Policies().Status()
	if status.Reloads != 1 || status.Failures != 1 || !strings.Contains(status.Error,
		"ceiling.toml:3:") {
		t.Errorf("status %+v", status)
	}
	if err := h.S.Policies().Reload(); err == nil {
		t.Error("a reload of a broken ceiling is said to have worked")
	}
	h.Close()
	o := h.Jail("audit", "show", "--json")
	if n := strings.Count(o.Out, `"type":"policy.loaded"`); n != 4 || !strings.Contains(o.Out,
		`"was":"`+status.Digest) || !strings.Contains(o.Out, "ceiling.toml:3:") {
		t.Errorf("%d records of policies in\n%s%s", n, o.Out, o.Err)
	}
}

// T-521: a workspace's own policy file takes away and never grants, and nothing runs over one that
// is not as it should be.
func TestWorkspaceOwnPolicy(t *testing.T) {
	h := cmdtest.NewPolicyHost(t, nil)
	own := filepath.Join(h.Work, ".jail.toml")
	put := func(text string) {
		t.Helper()
		if err := errors.Join(os.RemoveAll(own),
			os.WriteFile(own, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	h.WantRun(cmdtest.Request("default", "echo", "x"))
	put("policy = 1\n[tools]\nallow = [\"core-utils/echo\"]\n[limits]\nmemory = \"64MiB\"\n[workspace]\nhide = [\"secret\"]\n")
	h.WantRun(cmdtest.Request("default", "echo", "x"))
	wantRefused(h, cmdtest.Request("default", "cat", "x"), "core-utils/cat is not allowed")
	plan, err := h.S.Preparer().Plan(context.Background(), h.Caller(0),
		message.Request{Tool: "echo", Dir: h.Work})
	if err != nil {
		t.Fatal(err)
	}
	if last := plan.Layers[len(plan.Layers)-1]; last.Name != "workspace" || last.Source != own ||
		plan.Cgroup.Memory > 100<<20 {
		t.Errorf("layers %v, memory %d", plan.Layers, plan.Cgroup.Memory)
	}
	// All that there is to grant, and nothing of it is granted.
	put("policy = 1\n[[mount]]\nsource = \"/etc\"\ntarget = \"/etc\"\naccess = \"read\"\n[[mount]]\ntarget = \"/tmp\"\naccess = \"tmpfs\"\n" +
		"[tools]\nnative = [\"**\"]\n[syscalls]\ngroups = [\"native\", \"wasi\"]\n[limits]\nmemory = \"8GiB\"\npids = 4000\n[[fetch.allow]]\nhost = \"*\"\n")
	// As without it: no program of the host is granted.
	wantRefused(h, cmdtest.Request("default", "/bin/sh", "-c", "true"), "not a WebAssembly module")
	plan, err = h.S.Preparer().Plan(context.Background(), h.Caller(0),
		message.Request{Tool: "echo", Dir: h.Work})
	if err != nil {
		t.Fatal(err)
	}
	if plan.Cgroup.Memory > 256<<20+64<<20 || plan.Fetch != nil ||
		strings.Contains(plan.Landlock.Rules[len(plan.Landlock.Rules)-1].Path, "/etc") {
		t.Errorf("it granted something: %+v", plan)
	}
	put("policy = 1\n[workspace]\naccess = \"none\"\n")
	h.WantRun(cmdtest.Request("default", "echo", "x"))

	// What is no good is refused whole, by one sentence.
	for name, c := range map[string]struct {
		make func() error
		says string
	}{
		"broken": {func() error {
			return os.WriteFile(own, []byte("policy = 1\nlimits = 3\n"), 0o644)
		}, ".jail.toml:2:"},
		"empty": {func() error { return os.WriteFile(own, nil, 0o644) }, "version of the language"},
		"a rule of ceilings": {func() error {
			return os.WriteFile(own, []byte("policy = 1\n[signed]\nby = []\n"), 0o644)
		}, "is for the host's ceiling to say"},
		"a link": {func() error { return os.Symlink("/etc/hostname", own) }, "a symbolic link"},
		"a dangling link": {func() error { return os.Symlink("/nonexistent", own) },
			"a symbolic link"},
		"a directory": {func() error { return os.Mkdir(own, 0o755) }, "a directory"},
		"a FIFO":      {func() error { return syscall.Mkfifo(own, 0o644) }, "a FIFO"},
		"anyone's": {func() error {
			return errors.Join(os.WriteFile(own, []byte("policy = 1\n"), 0o644),
				os.Chmod(own, 0o666))
		}, "everyone can write"},
		"a stranger's": {func() error {
			return errors.Join(os.WriteFile(own, []byte("policy = 1\n"), 0o644),
				os.Chown(own, 4321, 4321))
		}, "its owner"},
		"too large": {func() error {
			return os.WriteFile(own, []byte("policy = 1\n"+strings.Repeat("#\n", 1<<20)), 0o644)
		}, "larger than"},
		"one of several names": {func() error {
			return errors.Join(os.WriteFile(own, []byte("policy = 1\n"), 0o644),
				os.Link(own, filepath.Join(h.Work, "other")))
		}, "another name"},
	} {
		if err := errors.Join(os.RemoveAll(own), c.make()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		wantRefused(h, cmdtest.Request("default", "echo", "x"), c.says)
	}
	h.WantRun(cmdtest.Request("strict", h.Probe)) // which has no workspace
	os.RemoveAll(own)
}

// The ceiling says who may use which profile.
func TestWhoMayUseWhichProfile(t *testing.T) {
	h := cmdtest.NewPolicyHost(t,
		map[string]string{
			"ceiling": "policy = 1\n[profiles.readonly]\nusers = [\"4321\"]\ngroups = [\"nosuchgroup\"]\n[profiles.strict]\ngroups = [\"4321\"]\n[profiles.default]\nusers = [\"root\"]\n"})
	as := func(uid uint32, req message.Request) int {
		t.Helper()
		req.Dir, req.NoWorkspace = h.Work, true
		_, err := h.S.Preparer().Plan(context.Background(), h.Caller(uid), req)
		if err == nil {
			return 0
		}
		return problem.From(err).Exit()
	}
	for _, c := range []struct {
		uid     uint32
		profile string
		want    int
	}{
		{0, "default", 0}, {0, "", 0}, {0, "readonly", 126}, {0, "strict", 126}, {0, "fetch", 0},
		{4321, "default", 126}, {4321, "", 126}, {4321, "readonly", 0}, {4321, "fetch", 0},
		{1, "readonly", 126}, {1, "strict", 126}, {1, "fetch", 0},
	} {
		if got := as(c.uid, cmdtest.Request(c.profile, "echo")); got != c.want {
			t.Errorf("uid %d with profile %q: exit code %d, want %d", c.uid, c.profile, got, c.want)
		}
	}
	brought := cmdtest.Request("", "echo")
	brought.Policy, brought.PolicyName = "policy = 1\ninclude = [\"base\"]\n[tools]\nallow = [\"core-utils/*\"]\n", "mine.toml"
	if got := as(0, brought); got != 126 {
		t.Errorf("a policy file that a caller brings goes round who may use what: exit code %d",
			got)
	}
	h.Write("ceiling",
		"policy = 1\n[profiles.readonly]\nusers = [\"4321\"]\n[profiles.\"*\"]\nusers = [\"root\"]\n")
	if got := as(0, brought); got != 0 {
		t.Errorf("root's own policy file: exit code %d", got)
	}
	if got := as(1, brought); got != 126 {
		t.Errorf("uid 1's own policy file: exit code %d", got)
	}
	if got := as(1, cmdtest.Request("default", "echo")); got != 126 {
		t.Errorf("uid 1 with what is left to others: exit code %d", got)
	}
}

// A host whose ceiling asks for signatures takes no profile without one, none of another name or
// text, and none that is older than it had.
func TestSignedProfiles(t *testing.T) {
	h := cmdtest.NewPolicyHost(t, nil)
	cmd := h.Command("tool", "key", "new", "ops")
	cmd.Dir = h.Root
	o := h.Run(cmd)
	if o.Code != 0 {
		t.Fatalf("key new: %+v", o)
	}
	private, public := filepath.Join(h.Root, "ops.key"), strings.TrimSpace(o.Out)
	text := func(version, about string) string {
		return "policy = 1\nversion = " + version + "\nabout = \"" + about +
			"\"\ninclude = [\"base\"]\n[tools]\nallow = [\"core-utils/*\"]\n"
	}
	path := filepath.Join(h.Dir, "profiles", "own.toml")
	put := func(version, about string, signed bool) {
		t.Helper()
		h.Write("own", text(version, about))
		if signed {
			if o := h.Jail("policy", "sign", "--key", private, path); o.Code != 0 {
				t.Fatalf("policy sign: %+v", o)
			}
		}
	}
	// exchange gives a text the signature of another one. That is made elsewhere: the daemon would
	// take up the signed text as soon as it is there.
	exchange := func(other string) {
		t.Helper()
		aside := filepath.Join(t.TempDir(), "own.toml")
		if err := os.WriteFile(aside, []byte(text("5", "fifth")), 0o644); err != nil {
			t.Fatal(err)
		}
		if o := h.Jail("policy", "sign", "--key", private, aside); o.Code != 0 {
			t.Fatalf("policy sign: %+v", o)
		}
		h.Write("own", other)
		if err := os.Rename(aside+".sig", path+".sig"); err != nil {
			t.Fatal(err)
		}
	}
	put("3", "first", false)
	h.Write("ceiling", "policy = 1\n[signed]\nby = [\""+public+"\"]\n")
	own := cmdtest.Request("own", "echo", "x")
	own.NoWorkspace = true
	says := func(want string) {
		t.Helper()
		r, _ := h.Start(nil, nil, own)
		if got := r.ExitCode; (want == "") != (got == 0) {
			t.Errorf("exit code %d, %+v: want %q", got, r.Error, want)
		}
		if status := h.S.Policies().Status(); want != "" && !strings.Contains(status.Error, want) {
			t.Errorf("status %q, want %q", status.Error, want)
		}
	}
	if status := h.S.Policies().Reload(); status == nil {
		t.Error("an unsigned profile passes")
	}
	put("3", "first", true)
	h.S.Policies().Reload()
	says("")
	put("4", "second", true)
	says("")
	// The shipped ones are part of the program.
	h.WantRun(cmdtest.Request("default", "echo", "x"))

	// What was in force stays so, and what comes does not.
	good := h.WantRun(own).Policy
	for name, c := range map[string]struct {
		put  func()
		says string
	}{
		"an older one":        {func() { put("3", "first", true) }, "does not go back"},
		"another of the same": {func() { put("4", "third", true) }, "count up"},
		"another text":        {func() { exchange(text("5", "changed")) }, "of another text"},
		"another version":     {func() { exchange(text("6", "fifth")) }, "of another text"},
		"no signature": {func() {
			os.Remove(path + ".sig")
			h.Write("own", text("5", "unsigned"))
		}, "not signed"},
	} {
		c.put()
		r := h.WantRun(own)
		if r.Policy != good {
			t.Errorf("%s: it is in force", name)
		}
		if status := h.S.Policies().Status(); !strings.Contains(status.Error, c.says) {
			t.Errorf("%s: status %q, want %q", name, status.Error, c.says)
		}
	}
	// Also over the end of a daemon, where there is no old state to keep.
	put("3", "first", true)
	h.Close()
	h.Open()
	if r, _ := h.Start(nil, nil, own); r.ExitCode == 0 {
		t.Error("a daemon that was started anew takes an old version")
	}
	put("5", "fifth", true)
	h.WantRun(own)
	brought := own
	brought.Profile, brought.Policy, brought.PolicyName = "", text("9", "mine"), "mine.toml"
	wantRefused(h, brought, "signed profiles only")
}

// Tools of each kind run under a ceiling that grants what they need, in the layers that it says,
// and nothing of those is left.
func TestRunsUnderACeiling(t *testing.T) {
	h := cmdtest.NewPolicyHost(t,
		map[string]string{
			"ceiling": "policy = 1\n[limits]\nmemory = \"512MiB\"\npids = 200\ncpus = 2.0\n"})
	h.WantRun(cmdtest.Request("default", "echo", "x"))
	h.WantRun(cmdtest.Request("build", "/bin/sh", "-c",
		"echo x > f && cat f && grep x f | wc -l && cp /bin/true ./prog && ./prog"))
	h.WantRun(message.Request{Script: &message.Script{Name: "-c",
		Text: "echo x | grep x > f; cat f"}})
	started, ended := make(chan struct{}), make(chan message.Result)
	in, stdin := io.Pipe()
	live := cmdtest.Request("default", "cat")
	live.ID = "under-a-ceiling"
	go func() {
		r, _ := h.Start(in, func() { close(started) }, live)
		ended <- r
	}()
	select {
	case <-started:
	case r := <-ended:
		t.Fatalf("it ended at once: exit code %d, %+v", r.ExitCode, r.Error)
	}
	v, err := h.S.Live().Verify(h.Caller(0), live.ID)
	if err != nil || !v.OK {
		t.Errorf("%v, %+v", err, v)
	}
	seen := map[string]bool{}
	for _, f := range v.Findings {
		if f.Layer == "ceiling" && f.Answer == verify.OK {
			seen[f.What] = true
		}
	}
	if !seen["memory"] || !seen["pids"] || !seen["cpu quota"] {
		t.Errorf("the ceiling's group: %v in %+v", seen, v.Findings)
	}
	stdin.Close()
	<-ended
	if left, _ := filepath.Glob(cgroup.Root + "/*/jail/under-a-ceiling*"); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
}

// A cache is a right of its own: a ceiling that grants the directory where it would be, and no
// cache there, grants no cache.
func TestCeilingOfCaches(t *testing.T) {
	h := cmdtest.NewPolicyHost(t, map[string]string{"cached": "policy = 1\nname = \"cached\"\n" +
		"about = \"x\"\ninclude = [\"default\"]\n[[mount]]\naccess = \"cache\"\nname = \"things\"\n" +
		"target = \"/cache\"\nsize = \"4MiB\"\n"})
	caches := func(ceiling string) (n int) {
		t.Helper()
		h.Write("ceiling", "policy = 1\n"+ceiling)
		plan, err := h.S.Preparer().Plan(context.Background(), h.Caller(0),
			message.Request{Tool: "echo", Profile: "cached", Dir: h.Work})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range plan.Mounts {
			if m.Target == "/cache" {
				n++
			}
		}
		return n
	}
	if n := caches("[[mount]]\naccess = \"cache\"\n"); n != 1 {
		t.Errorf("a ceiling with any cache: %d mounts", n)
	}
	for _, ceiling := range []string{
		"[[mount]]\ntarget = \"/cache\"\naccess = \"tmpfs\"\n",
		"[[mount]]\naccess = \"cache\"\nname = \"others\"\n",
		"[[mount]]\naccess = \"cache\"\ntarget = \"/elsewhere\"\n",
	} {
		if n := caches(ceiling); n != 0 {
			t.Errorf("a ceiling with %s: %d mounts", ceiling, n)
		}
	}
}
