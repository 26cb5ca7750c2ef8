package probe

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestKernel(t *testing.T) {
	for release, want := range map[string]Answer{
		"6.18.4-generic": Yes, "5.19.0": Yes, "5.19": Yes, "10.0.1": Yes,
		"5.18.19": No, "5.4.0-1": No, "4.19.0": No,
		"": Unknown, "next": Unknown, "six.one": Unknown,
	} {
		if got := kernel(release); got.Answer != want || got.Detail == "" ||
			(want != Yes) != (got.Fix != "") {
			t.Errorf("%q: %+v, want %s", release, got, want)
		}
	}
}

// A kernel that narrows no mounted proc is no fault of the host's, since no run needs the files.
func TestMachineFiles(t *testing.T) {
	for _, c := range []struct {
		fixed bool
		err   error
		want  Answer
	}{{false, nil, Yes}, {true, nil, Off}, {false, syscall.EIO, Unknown}} {
		if f := machineFiles(c.fixed, c.err); f.Answer != c.want || f.Detail == "" ||
			(f.Fix != "") != (f.Answer == Unknown) {
			t.Errorf("%v, %v: %+v, want %s", c.fixed, c.err, f, c.want)
		}
	}
}

// Whatever a host can do, each answer says what was found, and each no what to do.
func TestAll(t *testing.T) {
	dir := t.TempDir()
	for _, f := range All(dir, "/jail") {
		t.Logf("%+v", f)
		switch {
		case f.Name == "" || f.Detail == "":
			t.Errorf("%+v says too little", f)
		case f.Answer != Yes && f.Answer != Off && f.Fix == "":
			t.Errorf("%+v: no yes, and nothing to do about it", f)
		case f.Answer != Yes && f.Answer != No && f.Answer != Unknown && f.Answer != Off:
			t.Errorf("%+v: which answer?", f)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// The attempt at a shadow tells where it cannot be made: the control is the one that can.
func TestShadow(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can try")
	}
	dir := t.TempDir()
	if got := shadow(dir); got.Answer != Yes {
		t.Skipf("control: this host makes none: %s", got.Detail)
	}
	if got := shadow(filepath.Join(dir, "missing")); got.Answer != Unknown {
		t.Errorf("without a place to try: %+v", got)
	}
	// Nothing can be made there.
	const proc = "/proc/self"
	if got := shadow(proc); got.Answer == Yes {
		t.Errorf("in %s: %+v", proc, got)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), dir) {
		t.Errorf("a mount below %s is left in the host's table", dir)
	}
}

func TestRoom(t *testing.T) {
	if got := room(filepath.Join(t.TempDir(), "missing")); got.Answer != Unknown {
		t.Errorf("a directory that is not there: %+v", got)
	}
	if got := room("/proc"); got.Answer != No {
		t.Errorf("a file system without any room: %+v", got)
	}
}

// What a control group refuses of a device that is there is told from a host without the driver.
func TestLoopFinding(t *testing.T) {
	at := func(path string, err error) error {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	for _, c := range []struct {
		err error
		fix string
	}{
		{at(loopControl, syscall.ENOENT), "modprobe loop, or give the container"},
		{at(loopControl, syscall.EPERM), "give this process"},
		{at("/dev/loop0", syscall.EPERM), "systemctl restart jaild"},
		{at("/dev/loop0", syscall.ENXIO), "give this process"},
	} {
		if f := loopFinding(c.err); f.Answer != No || !strings.Contains(f.Fix, c.fix) ||
			f.Detail == "" {
			t.Errorf("%v: %+v, want %q", c.err, f, c.fix)
		}
	}
	if f := loopFinding(nil); f.Answer != Yes {
		t.Errorf("%+v", f)
	}
}
