package libseccomp

import (
	"cmp"
	"fmt"
	"os"
	"slices"
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

// Bounds of a tally, and so of its memory, whatever a tool asks for.
const (
	// maxNumbers is how many numbers are counted each by itself. No call has a greater one.
	maxNumbers = 1024
	// maxDetails is how many calls are told apart by their arguments.
	maxDetails = 64
	// maxListed is the number of entries in a list. One more entry counts the rest.
	maxListed = 64
)

// A tally counts refused calls by call and arguments up to maxDetails, then by number, and all
// numbers from maxNumbers on together. It counts every call.
type tally struct {
	details  map[string]*control.Refused
	byNumber map[int]*control.Refused
	others   control.Refused
}

func (t *tally) add(number int, name string, args []uint64, now time.Time) {
	e := t.entry(number, name, args)
	if e.Count == 0 {
		e.First = now
	}
	e.Count++
	e.Last = now
}

func (t *tally) entry(number int, name string, args []uint64) *control.Refused {
	if name != "" {
		if what := seccomp.Describe(name, args); what != name {
			if e := t.details[what]; e != nil {
				return e
			}
			if len(t.details) < maxDetails {
				if t.details == nil {
					t.details = map[string]*control.Refused{}
				}
				t.details[what] = &control.Refused{What: what}
				return t.details[what]
			}
		}
	}
	if number < 0 || number >= maxNumbers {
		t.others.What = "system calls of numbers that none has"
		return &t.others
	}
	if e := t.byNumber[number]; e != nil {
		return e
	}
	if t.byNumber == nil {
		t.byNumber = map[int]*control.Refused{}
	}
	t.byNumber[number] = &control.Refused{What: cmp.Or(name, fmt.Sprintf("system call %d", number))}
	return t.byNumber[number]
}

// list returns the entries, those with the highest counts first. The entries beyond maxListed are
// joined into one last entry.
func (t *tally) list() []control.Refused {
	var all []control.Refused
	for _, e := range t.details {
		all = append(all, *e)
	}
	for _, e := range t.byNumber {
		all = append(all, *e)
	}
	if t.others.Count > 0 {
		all = append(all, t.others)
	}
	slices.SortFunc(all, func(a, b control.Refused) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.What, b.What))
	})
	if len(all) <= maxListed {
		return all
	}
	rest := control.Refused{What: fmt.Sprintf("%d other system calls", len(all)-maxListed),
		First: all[maxListed].First}
	for _, e := range all[maxListed:] {
		rest.Count += e.Count
		if e.First.Before(rest.First) {
			rest.First = e.First
		}
		if e.Last.After(rest.Last) {
			rest.Last = e.Last
		}
	}
	return append(all[:maxListed:maxListed], rest)
}
