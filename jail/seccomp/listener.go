package seccomp

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	libseccomp "github.com/seccomp/libseccomp-golang"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// A Listener answers the calls that a jail's inner filter refuses, and counts them. The kernel has refused each before it tells of it: an answer
// is an errno and never leave to go on, so nothing depends on what a tool does to its memory meanwhile, of which nothing is read. When a
// listener dies the kernel answers ENOSYS in its place.
type Listener struct {
	file  *os.File
	errno syscall.Errno
	mu    sync.Mutex
	seen  tally
}

// NewListener takes over the listener of filter f that jail-init sent.
func NewListener(file *os.File, f jail.Filter) (*Listener, error) {
	errno, err := errnoOf(f.Errno)
	if err != nil {
		return nil, err
	}
	return &Listener{file: file, errno: errno}, nil
}

// A jail may ask as often as it likes and be refused at the speed of the kernel for a while; from then on it waits for each answer, so that a
// flood costs the jail its time and the host next to nothing.
const (
	quick = 1000
	pause = time.Millisecond
)

// Serve answers until nobody is left who could ask.
func (l *Listener) Serve() error {
	fd := libseccomp.ScmpFd(l.file.Fd())
	for n := 0; ; n++ {
		req, err := libseccomp.NotifReceive(fd)
		if err == syscall.ENOENT {
			// Its caller was killed before it was asked about, or all of them have gone.
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
		// No Flags: the call does not go on.
		err = libseccomp.NotifRespond(fd, &libseccomp.ScmpNotifResp{ID: req.ID, Error: int32(errno)})
		if err != nil && err != syscall.ENOENT { // killed meanwhile
			return fmt.Errorf("seccomp listener: %w", err)
		}
	}
}

// Refused returns what was refused so far, most often first.
func (l *Listener) Refused() []control.Refused {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen.list()
}
