// Package preview1 is WASI preview 1 for one guest: its arguments, its clocks,
// its descriptors, and the calls on them. It knows linear memory as bytes and
// nothing of any engine, so its calls can be tested and fuzzed without one.
package preview1

import (
	"crypto/rand"
	"encoding/binary"
	"os"

	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/runners/internal/sys"
	"github.com/jail-sandbox/jail/runners/wasi/guest/view"
)

// Layer is the name of the layer in the denials of this package.
const Layer = "wasi"

// defaultOpenFiles is the maximum number of descriptors if Config does not set it.
const defaultOpenFiles = 256

// Config is the configuration of a guest.
type Config struct {
	Args, Env []string
	// Stdin, Stdout and Stderr are descriptors that the caller keeps; -1 is a
	// stream that is at its end, or that takes everything and keeps nothing.
	Stdin, Stdout, Stderr int
	Dirs                  []Preopen
	// Descriptors at one time; 0 means defaultOpenFiles.
	OpenFiles int
	// Fetch opens a stream to the fetch proxy; nil where there is none.
	Fetch func() (*os.File, error)
	// Agent opens a stream to the host of the agent that the guest is; nil where it is none.
	Agent func() (*os.File, error)
	// Exit ends the guest with a code; it does not return.
	Exit func(code int)
	// Done is closed when the guest is to end, so that no call waits on; nil is never.
	Done <-chan struct{}
}

// Preopen is a directory that is open from the start. The Process takes it over.
type Preopen struct {
	Name string
	Dir  *view.Dir
}

// Process is one guest. It is for one goroutine.
type Process struct {
	args, env []string
	exit      func(int)
	done      <-chan struct{}
	fds       table
	denials   *runners.Denials
	limits    runners.LimitsMet
	// For the buffers of one call.
	room   [16][]byte
	Stdout int64 // bytes written so far
	Stderr int64
}

// New returns the Process of a guest. It adds refusals to denials.
func New(c Config, denials *runners.Denials) *Process {
	p := &Process{args: c.Args, env: c.Env, exit: c.Exit, done: c.Done, denials: denials}
	p.fds.most = c.OpenFiles
	if p.fds.most <= 0 {
		p.fds.most = defaultOpenFiles
	}
	p.fds.put(newStream(c.Stdin, stdinRights, nil))
	p.fds.put(newStream(c.Stdout, stdoutRights, &p.Stdout))
	p.fds.put(newStream(c.Stderr, stdoutRights, &p.Stderr))
	for _, d := range c.Dirs {
		p.fds.put(&file{kind: kindDir, fd: -1, dir: d.Dir, preopen: d.Name, isPreopen: true,
			rights: rights{base: dirRights, inherit: allRights}})
	}
	if c.Fetch != nil {
		p.addListener(fetchVariable, c.Fetch)
	}
	if c.Agent != nil {
		p.addListener(agentVariable, c.Agent)
	}
	return p
}

// Close closes every descriptor that the guest left open, except the streams.
func (p *Process) Close() {
	for i := range p.fds.files {
		if f := p.fds.files[i]; f != nil {
			// The guest is gone: there is nobody to tell.
			_ = f.close()
			p.fds.files[i] = nil
		}
	}
}

// OpenPeak returns the highest number of descriptors that were open at one time.
func (p *Process) OpenPeak() int { return p.fds.peak }

func newStream(fd int, base uint64, count *int64) *file {
	f := &file{kind: kindStream, fd: fd, rights: rights{base: base}, count: count}
	if fd < 0 {
		return f
	}
	var st sys.Stat
	if sys.Fstat(fd, &st) != nil {
		// The parent process closed it.
		f.fd = -1
		return f
	}
	f.filetype = filetypeOf(st.Mode)
	// The test is an ioctl, which a jail refuses and records, so memory devices are not tested.
	if f.filetype == typeCharacterDevice && (sys.IsMemoryDevice(st.Rdev) || !sys.IsTerminal(fd)) {
		// As a character device, libraries would take /dev/null for a terminal.
		f.filetype = typeUnknown
	}
	if f.filetype == typeRegular {
		f.rights.base |= rightFdSeek | rightFdTell
	}
	return f
}

// putTexts writes the texts, each with a NUL, from buf on, and their addresses
// into the array at list.
func putTexts(m memory, texts []string, list, buf uint32) Errno {
	addrs, ok := m.at(list, uint32(4*len(texts)))
	if !ok {
		return errFault
	}
	for _, t := range texts {
		b, ok := m.at(buf, uint32(len(t)+1))
		if !ok {
			return errFault
		}
		b[copy(b, t)] = 0
		binary.LittleEndian.PutUint32(addrs, buf)
		addrs = addrs[4:]
		buf += uint32(len(t) + 1)
	}
	return success
}

func putSizes(m memory, texts []string, count, size uint32) Errno {
	total := 0
	for _, t := range texts {
		total += len(t) + 1
	}
	if e := m.putU32(count, uint32(len(texts))); e != success {
		return e
	}
	return m.putU32(size, uint32(total))
}

func argsGet(p *Process, mem []byte, a []uint64) Errno {
	return putTexts(mem, p.args, uint32(a[0]), uint32(a[1]))
}

func argsSizesGet(p *Process, mem []byte, a []uint64) Errno {
	return putSizes(mem, p.args, uint32(a[0]), uint32(a[1]))
}

func environGet(p *Process, mem []byte, a []uint64) Errno {
	return putTexts(mem, p.env, uint32(a[0]), uint32(a[1]))
}

func environSizesGet(p *Process, mem []byte, a []uint64) Errno {
	return putSizes(mem, p.env, uint32(a[0]), uint32(a[1]))
}

// maxClock is the highest clock: real time, monotonic, process and thread CPU
// time have the numbers of the kernel's clocks.
const maxClock = 3

func clockResGet(p *Process, mem []byte, a []uint64) Errno {
	if uint32(a[0]) > maxClock {
		return errInval
	}
	n, err := sys.ClockResolution(int32(a[0]))
	if err != nil {
		return errnoOf(err)
	}
	return memory(mem).putU64(uint32(a[1]), uint64(n))
}

func clockTimeGet(p *Process, mem []byte, a []uint64) Errno {
	if uint32(a[0]) > maxClock {
		return errInval
	}
	n, err := sys.Clock(int32(a[0]))
	if err != nil {
		return errnoOf(err)
	}
	return memory(mem).putU64(uint32(a[2]), uint64(n))
}

// exitMask leaves what a Unix parent sees of an exit code.
const exitMask = 0xff

func procExit(p *Process, _ []byte, a []uint64) Errno {
	p.exit(int(uint32(a[0]) & exitMask))
	return success
}

// procRaise ends the guest as the signal would: there are no handlers in WASI.
func procRaise(p *Process, _ []byte, a []uint64) Errno {
	const last = 31
	n := uint32(a[0])
	if n > last {
		return errInval
	}
	if n != 0 {
		p.exit(128 + int(n))
	}
	return success
}

func randomGet(p *Process, mem []byte, a []uint64) Errno {
	b, ok := memory(mem).at(uint32(a[0]), uint32(a[1]))
	if !ok {
		return errFault
	}
	if _, err := rand.Read(b); err != nil {
		return errIO
	}
	return success
}

func schedYield(*Process, []byte, []uint64) Errno {
	sys.Yield()
	return success
}

// Call makes a call of the guest and records the limit that made it fail, if any. The guest gets
// only an error number, which it may not report.
func (p *Process) Call(c Call, mem []byte, a []uint64) Errno {
	e := c(p, mem, a)
	switch e {
	case errMfile:
		p.limits.Add(runners.LimitMet{Name: "open_files", Peak: int64(p.fds.peak), Count: 1})
	case errFbig:
		p.limits.Add(runners.LimitMet{Name: "file_size", Peak: p.sizeOf(a[0]), Count: 1})
	case errNospc:
		if !p.full(a[0]) && len(a) > 2 {
			// symlink has the content of the link as its first parameter.
			p.full(a[2])
		}
	}
	return e
}

// LimitsMet returns the limits that the guest reached by a failed call.
func (p *Process) LimitsMet() []runners.LimitMet { return p.limits }

// sizeOf returns the size of the file of fd in bytes.
func (p *Process) sizeOf(fd uint64) int64 {
	var st sys.Stat
	f := p.fds.get(uint32(fd))
	if f == nil || f.kind != kindFile || sys.Fstat(f.fd, &st) != nil {
		return 0
	}
	return st.Size
}

// full records which limit of the shadow is reached: files, or else bytes. It reports whether fd is
// on an overlay, that is in the shadow: other file systems have no limit in a policy.
func (p *Process) full(fd uint64) bool {
	var st sys.FileSystem
	at := p.kernelFD(fd)
	if at < 0 || sys.Fstatfs(at, &st) != nil || !st.IsOverlay() {
		return false
	}
	met := runners.LimitMet{Name: "workspace", Peak: st.Used(), Count: 1}
	if st.Ffree == 0 {
		met = runners.LimitMet{Name: "workspace_files", Count: 1}
	}
	p.limits.Add(met)
	return true
}

// kernelFD returns the kernel's descriptor for one of the guest's, or -1 if it has none.
func (p *Process) kernelFD(fd uint64) int {
	f := p.fds.get(uint32(fd))
	switch {
	case f == nil:
		return -1
	case f.kind != kindDir:
		return f.fd
	}
	if at, ok := f.dir.FD(); ok {
		return at
	}
	return -1
}
