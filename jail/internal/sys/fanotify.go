package sys

import (
	"errors"
	"os"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Events of a FileWatch (fanotify_mark(2)). The first two stop the process that causes the event
// until it is allowed; they are never lost or merged. The others are reported afterwards.
const (
	FanOpen       = unix.FAN_OPEN_PERM
	FanExec       = unix.FAN_OPEN_EXEC_PERM
	FanOpened     = unix.FAN_OPEN
	FanCloseWrite = unix.FAN_CLOSE_WRITE
	FanOnDir      = unix.FAN_ONDIR // of directories, too
)

// FanOverflow is the bit of an event that stands for those that the kernel's queue had no room for.
const FanOverflow = unix.FAN_Q_OVERFLOW

// A FileWatch tells what is opened and written below mounts (fanotify(7)).
type FileWatch struct {
	f *os.File
	// Asking f for it would make its reads block.
	fd int
	// short: each event that a read returns comes with an open file
	buf []byte
}

// A FileEvent is one that the kernel tells. Its file is open, and is closed by Done. It is a
// regular file or a directory.
type FileEvent struct {
	Mask uint64
	// Of the process, as the watcher sees it.
	PID int
	fd  int32
}

// NewFileWatch needs CAP_SYS_ADMIN of the host. There may be so many at one time as
// /proc/sys/fs/fanotify/max_user_groups says, else it is EMFILE.
func NewFileWatch() (*FileWatch, error) {
	// Content: the class that may be asked before a file is opened. LARGEFILE: else the kernel
	// cannot show files of more than 2 GiB.
	fd, err := unix.FanotifyInit(
		unix.FAN_CLASS_CONTENT|unix.FAN_CLOEXEC|unix.FAN_NONBLOCK|unix.FAN_UNLIMITED_MARKS,
		unix.O_RDONLY|unix.O_LARGEFILE|unix.O_CLOEXEC)
	if err != nil {
		return nil, callError("fanotify_init", err)
	}
	return &FileWatch{f: os.NewFile(uintptr(fd), "fanotify"), fd: fd, buf: make([]byte, 2<<10)}, nil
}

// MarkMount asks for events of the mount that at lies on, at being open with O_PATH. It has to be
// the mount of that id, as Mounts gives it: ok is false where another one covers it.
func (w *FileWatch) MarkMount(at *os.File, id string, mask uint64) (ok bool, err error) {
	on, err := mountID(at)
	if err != nil || on != id {
		return false, err
	}
	err = retryEINTR(func() error {
		return unix.FanotifyMark(w.fd, unix.FAN_MARK_ADD|unix.FAN_MARK_MOUNT, mask, unix.AT_FDCWD,
			fdPath(at))
	})
	return true, pathError("fanotify_mark", at.Name(), err)
}

// Next waits for events and calls f with each, in order; f calls Done. After Stop it returns
// os.ErrDeadlineExceeded when none is left. Any other error took one event with it: nobody knows
// which, and its caller was refused.
func (w *FileWatch) Next(f func(FileEvent)) error {
	n, err := w.f.Read(w.buf)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		// What came in before it was stopped.
		if n, _ = unix.Read(w.fd, w.buf); n <= 0 {
			return err
		}
	} else if err != nil {
		return err
	}
	const size = int(unsafe.Sizeof(unix.FanotifyEventMetadata{}))
	for rest := w.buf[:n]; len(rest) >= size; {
		var e unix.FanotifyEventMetadata
		copy((*[size]byte)(unsafe.Pointer(&e))[:], rest)
		if e.Vers != unix.FANOTIFY_METADATA_VERSION || int(e.Event_len) < size ||
			int(e.Event_len) > len(rest) {
			return errors.New("fanotify: the kernel speaks another version")
		}
		rest = rest[e.Event_len:]
		f(FileEvent{e.Mask, int(e.Pid), e.Fd})
	}
	return nil
}

// Done allows what the event holds up, and closes its file.
func (w *FileWatch) Done(e FileEvent) error {
	if e.fd < 0 {
		return nil
	}
	defer unix.Close(int(e.fd))
	if e.Mask&(FanOpen|FanExec) == 0 {
		return nil
	}
	r := unix.FanotifyResponse{Fd: e.fd, Response: unix.FAN_ALLOW}
	b := (*[unsafe.Sizeof(r)]byte)(unsafe.Pointer(&r))[:]
	return retryEINTR(func() error {
		_, err := unix.Write(w.fd, b)
		// The process that waited for the answer was killed meanwhile.
		if errors.Is(err, unix.ENOENT) {
			err = nil
		}
		return callError("write to fanotify", err)
	})
}

// Path returns where the process finds the event's file, as long as Done was not called.
func (e FileEvent) Path() (string, error) {
	return os.Readlink("/proc/self/fd/" + strconv.Itoa(int(e.fd)))
}

// Stat describes the event's file.
func (e FileEvent) Stat() (Stat, error) {
	var st unix.Stat_t
	err := retryEINTR(func() error { return unix.Fstat(int(e.fd), &st) })
	return statOf(&st), callError("fstat", err)
}

// ReadAt reads from the event's file; that is no event.
func (e FileEvent) ReadAt(b []byte, offset int64) (n int, err error) {
	n, err = retried(func() (int, error) { return unix.Pread(int(e.fd), b, offset) })
	return n, callError("pread", err)
}

// Stop has Next come to an end.
func (w *FileWatch) Stop() error { return w.f.SetReadDeadline(time.Unix(1, 0)) }

// Close allows everything that is still held up.
func (w *FileWatch) Close() error { return w.f.Close() }

// RootOf returns the root directory of a process, open with O_PATH.
func RootOf(pid int) (*os.File, error) {
	name := "/proc/" + strconv.Itoa(pid) + "/root"
	return open(name, name, unix.O_PATH|unix.O_DIRECTORY)
}

// OpenInRoot opens the absolute path with O_PATH as a process would whose root directory that is.
// No component may be a symbolic link.
func OpenInRoot(root *os.File, path string) (*os.File, error) {
	return openat2(root, path, unix.O_PATH|unix.O_NOFOLLOW, 0,
		unix.RESOLVE_IN_ROOT|unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_NO_MAGICLINKS)
}

// FollowInRoot is OpenInRoot through symbolic links, which lead to places below the root.
func FollowInRoot(root *os.File, path string) (*os.File, error) {
	return openat2(root, path, unix.O_PATH, 0, unix.RESOLVE_IN_ROOT|unix.RESOLVE_NO_MAGICLINKS)
}
