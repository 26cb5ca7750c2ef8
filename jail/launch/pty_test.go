package launch_test

import (
	"errors"
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jail-sandbox/jail/jail/jailtest"
	"github.com/jail-sandbox/jail/jail/seccomp"
)

// openPTY returns the end of a new pseudo-terminal that programs have (pty(7)). Nobody reads at the
// other.
func openPTY(t *testing.T) *os.File {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err = errors.Join(err,
		unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)); err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close(); master.Close() })
	return slave
}

const (
	tioclinux = 0x541c
	tioccons  = 0x541d
)

// TestTerminalInside gives a jail a terminal for its streams, as no daemon does, and lets it push
// bytes into it, take it over and change it, with numbers that have something in the bits that the
// kernel does not read, too (T-021, T-022). The control is a jail without filters.
func TestTerminalInside(t *testing.T) {
	slave := openPTY(t)
	before, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	s := jailtest.New(t)
	s.Terminal = slave
	j := s.Start(t)
	for name, request := range map[string]int64{"TIOCSTI": unix.TIOCSTI, "TIOCLINUX": tioclinux,
		"TIOCCONS": tioccons, "TIOCSCTTY": unix.TIOCSCTTY, "TCSETS": unix.TCSETS,
		"TIOCSPGRP": unix.TIOCSPGRP, "TIOCNOTTY": unix.TIOCNOTTY, "TIOCVHANGUP": 0x5437,
		"TIOCEXCL": unix.TIOCEXCL} {
		for _, upper := range []int64{0, 1 << 32, -1 << 32} {
			for fd := range int64(3) {
				if r := j.One("ioctl", i(fd), i(request|upper), text("x")); r.Errno != "EPERM" &&
					r.Errno != "ENOSYS" {
					t.Errorf("%s, upper bits %x, descriptor %d: %v", name, upper, fd, r)
				}
			}
		}
	}
	j.End()
	wantQueue(t, slave, 0)
	after, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
	if err != nil || *after != *before {
		t.Errorf("the terminal's settings are %+v, were %+v, %v", after, before, err)
	}

	// The control: what the filters keep away from the terminal works without them.
	s = jailtest.New(t)
	s.Terminal = slave
	for _, f := range []*seccomp.Filter{&s.Plan.InnerFilter, &s.Plan.OuterFilter} {
		allow(f, []string{"ioctl", "setsid"})
	}
	j = s.Start(t)
	r := j.Do(do("ioctl", i(0), i(unix.TIOCSCTTY), i(0)), do("ioctl", i(0), i(unix.TIOCSTI),
		text("x")), do("ioctl", i(0), i(unix.TIOCSTI), text("\n")))
	// Before Linux 6.2 there is none, and the call is as it ever was.
	legacy, err := os.ReadFile("/proc/sys/dev/tty/legacy_tiocsti")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	if err != nil || string(legacy) == "1\n" {
		if firstError(r) != "ok" {
			t.Errorf("without filters: %v: this test would see nothing", r)
		}
		wantQueue(t, slave, 2)
	} else if r[0].Errno != "" {
		t.Errorf("without filters the terminal cannot be taken over: %v", r)
	}
	j.End()
}

// wantQueue checks that want bytes wait for the reader of the terminal.
func wantQueue(t *testing.T, slave *os.File, want int) {
	t.Helper()
	if n, err := unix.IoctlGetInt(int(slave.Fd()), unix.TIOCINQ); err != nil || n != want {
		t.Errorf("%d bytes wait to be read from the terminal, want %d (%v)", n, want, err)
	}
}
