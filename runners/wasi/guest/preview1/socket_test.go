package preview1

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/runners/wasi"
)

// A peer is the other end of a guest's fetch socket: a connection that the guest accepts comes out
// here.
type peer struct {
	t       testing.TB
	streams []net.Conn
	gone    bool
	fd      uint64 // of the listener
	mem     []byte
	p       *Process
}

// newPeer makes a guest with a fetch socket.
func newPeer(t testing.TB, openFiles int) *peer {
	t.Helper()
	d := &peer{t: t, mem: make([]byte, 1<<20)}
	var denials runners.Denials
	d.p = New(Config{Stdin: -1, Stdout: -1, Stderr: -1, OpenFiles: openFiles, Fetch: d.open,
		Exit: func(code int) { panic(exited(code)) }}, &denials)
	d.fd = 3
	t.Cleanup(func() {
		d.p.Close()
		for _, c := range d.streams {
			c.Close()
		}
	})
	return d
}

func (d *peer) open() (*os.File, error) {
	if d.gone {
		return nil, errors.New("the proxy is gone")
	}
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fds[1]), "stream")
	defer f.Close()
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	d.streams = append(d.streams, conn)
	return os.NewFile(uintptr(fds[0]), "stream"), nil
}

func (d *peer) call(name string, a ...uint64) Errno {
	e, _ := call(d.p, name, d.mem, a...)
	return e
}

func (d *peer) u32(at int) uint32 { return binary.LittleEndian.Uint32(d.mem[at:]) }

func (d *peer) accept(flags uint64) (uint64, net.Conn) {
	d.t.Helper()
	if e := d.call("sock_accept", d.fd, flags, 0); e != success {
		d.t.Fatalf("sock_accept: %d", e)
	}
	return uint64(d.u32(0)), d.streams[len(d.streams)-1]
}

// Where buffers and lists of them lie in the guest's memory.
const (
	listAt, countAt, flagsAt, pollAt, eventsAt, dataAt = 16, 64, 68, 128, 1024, 4096
)

func (d *peer) list(size int) {
	binary.LittleEndian.PutUint32(d.mem[listAt:], dataAt)
	binary.LittleEndian.PutUint32(d.mem[listAt+4:], uint32(size))
}

func (d *peer) send(fd uint64, b []byte) (int, Errno) {
	copy(d.mem[dataAt:], b)
	d.list(len(b))
	e := d.call("sock_send", fd, listAt, 1, 0, countAt)
	return int(d.u32(countAt)), e
}

func (d *peer) recv(fd uint64, most int) ([]byte, Errno) {
	d.list(most)
	e := d.call("sock_recv", fd, listAt, 1, 0, countAt, flagsAt)
	if e != success {
		return nil, e
	}
	return bytes.Clone(d.mem[dataAt : dataAt+d.u32(countAt)]), e
}

// poll asks for events of descriptors, and for the end of a time in nanoseconds. It returns the
// userdata of those that there are.
func (d *peer) poll(timeout uint64, want ...[2]uint64) (ready []uint64, hangup bool) {
	d.t.Helper()
	n := 0
	for i, w := range want {
		b := d.mem[pollAt+n*subscriptionSize:]
		clear(b[:subscriptionSize])
		binary.LittleEndian.PutUint64(b, uint64(i))
		b[8] = byte(w[1])
		binary.LittleEndian.PutUint32(b[16:], uint32(w[0]))
		n++
	}
	b := d.mem[pollAt+n*subscriptionSize:]
	clear(b[:subscriptionSize])
	binary.LittleEndian.PutUint64(b, 99)
	binary.LittleEndian.PutUint32(b[16:], 1)
	binary.LittleEndian.PutUint64(b[24:], timeout)
	if e := d.call("poll_oneoff", pollAt, eventsAt, uint64(n+1), countAt); e != success {
		d.t.Fatalf("poll_oneoff: %d", e)
	}
	for i := range d.u32(countAt) {
		ev := d.mem[eventsAt+i*eventSize:]
		ready = append(ready, binary.LittleEndian.Uint64(ev))
		hangup = hangup || ev[24]&1 != 0
	}
	return ready, hangup
}

const (
	nonblock = flagNonblock
	agai     = Errno(6)
	pipeErr  = Errno(64)
)

// A stream carries bytes both ways; each side's end is seen by the other while the other way goes
// on.
func TestStreamHalfClose(t *testing.T) {
	d := newPeer(t, 0)
	fd, conn := d.accept(0)
	if n, e := d.send(fd, []byte("to the proxy")); n != 12 || e != success {
		t.Fatalf("%d %d", n, e)
	}
	if e := d.call("sock_shutdown", fd, 2); e != success {
		t.Fatal(e)
	}
	if got, err := io.ReadAll(conn); string(got) != "to the proxy" || err != nil {
		t.Errorf("%q %v", got, err)
	}
	if _, e := d.send(fd, []byte("more")); e != pipeErr {
		t.Errorf("a write after the end: %d", e)
	}
	conn.Write([]byte("from the proxy"))
	conn.Close()
	if got, e := d.recv(fd, 4); string(got) != "from" || e != success {
		t.Errorf("%q %d", got, e)
	}
	if got, e := d.recv(fd, 100); string(got) != " the proxy" || e != success {
		t.Errorf("%q %d", got, e)
	}
	for range 2 {
		if got, e := d.recv(fd, 100); len(got) != 0 || e != success {
			t.Errorf("at the end: %q %d", got, e)
		}
	}
	if e := d.call("fd_close", fd); e != success {
		t.Error(e)
	}
	if _, e := d.recv(fd, 1); e != errBadf {
		t.Errorf("a closed stream: %d", e)
	}
}

// What a guest must not wait for is said at once; what it waits for comes.
func TestStreamNonblocking(t *testing.T) {
	d := newPeer(t, 0)
	fd, conn := d.accept(nonblock)
	if _, e := d.recv(fd, 10); e != agai {
		t.Errorf("nothing there: %d", e)
	}
	if ready, _ := d.poll(1, [2]uint64{fd, eventFdRead}); !slices.Equal(ready, []uint64{99}) {
		t.Errorf("poll: %v", ready)
	}
	if ready, _ := d.poll(1<<40, [2]uint64{fd, eventFdWrite},
		[2]uint64{d.fd, eventFdRead}); !slices.Equal(ready, []uint64{0, 1}) {
		t.Errorf("poll for writing, and for a stream: %v", ready)
	}
	sent := 0
	// Until the stream is full.
	for {
		n, e := d.send(fd, make([]byte, 64<<10))
		if e == agai {
			break
		}
		if e != success || sent > 64<<20 {
			t.Fatalf("after %d bytes: %d", sent, e)
		}
		sent += n
	}
	if ready, _ := d.poll(1, [2]uint64{fd, eventFdWrite}); !slices.Equal(ready, []uint64{99}) {
		t.Errorf("poll of a full stream: %v", ready)
	}
	go func() {
		io.CopyN(io.Discard, conn, int64(sent))
		conn.Write([]byte("late"))
		conn.Close()
	}()
	if ready, _ := d.poll(1<<40, [2]uint64{fd, eventFdRead}); !slices.Equal(ready, []uint64{0}) {
		t.Errorf("poll: %v", ready)
	}
	// Without the flag the same call waits.
	if e := d.call("fd_fdstat_set_flags", fd, 0); e != success {
		t.Fatal(e)
	}
	if got, e := d.recv(fd, 100); string(got) != "late" || e != success {
		t.Errorf("%q %d", got, e)
	}
	for deadline := time.Now().Add(time.Minute); ; {
		if _, hangup := d.poll(1e6, [2]uint64{fd, eventFdRead}); hangup {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the end of the proxy is never shown")
		}
	}
}

// A guest that floods waits for the proxy, and takes no memory for it.
func TestStreamFlood(t *testing.T) {
	d := newPeer(t, 0)
	fd, conn := d.accept(0)
	const size = 64 << 20
	got := make(chan int64)
	go func() {
		n, _ := io.Copy(io.Discard, conn)
		got <- n
	}()
	for sent := 0; sent < size; {
		n, e := d.send(fd, d.mem[dataAt:dataAt+512<<10])
		if e != success {
			t.Fatal(e)
		}
		sent += n
	}
	d.call("fd_close", fd)
	if n := <-got; n < size {
		t.Errorf("%d of %d bytes came", n, size)
	}
}

// As many streams as descriptors are allowed, and no more; all of them again when they are closed.
// A proxy that has ended is an error, and no call hangs.
func TestManyStreams(t *testing.T) {
	d := newPeer(t, 100)
	for round := range 3 {
		var fds []uint64
		for {
			e := d.p.Call(sockAccept, d.mem, []uint64{d.fd, 0, 0})
			if e == errMfile {
				break
			}
			if e != success {
				t.Fatal(e)
			}
			fds = append(fds, uint64(d.u32(0)))
		}
		if len(fds) != 100-4 {
			t.Errorf("round %d: %d streams", round, len(fds))
		}
		for i, fd := range fds {
			if n, e := d.send(fd, []byte{byte(i)}); n != 1 || e != success {
				t.Fatalf("stream %d: %d", i, e)
			}
		}
		base := len(d.streams) - len(fds)
		for i, fd := range fds { // each to its own
			b := make([]byte, 2)
			if n, err := d.streams[base+i].Read(b); n != 1 || b[0] != byte(i) {
				t.Errorf("stream %d: %q %v", i, b[:n], err)
			}
			d.streams[base+i].Close()
			if got, e := d.recv(fd, 10); len(got) != 0 || e != success {
				t.Errorf("stream %d: %q %d", i, got, e)
			}
			d.call("fd_close", fd)
		}
	}
	if len(d.p.LimitsMet()) != 1 || d.p.LimitsMet()[0].Name != "open_files" {
		t.Errorf("limits: %+v", d.p.LimitsMet())
	}
	d.gone = true
	if e := d.call("sock_accept", d.fd, 0, 0); e != errConnRefused {
		t.Errorf("no proxy: %d", e)
	}
}

// The proxy dies with unread bytes, as a kernel ends a process: the guest's reads end, its writes
// fail, and nothing signals it.
func TestProxyDies(t *testing.T) {
	d := newPeer(t, 0)
	fd, conn := d.accept(0)
	d.send(fd, []byte("never read"))
	conn.Close()
	if got, e := d.recv(fd, 10); len(got) != 0 || e != success && e != 15 {
		t.Errorf("%q %d", got, e)
	}
	if _, e := d.send(fd, []byte("x")); e != pipeErr && e != 15 {
		t.Errorf("%d", e)
	}
	if ready, _ := d.poll(1<<40, [2]uint64{fd, eventFdRead},
		[2]uint64{fd, eventFdWrite}); len(ready) != 2 {
		t.Errorf("%v", ready)
	}
}

// Calls with the wrong descriptor, flags or pointers change nothing: no byte is lost and no stream
// is opened that the guest cannot name.
func TestStreamBadCalls(t *testing.T) {
	d := newPeer(t, 0)
	fd, conn := d.accept(0)
	conn.Write([]byte("kept"))
	d.list(100)
	end := uint64(len(d.mem))
	for _, c := range []struct {
		name string
		a    []uint64
		want Errno
	}{
		{"sock_accept", []uint64{fd, 0, 0}, errInval}, {"sock_accept", []uint64{0, 0, 0},
			errNotsock}, {"sock_accept", []uint64{77, 0, 0}, errBadf},
		{"sock_accept", []uint64{d.fd, 1, 0}, errInval}, {"sock_accept", []uint64{d.fd, 0, end},
			errFault}, {"sock_accept", []uint64{d.fd, 0, 1<<32 - 2}, errFault},
		{"sock_recv", []uint64{fd, listAt, 1, 1, countAt, flagsAt}, errNotsup},
		{"sock_recv", []uint64{fd, listAt, 1, 0, countAt, end - 1}, errFault},
		{"sock_recv", []uint64{fd, end, 1, 0, countAt, flagsAt}, errFault},
		{"sock_recv", []uint64{d.fd, listAt, 1, 0, countAt, flagsAt}, errNotsock},
		{"sock_send", []uint64{fd, listAt, 1, 1, countAt}, errInval},
		{"sock_send", []uint64{d.fd, listAt, 1, 0, countAt}, errNotsock},
		{"sock_shutdown", []uint64{fd, 0}, errInval}, {"sock_shutdown", []uint64{fd, 4}, errInval},
		{"sock_shutdown", []uint64{d.fd, 3}, errNotsock},
		{"fd_seek", []uint64{fd, 0, 0, 0}, 70}, {"fd_pread", []uint64{fd, listAt, 1, 0, countAt},
			70}, {"fd_readdir", []uint64{fd, 0, 10, 0, 0}, errNotdir},
		{"fd_read", []uint64{d.fd, listAt, 1, countAt}, errBadf},
		{"fd_write", []uint64{d.fd, listAt, 1, countAt}, errBadf},
		{"fd_prestat_get", []uint64{d.fd, 0}, errBadf}, {"fd_prestat_get", []uint64{fd, 0},
			errBadf}, {"fd_filestat_set_size", []uint64{fd, 0}, errInval},
		{"path_open", []uint64{d.fd, 0, 0, 1, 0, 0, 0, 0, 0}, errNotdir},
		{"fd_renumber", []uint64{d.fd, 77}, errBadf},
	} {
		if e := d.call(c.name, c.a...); e != c.want {
			t.Errorf("%s %d: %d, want %d", c.name, c.a, e, c.want)
		}
	}
	if len(d.streams) != 1 {
		t.Errorf("%d streams were opened", len(d.streams))
	}
	if got, e := d.recv(fd, 100); string(got) != "kept" || e != success {
		t.Errorf("%q %d", got, e)
	}
	// The listener under another number is the same listener.
	if e := d.call("fd_renumber", d.fd, 0); e != success {
		t.Error(e)
	}
	if e := d.call("sock_accept", 0, 0, 0); e != success {
		t.Error(e)
	}
	if e := d.call("fd_close", 0); e != success {
		t.Error(e)
	}
	if e := d.call("sock_accept", d.fd, 0, 0); e == success {
		t.Error("a closed listener gives streams")
	}
}

// FuzzSockets makes any calls on a guest with a fetch socket, whose proxy answers, breaks off or is
// gone: nothing may panic, and no descriptor may be left.
func FuzzSockets(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x01\x00\x00\x02\x00\x00\x03\x00\x00"),
		[]byte("HTTP/1.1 200 OK\r\n\r\n"))
	f.Add([]byte("\x00\x00\x04\x01\x05\x00\x05\x05\x05\x04\x04\x04"), []byte{})
	names := []string{"sock_accept", "sock_recv", "sock_send", "sock_shutdown", "fd_close",
		"fd_renumber", "fd_read", "fd_write", "fd_fdstat_get",
		"fd_fdstat_set_flags", "fd_filestat_get", "fd_seek", "fd_sync", "fd_allocate",
		"fd_fdstat_set_rights"}
	f.Fuzz(func(t *testing.T, program, answer []byte) {
		d := newPeer(t, 16)
		for n := 0; len(program) >= 3 && n < 200; n, program = n+1, program[3:] {
			name := names[int(program[0])%len(names)]
			fd, x := uint64(program[1]%20), uint64(program[2])
			a := []uint64{fd, x % 4, x, x, x, x}
			switch name {
			case "sock_recv", "sock_send", "fd_read", "fd_write":
				d.list(int(x) * 16)
				a = []uint64{fd, listAt, x % 3, countAt, countAt, flagsAt}
				if name[0] == 's' {
					a[3] = x % 2
				}
				// Nothing may wait here for ever.
				d.call("fd_fdstat_set_flags", fd, nonblock)
			case "fd_renumber":
				a[1] = x % 20
			case "sock_accept":
				a = []uint64{fd, x & nonblock, 0}
			}
			if f := d.p.fds.get(uint32(fd)); name == "fd_fdstat_set_flags" && f != nil &&
				f.kind == kindSocket {
				continue
			}
			if d.call(name, a...) == success && name == "sock_accept" && len(d.streams) > 0 {
				conn := d.streams[len(d.streams)-1]
				conn.SetDeadline(time.Now().Add(time.Second))
				conn.Write(answer)
				switch {
				case x%3 == 0:
					conn.Close()
				case x%7 == 0:
					d.gone = true
				}
			}
		}
		d.p.Close()
		for fd, f := range d.p.fds.files {
			if f != nil {
				t.Errorf("descriptor %d is left", fd)
			}
		}
	})
}

// The fuzzed list of preview 1 has all calls of sockets too, without a fetch socket.
func TestSocketsAreRefusedWithoutProxy(t *testing.T) {
	p := newGuest(t, t.TempDir())
	mem := make([]byte, 4096)
	for _, f := range wasi.Functions {
		if len(f.Name) < 5 || f.Name[:5] != "sock_" {
			continue
		}
		for fd := range uint64(8) {
			if e, _ := call(p, f.Name, mem, fd, 0, 0, 0, 0, 0); e == success {
				t.Errorf("%s of %d works", f.Name, fd)
			}
		}
	}
}
