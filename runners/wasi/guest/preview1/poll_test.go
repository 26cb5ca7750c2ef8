package preview1

import (
	"encoding/binary"
	"os"
	"testing"

	"github.com/jail-sandbox/jail/runners/internal/sys"
)

type sub struct {
	tag     byte
	fd      uint32
	clock   uint32
	timeout uint64
	flags   uint16
}

// poll runs poll_oneoff and returns the events as (userdata, errno) pairs.
func poll(t *testing.T, p *Process, subs ...sub) (Errno, [][2]int) {
	t.Helper()
	mem := make([]byte, 1<<16)
	for i, s := range subs {
		b := mem[i*subscriptionSize:]
		binary.LittleEndian.PutUint64(b, uint64(i))
		b[8] = s.tag
		binary.LittleEndian.PutUint32(b[16:], s.clock|s.fd)
		binary.LittleEndian.PutUint64(b[24:], s.timeout)
		binary.LittleEndian.PutUint16(b[40:], s.flags)
	}
	const out, count = 1 << 14, 1 << 15
	e, _ := call(p, "poll_oneoff", mem, 0, out, uint64(len(subs)), count)
	var events [][2]int
	for i := range binary.LittleEndian.Uint32(mem[count:]) {
		b := mem[out+i*eventSize:]
		events = append(events,
			[2]int{int(binary.LittleEndian.Uint64(b)), int(binary.LittleEndian.Uint16(b[8:]))})
	}
	return e, events
}

func TestPoll(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	p := newGuest(t, t.TempDir())
	p.fds.files[0] = newStream(int(r.Fd()), stdinRights, nil)
	p.fds.files[1] = newStream(int(w.Fd()), stdoutRights, &p.Stdout)
	now, err := sys.Clock(0)
	if err != nil {
		t.Fatal(err)
	}
	const long, absolute = 1 << 62, 1
	stdin, stdout := sub{tag: eventFdRead, fd: 0}, sub{tag: eventFdWrite, fd: 1}
	for name, tt := range map[string]struct {
		subs []sub
		e    Errno
		want [][2]int
	}{
		"none":    {nil, errInval, nil},
		"a clock": {[]sub{{clock: 1, timeout: 1000}}, 0, [][2]int{{0, 0}}},
		"the sooner clock": {[]sub{{clock: 1, timeout: long}, {clock: 0, timeout: 1}}, 0,
			[][2]int{{1, 0}}},
		"absolute, past": {[]sub{{timeout: uint64(now) - 1e9, flags: absolute},
			{clock: 1, timeout: long}}, 0, [][2]int{{0, 0}}},
		"absolute, soon": {[]sub{{timeout: uint64(now) + 1e6, flags: absolute}}, 0,
			[][2]int{{0, 0}}},
		"never, but ready": {[]sub{{clock: 1, timeout: 1<<64 - 1}, stdout}, 0, [][2]int{{1, 0}}},
		"output":           {[]sub{stdout}, 0, [][2]int{{0, 0}}},
		"input, nothing":   {[]sub{stdin, {clock: 1, timeout: 1000}}, 0, [][2]int{{1, 0}}},
		"a directory":      {[]sub{{tag: eventFdRead, fd: 3}}, 0, [][2]int{{0, 0}}},
		"no such fd": {[]sub{{tag: eventFdRead, fd: 99}, {clock: 1, timeout: long}}, 0,
			[][2]int{{0, int(errBadf)}}},
		"no such clock": {[]sub{{clock: 9, timeout: long}}, 0, [][2]int{{0, int(errInval)}}},
		"no such flag":  {[]sub{{clock: 1, flags: 8}}, 0, [][2]int{{0, int(errInval)}}},
		"no such kind":  {[]sub{{tag: 7}}, errInval, nil},
		"everything at one": {[]sub{stdout, {clock: 1, timeout: 0}, stdin}, 0,
			[][2]int{{0, 0}, {1, 0}}},
	} {
		e, got := poll(t, p, tt.subs...)
		if e != tt.e || len(got) != len(tt.want) {
			t.Errorf("%s: %d %v, want %d %v", name, e, got, tt.e, tt.want)
			continue
		}
		for i := range got {
			if got[i] != tt.want[i] {
				t.Errorf("%s: %v, want %v", name, got, tt.want)
			}
		}
	}
	if _, err := w.WriteString("x"); err != nil {
		t.Fatal(err)
	}
	if e, got := poll(t, p, sub{clock: 1, timeout: long}, stdin); e != 0 || len(got) != 1 ||
		got[0] != [2]int{1, 0} {
		t.Errorf("input: %d %v", e, got)
	}
	if e, _ := call(p, "poll_oneoff", make([]byte, 100), 0, 0, 1<<32-1, 0); e != errInval {
		t.Errorf("2^32-1 subscriptions: %d", e)
	}
}

// Times that are set to now, or on a directory; both at once; and what an open
// directory says of itself.
func TestTimes(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/f", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	p := newGuest(t, dir)
	mem := make([]byte, 4096)
	copy(mem, "f.")
	mtime := func(name string) int64 {
		i, err := os.Stat(dir + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return i.ModTime().Unix()
	}
	const set, now = 4, 8
	for _, tt := range []struct {
		ptr   uint64
		flags uint64
		want  Errno
		check func() bool
	}{
		{0, set, success, func() bool { return mtime("f") == 1 }},
		{1, set, success, func() bool { return mtime(".") == 1 }},
		{0, now, success, func() bool { return mtime("f") > 1e9 }},
		{1, now, success, func() bool { return mtime(".") > 1e9 }},
		{0, set | now, errInval, nil},
		{0, 64, errInval, nil},
	} {
		if e, _ := call(p, "path_filestat_set_times", mem, 3, 0, tt.ptr, 1, 0, 1e9,
			tt.flags); e != tt.want || tt.check != nil && !tt.check() {
			t.Errorf("%+v: %d", tt, e)
		}
	}
	if e, _ := call(p, "fd_filestat_set_times", mem, 3, 0, 1e9, set); e != 0 || mtime(".") != 1 {
		t.Errorf("on the descriptor of a directory: %d", e)
	}
	if e, _ := call(p, "fd_filestat_set_times", mem, 4, 0, 1e9, set); e != errInval {
		t.Errorf("on the root of the view: %d", e)
	}
	if e, _ := call(p, "fd_filestat_get", mem, 4, 100); e != 0 || mem[116] != typeDirectory {
		t.Errorf("stat of the root of the view: %d, type %d", e, mem[116])
	}
	for fd := range uint64(3) {
		if e, _ := call(p, "fd_prestat_get", mem, fd, 100); e != errBadf {
			t.Errorf("prestat of stream %d: %d", fd, e)
		}
	}
}

// Exit codes are what a Unix parent sees.
func TestRaise(t *testing.T) {
	p := newGuest(t, t.TempDir())
	var code int
	p.exit = func(c int) { code = c; panic(exited(c)) }
	for signal, want := range map[uint64]int{6: 134, 9: 137, 15: 143} {
		if _, ended := call(p, "proc_raise", nil, signal); !ended || code != want {
			t.Errorf("signal %d: %d", signal, code)
		}
	}
	if e, ended := call(p, "proc_raise", nil, 99); ended || e != errInval {
		t.Errorf("signal 99: %d", e)
	}
}
