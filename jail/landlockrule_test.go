package jail_test

import (
	"testing"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/policy"
)

// TestTold: every domain of a plan tells what it refuses, or none does; nothing else of the plan
// depends on it.
func TestTold(t *testing.T) {
	eff := shipped(t, "build")
	ceiling := eff.Policy()
	ceiling.Limits.Memory /= 2
	held, err := policy.Resolve(policy.Layer{Name: policy.CeilingLayer, Policy: ceiling},
		policy.Layer{Name: "profile", Policy: eff.Policy()})
	if err != nil {
		t.Fatal(err)
	}
	for name, e := range map[string]policy.Effective{"plain": eff, "under a ceiling": held} {
		r := request()
		r.Caches, r.Command.Runner = nil, jail.RunnerNative
		quiet, err := jail.NewPlan(e, r)
		if err != nil {
			t.Fatal(err)
		}
		r.Told = true
		told, err := jail.NewPlan(e, r)
		if err != nil {
			t.Fatal(err)
		}
		if quiet.Landlock.Told || !told.Landlock.Told || told.Ceiling != nil &&
			(quiet.Ceiling.Landlock.Told || !told.Ceiling.Landlock.Told) {
			t.Errorf("%s: %v, %v", name, quiet.Landlock.Told, told.Landlock.Told)
		}
		if (told.Ceiling != nil) != (name != "plain") {
			t.Errorf("%s: ceiling %v", name, told.Ceiling)
		}
		told.Landlock.Told = false
		if told.Ceiling != nil {
			told.Ceiling.Landlock.Told = false
		}
		if string(text(t, told)) != string(text(t, quiet)) {
			t.Errorf("%s: more is different", name)
		}
	}
}

func TestLandlockGrants(t *testing.T) {
	l := jail.Landlock{Rules: []jail.LandlockRule{{Path: "/usr"}, {Path: "/usr/bin/sh", Exec: true},
		{Path: "/w", Write: true}, {Path: "/w/bin", Exec: true},
		{Path: "/dev", Write: true, Device: true}, {Path: "/tmp", Write: true, Pipes: true}}}
	for _, c := range []struct {
		path   string
		rights []string
		grants bool
		says   string
	}{
		{"/", []string{"read_dir"}, false, "nothing is granted there"},
		{"/usrx", []string{"read_file"}, false, "nothing is granted there"},
		{"/usr", []string{"read_dir", "read_file"}, true, "/usr is granted for: read"},
		{"/usr/x", []string{"read_file", "write_file"}, false, "/usr is granted for: read"},
		{"/usr/bin/sh", []string{"execute"}, true, "/usr/bin/sh is granted for: read, execute"},
		{"/usr/bin/ls", []string{"execute"}, false, "/usr is granted for: read"},
		{"/w/bin/x", []string{"write_file", "execute"}, true,
			"/w/bin is granted for: read, execute"}, // rules add up
		{"/w", []string{"make_reg", "make_dir", "remove_file", "remove_dir", "truncate", "refer",
			"make_sym"}, true, "/w is granted for: read, write"},
		{"/w", []string{"make_fifo"}, false, "/w is granted for: read, write"},
		{"/w", []string{"resolve_unix"}, false, "/w is granted for: read, write"},
		{"/tmp", []string{"make_fifo", "make_sock", "resolve_unix"}, true,
			"/tmp is granted for: read, write, named pipes and sockets"},
		{"/dev/x", []string{"ioctl_dev"}, true, "/dev is granted for: read, write, devices"},
		{"/dev/x", []string{"make_char"}, false, "/dev is granted for: read, write, devices"},
		{"/dev/x", []string{"of a newer kernel"}, false,
			"/dev is granted for: read, write, devices"},
	} {
		if got := l.Grants(c.path, c.rights); got != c.grants {
			t.Errorf("%v on %s: %v", c.rights, c.path, got)
		}
		if got := l.Says(c.path); got != c.says {
			t.Errorf("%s: %q, want %q", c.path, got, c.says)
		}
	}
}

// TestSeenPath: a tool knows the shadow that may come later as its workspace, and nothing else by
// another name.
func TestSeenPath(t *testing.T) {
	for inside, seen := range map[string]string{
		"/run/jail/ws/workspace":      "/workspace",
		"/run/jail/ws/workspace/a/b":  "/workspace/a/b",
		"/run/jail/ws":                "/workspace",
		"/run/jail/ws/workspaces":     "/run/jail/ws/workspaces",
		"/run/jail/wsx/workspace":     "/run/jail/wsx/workspace",
		"/workspace/run/jail/ws":      "/workspace/run/jail/ws",
		"/workspace":                  "/workspace",
		"/tmp/run/jail/ws/workspace/": "/tmp/run/jail/ws/workspace/",
		"/run/jail/cache/0":           "/run/jail/cache/0",
	} {
		if got := jail.SeenPath(inside); got != seen {
			t.Errorf("%s is seen as %s, want %s", inside, got, seen)
		}
	}
}
