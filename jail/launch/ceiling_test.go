package launch_test

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/jail/jailtest"
	"github.com/jail-sandbox/jail/jail/jailtest/victim"
	"github.com/jail-sandbox/jail/jail/seccomp"
	"github.com/jail-sandbox/jail/policy"
)

// faulty returns a setup whose plan is made as by a meet with a fault: the profile is taken as it
// is, and wider still where widen says so. The ceiling met nothing; it is there as the kernel's
// layer alone, or, for the control, not at all.
func faulty(t *testing.T, ceiling func(*jailtest.Setup, *policy.Policy), widen func(*jail.Plan),
	layer bool) *jailtest.Setup {
	t.Helper()
	s := jailtest.New(t)
	if err := cgroup.MakeSlice(jailtest.Slice(), outermost); err != nil {
		t.Fatal(err)
	}
	if widen != nil {
		widen(&s.Plan)
	}
	if !layer {
		return s
	}
	c := policy.Top()
	ceiling(s, &c)
	s.Plan.Ceiling = jail.NewCeiling(c.Normal(), s.Request, s.Plan)
	if g := s.Plan.Ceiling.Cgroup; g != nil {
		s.Plan.Cgroup.Path = g.Path + s.Plan.Cgroup.Path[len(jailtest.Slice()):]
	}
	return s
}

func filtersOf(groups ...string) func(*jail.Plan) {
	return func(p *jail.Plan) {
		p.InnerFilter = seccomp.NewFilter(append(slices.Clone(seccomp.WASIGroups), groups...)...)
		p.OuterFilter = seccomp.NewOuterFilter(append(slices.Clone(seccomp.InitGroups),
			groups...)...)
	}
}

// readsOnly is a ceiling under which the mounts may be read.
func readsOnly(s *jailtest.Setup, c *policy.Policy) {
	c.Mounts = policy.Mounts{{Source: s.Data, Access: policy.Read},
		{Source: s.Store, Access: policy.Read}, {Access: policy.Tmpfs}}
}

// What a fault in the meet lets through, the ceiling's own layer stops; without the layer the
// attack succeeds.
func TestCeilingHoldsWhereTheMeetDoesNot(t *testing.T) {
	i, text := victim.Int, victim.Text
	create := i(unix.O_CREAT | unix.O_WRONLY)
	for _, c := range []struct {
		name    string
		ceiling func(*jailtest.Setup, *policy.Policy)
		widen   func(*jail.Plan)
		attack  victim.Call
		stopped string
	}{
		{"write to what may be read", readsOnly, nil,
			victim.Do("openat", i(unix.AT_FDCWD), text("/store/new"), create, i(0o600)), "EACCES"},
		{"read what may not be seen", func(s *jailtest.Setup, c *policy.Policy) {
			c.Mounts = policy.Mounts{{Source: s.Store, Access: policy.Read}, {Access: policy.Tmpfs}}
		}, nil, victim.Do("openat", i(unix.AT_FDCWD), text("/data/f"), i(0)), "EACCES"},
		{"a source at another place than the ceiling's", func(s *jailtest.Setup, c *policy.Policy) {
			c.Mounts = policy.Mounts{{Source: s.Store, Target: "/elsewhere",
				Access: policy.Read | policy.Write}}
		}, nil, victim.Do("openat", i(unix.AT_FDCWD), text("/store/f"), i(0)), "EACCES"},
		{"memory of its own where there is to be none", func(s *jailtest.Setup, c *policy.Policy) {
			c.Mounts = policy.Mounts{{Source: "/", Access: policy.Read}}
		}, nil, victim.Do("openat", i(unix.AT_FDCWD), text("/tmp/new"), create, i(0o600)),
			"EACCES"},
		{"a socket", func(_ *jailtest.Setup, c *policy.Policy) {
			c.Syscalls.Groups = []string{
				policy.GroupWASI}
		}, filtersOf("sockets", "loopback"),
			victim.Do("socket", i(unix.AF_INET), i(unix.SOCK_STREAM), i(0)), "ENOSYS"},
		{"a call of native programs", func(_ *jailtest.Setup,
			c *policy.Policy) {
			c.Syscalls.Groups = []string{policy.GroupWASI}
		}, filtersOf("files", "host"),
			victim.Do("chdir", text("/tmp")), "ENOSYS"},
		{"another program", func(_ *jailtest.Setup,
			c *policy.Policy) {
			c.Tools.Native, c.Tools.Images = policy.Globs{}, policy.Globs{}
		}, func(p *jail.Plan) {
			filtersOf("processes")(p)
			p.Landlock.Rules = append(p.Landlock.Rules, jail.LandlockRule{Path: "/", Exec: true})
		}, victim.Do("execve", text("/run/jail/init"), victim.Arg{List: []string{"probe", "hello"}},
			i(0)), "ENOSYS"},
	} {
		t.Run(c.name, func(t *testing.T) {
			stopped := faulty(t, c.ceiling, c.widen, true).Start(t)
			if r := stopped.One(c.attack.Name, c.attack.Args...); r.Errno != c.stopped {
				t.Errorf("with the ceiling's layer: %+v, want %s", r, c.stopped)
			}
			stopped.End()
			free := faulty(t, c.ceiling, c.widen, false).Start(t)
			results, err := free.Try(c.attack)
			// Which does not come back.
			if c.attack.Name == "execve" {
				if status, waitErr := free.Wait(); err == nil || waitErr != nil ||
					status.Code != 42 {
					t.Errorf("without it: %+v, %v, %v: want the other program's exit", results,
						status, waitErr)
				}
			} else if err != nil || results[0].Errno != "" {
				t.Errorf("without it: %+v, %v: want it to succeed", results, err)
			}
			free.End()
		})
	}
}

// The limits of the ceiling are the kernel's word as well, in a group above the leaf.
func TestCeilingHoldsTheLimits(t *testing.T) {
	const most, wanted = 48 << 20, 120 << 20
	// With control groups v2, what the group above refuses was in the leaf's peak before it was
	// taken back: a huge page at most (page_counter_try_charge of Linux).
	const refused = 2 << 20
	lavish := func(p *jail.Plan) {
		p.Cgroup.Memory, p.Cgroup.PIDs = 1<<30, 1000
		for _, f := range []*seccomp.Filter{&p.InnerFilter, &p.OuterFilter} {
			allow(f, []string{"clone", "kill", "setsid", "memfd_create", "socketpair", "stat",
				"newfstatat", "pipe2", "sendmsg"})
		}
	}
	small := func(_ *jailtest.Setup, c *policy.Policy) {
		c.Limits.Memory, c.Limits.PIDs = most, 16
		// The hog's own calls are no WASI guest's.
		c.Syscalls.Groups = []string{policy.GroupNative, policy.GroupWASI}
	}
	for _, layer := range []bool{true, false} {
		s := faulty(t, small, lavish, layer)
		j := s.Start(t)
		_, err := j.Try(victim.Do("=touch", victim.Int(wanted)))
		if layer != (err != nil) {
			t.Errorf("%d bytes with the ceiling's layer %v: %v", wanted, layer, err)
		}
		slack := int64(0)
		if layout, err := cgroup.Detect(); err != nil {
			t.Fatal(err)
		} else if layout == cgroup.V2 {
			slack = refused
		}
		if u := usageOf(t, leafOf(t, s)); layer && u.MemoryPeak > most+slack || !layer &&
			u.MemoryPeak < wanted {
			t.Errorf("ceiling %v: peak of %d bytes", layer, u.MemoryPeak)
		}
		if layer {
			above, err := cgroup.Open(cgroup.CeilingOf(s.Plan).Path)
			if err != nil {
				t.Fatal(err)
			}
			if u := usageOf(t, above); u.MemoryPeak > most+nofail {
				t.Errorf("the ceiling's own group: peak of %d bytes", u.MemoryPeak)
			}
		}
		j.End()
		s = faulty(t, small, lavish, layer)
		j = s.Start(t)
		r := j.One("=forks", victim.Int(40))
		if forked := r.Errno == ""; forked == layer {
			t.Errorf("40 processes with the ceiling's layer %v: %+v", layer, r)
		}
		j.End()
	}
}

// A jail under a ceiling that grants all of its plan does what one without does, and is what its
// plan says.
func TestCeilingLetsThroughWhatItGrants(t *testing.T) {
	s := faulty(t, func(_ *jailtest.Setup, c *policy.Policy) { c.Limits.PIDs = 32 }, nil, true)
	j := s.Start(t)
	i, text := victim.Int, victim.Text
	for _, r := range j.Do(
		victim.Do("openat", i(unix.AT_FDCWD), text("/store/new"), i(unix.O_CREAT|unix.O_WRONLY),
			i(0o600)),
		victim.Do("openat", i(unix.AT_FDCWD), text("/data/f"), i(0)),
		victim.Do("mkdirat", i(unix.AT_FDCWD), text("/tmp/new"), i(0o700))) {
		if r.Errno != "" {
			t.Errorf("%+v", r)
		}
	}
	// The inner filter's listener still reports what is refused.
	if r := j.One("socket", i(unix.AF_VSOCK), i(unix.SOCK_STREAM), i(0)); r.Errno != "EPERM" {
		t.Errorf("socket: %+v", r)
	}
	j.End()
}
