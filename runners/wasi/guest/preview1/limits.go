package preview1

import (
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/runners/internal/sys"
)

// Call makes a call of the guest, and notes the limit that it met: the guest
// learns of it by an error number that it may keep to itself.
func (p *Process) Call(c Call, mem []byte, a []uint64) Errno {
	e := c(p, mem, a)
	switch e {
	case errMfile:
		p.limits.Add(runners.LimitMet{Name: "open_files", Peak: int64(p.fds.peak), Count: 1})
	case errFbig:
		p.limits.Add(runners.LimitMet{Name: "file_size", Peak: p.sizeOf(a[0]), Count: 1})
	case errNospc:
		if !p.full(a[0]) && len(a) > 2 {
			// Where a call names the content of a link first.
			p.full(a[2])
		}
	}
	return e
}

// LimitsMet returns the limits that the guest reached by a failed call.
func (p *Process) LimitsMet() []runners.LimitMet { return p.limits }

// sizeOf is how large the file behind fd has become.
func (p *Process) sizeOf(fd uint64) int64 {
	var st sys.Stat
	f := p.fds.get(uint32(fd))
	if f == nil || f.kind != kindFile || sys.Fstat(f.fd, &st) != nil {
		return 0
	}
	return st.Size
}

// full notes what of the shadow is used up: its files, or else its bytes. The shadow is an overlay;
// other file systems have no limit of their own in a policy. It reports whether fd is on one.
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

// kernelFD is the kernel's descriptor behind one of the guest's, or -1.
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
