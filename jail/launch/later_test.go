package launch_test

import (
	"errors"
	"fmt"
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
	if err := cgroup.MakeBounded(group,
		cgroup.Bound{Ceiling: cgroup.Ceiling{Memory: first.Plan.Cgroup.Memory,
			PIDs: first.Plan.Cgroup.PIDs}}); err != nil {
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
	var list []attack
	for _, a := range slices.Concat(rootAttacks, namespaceAttacks, hostAttacks) {
		if a.prepare == nil && a.judge == nil {
			list = append(list, a)
		}
	}
	if len(list) < 30 {
		t.Fatalf("there are %d attacks only", len(list))
	}
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
			for _, a := range list {
				results, err := j.Try(a.calls(&host{Setup: s})...)
				if err != nil {
					t.Fatalf("%s has ended the jail: %v", a.name, err)
				}
				if got := firstError(results); got == "ok" || got == a.through {
					t.Errorf("%s: %s", a.name, got)
				}
			}
			if r := j.One("=fill", text("/workspace/control"), i(1)); r.Errno != "" {
				t.Errorf("what is granted: %v", r)
			}
			if r := j.One("=fill", text("/data/control"), i(1)); r.Errno == "" {
				t.Error("a read-only mount can be written to")
			}
		})
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
	} {
		s := jailtest.New(t)
		s.Later = true
		giveShadow(t, s)
		weaken(&s.Plan)
		if j, err := s.TryStart(t); !errors.As(err, &layer) {
			t.Errorf("%s: %v", name, err)
			j.End()
		}
	}
}

// The domains of a jail that stood before its workspace are put on when it runs already, and on all
// of its threads: what they alone refuse is refused whichever thread asks, by the plan's domain and
// by the host's.
func TestDomainsComeLater(t *testing.T) {
	for name, forbid := range map[string]func(*jailtest.Setup){
		"the plan's": func(s *jailtest.Setup) { onlyRead(s.Plan.Landlock.Rules) },
		"the host's": func(s *jailtest.Setup) {
			c := jail.Ceiling{Filter: s.Plan.OuterFilter, Landlock: s.Plan.Landlock}
			c.Landlock.Rules = slices.Clone(c.Landlock.Rules)
			onlyRead(c.Landlock.Rules)
			s.Plan.Ceiling = &c
		},
		"neither": func(*jailtest.Setup) {},
	} {
		t.Run(name, func(t *testing.T) {
			s := jailtest.New(t)
			s.Later = true
			giveShadow(t, s)
			forbid(s)
			j := s.Start(t)
			want := "EACCES"
			if name == "neither" {
				want = ""
			}
			// The probe does each on whatever thread it is on.
			for n := range 20 {
				if r := j.One("=fill", text(fmt.Sprint("/tmp/", n)), i(1)); r.Errno != want {
					t.Fatalf("write %d to /tmp: %v, want %q", n, r, want)
				}
			}
			if r := j.One("=fill", text("/workspace/new"), i(1)); r.Errno != "" {
				t.Errorf("write to the workspace: %v", r)
			}
		})
	}
}

// onlyRead takes the right to write from the rules of /tmp.
func onlyRead(rules []jail.LandlockRule) {
	for n := range rules {
		if rules[n].Path == "/tmp" {
			rules[n].Write = false
		}
	}
}
