package launch_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/jailtest"
	"github.com/jail-sandbox/jail/jail/jailtest/victim"
	"github.com/jail-sandbox/jail/jail/seccomp"
)

// TestNoCore lets a jail's first process crash as a program does whose memory the kernel writes
// down, in a directory that it may write to, dumpable, and after it has asked for a limit that lets
// it: no file appears (T-018). The control is a plan without that limit, where one does, unless
// this host pipes them to a helper or may not raise the limit.
func TestNoCore(t *testing.T) {
	if left, raised := crashes(t, func(*jail.Plan) {}); len(left) > 0 || raised != "EPERM" {
		t.Errorf("left behind: %q; the limit was raised: %s", left, raised)
	}
	var hard unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &hard); err != nil {
		t.Fatal(err)
	}
	pattern := read(t, "/proc/sys/kernel/core_pattern")
	if strings.HasPrefix(pattern, "|") || strings.HasPrefix(pattern, "/") || hard.Max == 0 {
		t.Logf("no control: core_pattern is %q, the hard limit %d", pattern, hard.Max)
		return
	}
	left, _ := crashes(t, func(p *jail.Plan) {
		for n, r := range p.Rlimits {
			if r.Name == "core" {
				p.Rlimits[n].Value = hard.Max
			}
		}
	})
	if len(left) != 1 {
		t.Errorf("without the limit %q were left: this test would see nothing", left)
	}
}

// crashes returns what was left in the writable directory, and how asking for a larger limit went.
func crashes(t *testing.T, change func(*jail.Plan)) (left []string, raised string) {
	t.Helper()
	s := jailtest.New(t)
	change(&s.Plan)
	for _, f := range []*seccomp.Filter{&s.Plan.InnerFilter, &s.Plan.OuterFilter} {
		allow(f, []string{"prctl", "prlimit64", "chdir"})
	}
	j := s.Start(t)
	endless := victim.Bytes(bytes.Repeat([]byte{0xff}, 16)...) // soft and hard
	r := j.Do(do("chdir", text("/store")), do("prctl", i(unix.PR_SET_DUMPABLE), i(1)),
		do("prlimit64", i(0), i(unix.RLIMIT_CORE), endless, i(0)))
	if r[0].Errno != "" || r[1].Errno != "" {
		t.Errorf("to a writable directory, and dumpable, with filters that let it: %v", r)
	}
	if _, err := j.Try(do("=crash")); err == nil {
		t.Fatal("it lives on")
	}
	if got, err := j.Wait(); err != nil || got.Signal != int(unix.SIGSEGV) {
		t.Errorf("ended with %+v, %v; want SIGSEGV", got, err)
	}
	j.End()
	for _, dir := range []string{s.Store, s.Data} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.Name() != "f" {
				left = append(left, e.Name())
			}
		}
	}
	return left, r[2].Errno
}
