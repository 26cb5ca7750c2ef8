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

// FanOverflow is the bit of an event that says that the kernel's queue was full and events were
// lost.
const FanOverflow = unix.FAN_Q_OVERFLOW

// A FileWatch reads the events of opens, executions and writes on mounts (fanotify(7)).
type FileWatch struct {
	f *os.File
	// The descriptor of f, kept because f.Fd() would make reads block.
	fd int
	// small, since each event that a read returns holds an open file
	buf []byte
}

// A FileEvent is an event of a regular file or directory. Its file is open until Done.
type FileEvent struct {
	Mask uint64
	// The process, in the watcher's PID namespace.
	PID int
	fd  int32
}

// NewFileWatch returns a watch without mounts. It needs CAP_SYS_ADMIN on the host. The error is
// EMFILE beyond /proc/sys/fs/fanotify/max_user_groups watches.
func NewFileWatch() (*FileWatch, error) {
	// FAN_CLASS_CONTENT allows permission events. Without O_LARGEFILE events of files above 2 GiB
	// fail.
	fd, err := unix.FanotifyInit(
		unix.FAN_CLASS_CONTENT|unix.FAN_CLOEXEC|unix.FAN_NONBLOCK|unix.FAN_UNLIMITED_MARKS,
		unix.O_RDONLY|unix.O_LARGEFILE|unix.O_CLOEXEC)
	if err != nil {
		return nil, callError("fanotify_init", err)
	}
	return &FileWatch{f: os.NewFile(uintptr(fd), "fanotify"), fd: fd, buf: make([]byte, 2<<10)}, nil
}

// MarkMount adds a mount to the watch for the events in mask. id is the mount's ID as Mounts
// returns it, and at is a file on the mount, open with O_PATH. If at lies on another mount, such as
// one that covers the wanted mount, MarkMount changes nothing and returns false without an error.
// err is the error of statx(2) or fanotify_mark(2).
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

// Next waits for events and calls f with each, in order; f must call Done. After Stop it returns
// os.ErrDeadlineExceeded when no event is left. On any other error one unknown event was lost and
// its process got an error.
func (w *FileWatch) Next(f func(FileEvent)) error {
	n, err := w.f.Read(w.buf)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		// Events that came before Stop.
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

// Done lets the process of the event go on and closes the event's file.
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

// Path returns the path of the event's file in the mount namespace of its mount, as the process
// finds it. It must be called before Done.
func (e FileEvent) Path() (string, error) {
	return os.Readlink("/proc/self/fd/" + strconv.Itoa(int(e.fd)))
}

// Stat describes the event's file.
func (e FileEvent) Stat() (Stat, error) {
	var st unix.Stat_t
	err := retryEINTR(func() error { return unix.Fstat(int(e.fd), &st) })
	return statOf(&st), callError("fstat", err)
}

// ReadAt reads from the event's file, which causes no event.
func (e FileEvent) ReadAt(b []byte, offset int64) (n int, err error) {
	n, err = retried(func() (int, error) { return unix.Pread(int(e.fd), b, offset) })
	return n, callError("pread", err)
}

// Stop makes Next return after the queued events.
func (w *FileWatch) Stop() error { return w.f.SetReadDeadline(time.Unix(1, 0)) }

// Close ends the watch. All processes that wait for an answer go on.
func (w *FileWatch) Close() error { return w.f.Close() }

// RootOf returns the root directory of a process, open with O_PATH.
func RootOf(pid int) (*os.File, error) {
	name := "/proc/" + strconv.Itoa(pid) + "/root"
	return open(name, name, unix.O_PATH|unix.O_DIRECTORY)
}

// OpenInRoot opens the absolute path with O_PATH, with root as the root directory. No component may
// be a symbolic link.
func OpenInRoot(root *os.File, path string) (*os.File, error) {
	return openat2(root, path, unix.O_PATH|unix.O_NOFOLLOW, 0,
		unix.RESOLVE_IN_ROOT|unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_NO_MAGICLINKS)
}

// FollowInRoot is OpenInRoot, but follows symbolic links within root.
func FollowInRoot(root *os.File, path string) (*os.File, error) {
	return openat2(root, path, unix.O_PATH, 0, unix.RESOLVE_IN_ROOT|unix.RESOLVE_NO_MAGICLINKS)
}
