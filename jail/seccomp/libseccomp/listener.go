package libseccomp

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	lib "github.com/seccomp/libseccomp-golang"

	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/internal/sys"
	"github.com/jail-sandbox/jail/jail/seccomp"
)

// A Listener answers the calls that the inner filter of a jail refuses, and counts them. The kernel
// has already refused a call when it tells the listener: the answer is an errno and never lets the
// call continue. So nothing depends on the memory of the caller, and the listener reads none of it.
// When a listener dies, the kernel answers ENOSYS in its place.
type Listener struct {
	file  *os.File
	errno syscall.Errno
	mu    sync.Mutex
	seen  tally
}

// NewListener takes over the listener of filter f that jail-init sent.
func NewListener(file *os.File, f seccomp.Filter) (*Listener, error) {
	errno, err := errnoOf(f.Errno)
	if err != nil {
		return nil, err
	}
	return &Listener{file: file, errno: errno}, nil
}

// The listener answers the first quick calls at full speed. From then on it pauses before each
// answer, so that a flood of refused calls costs the jail its time and the host next to nothing.
const (
	quick = 1000
	pause = time.Millisecond
)

// Serve answers until no process is left that the filter applies to.
func (l *Listener) Serve() error {
	fd := lib.ScmpFd(l.file.Fd())
	for n := 0; ; n++ {
		req, err := lib.NotifReceive(fd)
		if err == syscall.ENOENT {
			// The caller was killed before its request was read, or all callers have ended.
			if sys.HungUp(uintptr(fd)) {
				return nil
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("seccomp listener: %w", err)
		}
		name, known := NameOf(int(req.Data.Syscall))
		errno := syscall.ENOSYS
		if known {
			errno = l.errno
		}
		l.mu.Lock()
		l.seen.add(int(req.Data.Syscall), name, req.Data.Args, time.Now())
		l.mu.Unlock()
		if n >= quick {
			time.Sleep(pause)
		}
		// Without Flags the call does not continue.
		err = lib.NotifRespond(fd, &lib.ScmpNotifResp{ID: req.ID, Error: int32(errno)})
		// ENOENT: the caller was killed meanwhile.
		if err != nil && err != syscall.ENOENT {
			return fmt.Errorf("seccomp listener: %w", err)
		}
	}
}

// Refused returns the calls refused so far, those with the highest counts first.
func (l *Listener) Refused() []control.Refused {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen.list()
}
