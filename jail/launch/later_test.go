package launch_test

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/jail/jailtest"
	"github.com/jail-sandbox/jail/jail/launch"
)

// inSession returns the setup of a jail that has its shadow and its /tmp from another, as the
// invocations of a session have, and that other jail. It lives below a bound that they share.
func inSession(t *testing.T) (*jailtest.Setup, *jailtest.Jail) {
	t.Helper()
	first, s := jailtest.New(t), jailtest.New(t)
	giveShadow(t, first)
	group := first.Plan.Cgroup.Path + ".session"
	if err := cgroup.MakeBounded(group, cgroup.Ceiling{Memory: first.Plan.Cgroup.Memory,
		PIDs: first.Plan.Cgroup.PIDs}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cgroup.Remove(group); err != nil {
			t.Error(err)
		}
	})
	holder := first.Start(t)
	id := s.Plan.ID
	s.Plan = first.Plan.Elsewhere(id, first.Plan.IDs.Base)
	s.Plan.Cgroup.Path = group + "/" + string(id)
	s.Holder = holder
	return s, holder
}

// The walls around a jail are the same where it stood before its workspace was there, and where its
// file systems are another jail's too: what the whole stack refuses elsewhere it refuses there.
// That the attacks work without the walls is what TestWalls sees.
func TestWallsOfEveryStart(t *testing.T) {
	for name, setup := range map[string]func(t *testing.T) *jailtest.Setup{
		"attached later": func(t *testing.T) *jailtest.Setup {
			s := jailtest.New(t)
			s.Later = true
			giveShadow(t, s)
			return s
		},
		"in a session": func(t *testing.T) *jailtest.Setup {
			s, _ := inSession(t)
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := setup(t)
			j := s.Start(t)
			tryAll(t, s, j)
			if r := j.One("=fill", text(s.Plan.Workspace.Target+"/control"), i(1)); r.Errno != "" {
				t.Errorf("what is granted: %v", r)
			}
			if r := j.One("=fill", text("/data/control"), i(1)); r.Errno == "" {
				t.Error("a read-only mount can be written to")
			}
		})
	}
}

// tryAll makes every attack in the jail that needs nothing prepared, and wants each refused.
func tryAll(t *testing.T, s *jailtest.Setup, j *jailtest.Jail) {
	t.Helper()
	var list []attack
	for _, a := range slices.Concat(rootAttacks, namespaceAttacks, hostAttacks) {
		if a.prepare == nil && a.judge == nil {
			list = append(list, a)
		}
	}
	if len(list) < 30 {
		t.Fatalf("there are %d attacks only", len(list))
	}
	for _, a := range list {
		results, err := j.Try(a.calls(&host{Setup: s})...)
		if err != nil {
			t.Fatalf("%s has ended the jail: %v", a.name, err)
		}
		if got := firstError(results); got == "ok" || got == a.through {
			t.Errorf("%s: %s", a.name, got)
		}
	}
}

// What one jail of a session writes the other sees, in the shadow and in /tmp, and each by its own
// rights: a mount is handed out of what the plan shares and of nothing else, and not when the jail
// has ended.
func TestShare(t *testing.T) {
	s, holder := inSession(t)
	for n := range s.Plan.Mounts {
		if s.Plan.Mounts[n].Target == "/tmp" {
			s.Plan.Mounts[n].Write = false
		}
	}
	for n := range s.Plan.Landlock.Rules {
		s.Plan.Landlock.Rules[n].Write = true // the mount alone decides
	}
	j := s.Start(t)
	if r := j.One("=fill", text("/workspace/new"), i(1)); r.Errno != "" {
		t.Errorf("write to the shadow: %v", r)
	}
	if r := holder.One("=read", text("/workspace/new")); r.Errno != "" || len(r.Data) == 0 {
		t.Errorf("the other jail reads %v", r)
	}
	if r := holder.One("=fill", text("/tmp/new"), i(1)); r.Errno != "" {
		t.Errorf("write to /tmp: %v", r)
	}
	if r := j.One("=read", text("/tmp/new")); r.Errno != "" || len(r.Data) == 0 {
		t.Errorf("it reads %v", r)
	}
	if r := j.One("=fill", text("/tmp/more"), i(1)); r.Errno != "EROFS" {
		t.Errorf("write to what its own plan has read-only: %v", r)
	}
	for _, target := range []string{"/", "/proc", "/data", "/store", "/dev", "/run/jail/init",
		"/workspace/../data", "/workspace/", "", "tmp"} {
		if f, err := holder.Share(target); err == nil || !strings.Contains(err.Error(),
			"neither a shadow nor a tmpfs") {
			t.Errorf("share %q: %v", target, err)
			if f != nil {
				f.Close()
			}
		}
	}
	j.End()
	holder.Kill()
	_, _ = holder.Wait()
	if f, err := holder.Share("/tmp"); !errors.Is(err, launch.ErrNotThere) {
		t.Errorf("of a jail that has ended: %v, %v", f, err)
	}
}

// A jail is given a workspace once, when it waits for one.
func TestAttachOnce(t *testing.T) {
	s := jailtest.New(t)
	s.Later = true
	giveShadow(t, s)
	j := s.Start(t)
	var layer *launch.LayerError
	if err := j.Attach(s.Files.Lower, s.Files.Upper); !errors.As(err, &layer) ||
		layer.Layer != "workspace" {
		t.Errorf("again: %v", err)
	}
	if _, err := j.Wait(); err != nil {
		t.Error(err)
	}
	if !j.Ended() {
		t.Error("a jail that could not be made whole is still there")
	}

	for name, weaken := range map[string]func(p *jail.Plan){
		"no workspace": func(p *jail.Plan) { p.Workspace = nil },
		"no shadow":    func(p *jail.Plan) { p.Workspace.Shadow = false },
		"its own path": func(p *jail.Plan) { p.Workspace.Target = "/workspace" },
	} {
		s := jailtest.New(t)
		s.Later = true
		giveShadow(t, s)
		weaken(&s.Plan)
		// Its first process may have ended first: it looks for what its Landlock rules name.
		if j, err := s.TryStart(t); err == nil {
			t.Errorf("%s: it started", name)
			j.End()
		} else if !errors.As(err, &layer) && !errors.Is(err, launch.ErrNotThere) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestWallsPrecedeWorkspace: a jail whose shadow comes later has all its walls before. What the
// whole stack refuses to any jail it refuses to this one while it waits, and what the domains of
// the plan and of the host say of the shadow holds for the mount that comes after them.
func TestWallsPrecedeWorkspace(t *testing.T) {
	for name, c := range map[string]struct {
		forbid func(*jailtest.Setup)
		// tmp and shadow are what a write to each is answered with.
		tmp, shadow string
	}{
		"what the plan refuses": {func(s *jailtest.Setup) {
			onlyRead(s.Plan.Landlock.Rules, "/tmp")
		}, "EACCES", ""},
		"what the host refuses": {func(s *jailtest.Setup) {
			c := jail.Ceiling{Filter: s.Plan.OuterFilter, Landlock: s.Plan.Landlock}
			c.Landlock.Rules = slices.Clone(c.Landlock.Rules)
			onlyRead(c.Landlock.Rules, "/tmp")
			s.Plan.Ceiling = &c
		}, "EACCES", ""},
		"a shadow to read": {func(s *jailtest.Setup) {
			onlyRead(s.Plan.Landlock.Rules, path.Dir(s.Plan.Workspace.Target))
		}, "", "EACCES"},
		"no rule for the shadow": {func(s *jailtest.Setup) {
			s.Plan.Landlock.Rules = slices.DeleteFunc(s.Plan.Landlock.Rules,
				func(r jail.LandlockRule) bool {
					return r.Path == path.Dir(s.Plan.Workspace.Target)
				})
		}, "", "EACCES"},
		"a rule for the mount point alone": {func(s *jailtest.Setup) {
			for n, r := range s.Plan.Landlock.Rules {
				if r.Path == path.Dir(s.Plan.Workspace.Target) {
					s.Plan.Landlock.Rules[n].Path = s.Plan.Workspace.Target
				}
			}
		}, "", "EACCES"},
		"what is granted": {func(*jailtest.Setup) {}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := jailtest.New(t)
			s.Later = true
			giveShadow(t, s)
			c.forbid(s)
			at := s.Plan.Workspace.Target
			s.BeforeAttach = func(p *launch.Process) {
				waiting := &jailtest.Jail{Process: p}
				for n := range 20 {
					r, err := waiting.Try(do("=fill", text(fmt.Sprint("/tmp/", n)), i(1)))
					if err != nil || r[0].Errno != c.tmp {
						t.Fatalf("write %d to /tmp: %v, %v, want %q", n, r, err, c.tmp)
					}
				}
				// The root is read-only, and there is nothing else yet.
				for _, file := range []string{at + "/f", path.Dir(at) + "/f"} {
					r, err := waiting.Try(do("=fill", text(file), i(1)))
					if err != nil || r[0].Errno == "" {
						t.Errorf("write to %s: %v, %v", file, r, err)
					}
				}
				r, err := waiting.Try(do("=read", text(at+"/f")))
				if err != nil || r[0].Errno == "" {
					t.Errorf("read of the shadow before it is there: %v, %v", r, err)
				}
				tryAll(t, s, waiting)
			}
			j := s.Start(t)
			for n := range 20 {
				r := j.One("=fill", text(fmt.Sprint(at, "/", n)), i(1))
				if r.Errno != c.shadow {
					t.Fatalf("write %d to the shadow: %v, want %q", n, r, c.shadow)
				}
			}
		})
	}
}

// onlyRead takes the right to write from the rules of a directory.
func onlyRead(rules []jail.LandlockRule, dir string) {
	for n := range rules {
		if rules[n].Path == dir {
			rules[n].Write = false
		}
	}
}
