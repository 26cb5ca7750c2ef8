// Package fileevents reports which files are opened, executed and written in one jail. The kernel
// reports the events of each mount of the jail to the host (fanotify(7)), so no process inside can
// suppress one. The package decides nothing.
//
// An open is reported just before it is made: the process that opens waits until the listener has
// returned. No open is lost, no two are merged, and a slow listener slows the jail down. A refused
// open is not reported, since permission bits and Landlock are checked first. Files are regular
// ones, and directories on request. Devices, pipes and sockets are not reported, and neither are
// calls that only name a file, such as stat(2), readlink(2), rename(2) or unlink(2).
//
// No process waits for an open in the proc file system: it is reported afterwards, and the kernel
// may merge quick opens of one file by one process. The same holds for writes. If the kernel's
// queue of such events is full (16,384 events by default, /proc/sys/fs/fanotify/max_queued_events),
// that counts as lost.
package fileevents

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/jail-sandbox/jail/jail/internal/sys"
	"github.com/jail-sandbox/jail/policy/paths"
)

// An Event is one operation on one file.
type Event struct {
	// The path in the jail, with links resolved; for a deleted file, its last path.
	Path string
	PID  int // on the host
	// An execution is reported as two events, Executed and then Opened. The kernel does not report
	// whether a file was opened for reading or writing.
	Opened bool
	// Executed, or loaded by the kernel as a program's interpreter.
	Executed bool
	// A file that was open for writing was closed.
	Written bool
	Dir     bool
	// Program is true for an opened ELF file, a program or a library, on a mount without noexec. It
	// needs What.Programs.
	Program bool
}

// What selects the events to report.
type What struct {
	Opens  bool // and executions
	Writes bool
	Dirs   bool // opens of directories, too
	// whether what is opened is a program or library, as Event.Program
	Programs bool
	// Memory asks for events on the jail's own tmpfs as well. Without it only executions of files
	// there are reported.
	Memory bool
}

// A Watcher reports the events of one jail until it is closed.
type Watcher struct {
	w *sys.FileWatch
	// Keeps the jail's mount namespace, so that paths can be resolved until the last event is
	// reported.
	names *os.File
	each  func(Event)
	// Mount points without noexec, if What.Programs is set.
	exec []string
	done sync.WaitGroup
	lost atomic.Int64
	err  error
}

// Watch is Start for all events outside of the jail's tmpfs mounts, directories included.
func Watch(pid int, each func(Event)) (*Watcher, error) {
	return Start(pid, What{Opens: true, Writes: true, Dirs: true, Programs: true}, each)
}

// Start reports the events on all present mounts of the jail whose first process is pid, until
// Close. each is called from one goroutine and must not open anything on a mount of the jail. The
// caller needs CAP_SYS_ADMIN in the host's user namespace.
func Start(pid int, what What, each func(Event)) (_ *Watcher, err error) {
	w := &Watcher{each: each}
	defer func() {
		if err != nil {
			err = fmt.Errorf("file events: %w", errors.Join(err, w.release()))
		}
	}()
	if w.names, err = os.Open("/proc/" + strconv.Itoa(pid) + "/ns/mnt"); err != nil {
		return nil, err
	}
	if w.w, err = sys.NewFileWatch(); err != nil {
		return nil, err
	}
	if err := w.mark(pid, what); err != nil {
		return nil, err
	}
	w.done.Go(w.read)
	return w, nil
}

func (w *Watcher) mark(pid int, what What) error {
	mounts, err := sys.Mounts(strconv.Itoa(pid))
	if err != nil {
		return err
	}
	root, err := sys.RootOf(pid)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, m := range mounts {
		if err := w.markOne(root, m, what); err != nil {
			return fmt.Errorf("mount %s (%s): %w", m.Point, m.Type, err)
		}
	}
	return nil
}

func (w *Watcher) markOne(root *os.File, m sys.Mount, what What) error {
	var mask uint64
	if what.Writes {
		mask |= sys.FanCloseWrite
	}
	switch {
	case what.Opens && m.Type == "proc":
		// The kernel has no permission events on proc.
		mask |= sys.FanOpened
	case what.Opens:
		mask |= sys.FanOpen | sys.FanExec
	}
	if what.Dirs {
		mask |= sys.FanOnDir
	}
	if m.Type == "tmpfs" && !what.Memory {
		mask &= sys.FanExec
	}
	if mask == 0 {
		return nil
	}
	at, err := sys.OpenInRoot(root, m.Point)
	if errors.Is(err, os.ErrNotExist) {
		// Another mount covers it, and no path leads there.
		return nil
	}
	if err != nil {
		return err
	}
	defer at.Close()
	ok, err := w.w.MarkMount(at, m.ID, mask)
	if ok && what.Programs && m.Type != "proc" && !slices.Contains(m.Options, "noexec") {
		w.exec = append(w.exec, m.Point)
	}
	return err
}

func (w *Watcher) read() {
	for {
		err := w.w.Next(w.event)
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded):
			return
		case errors.Is(err, os.ErrClosed):
			w.err = err
			return
		default:
			// The kernel refused one open, and further events follow.
			w.lost.Add(1)
		}
	}
}

func (w *Watcher) event(e sys.FileEvent) {
	if e.Mask&sys.FanOverflow != 0 {
		w.lost.Add(1)
		return
	}
	// An error is ignored: then the opener waits until Close.
	defer w.w.Done(e)
	path, err := e.Path()
	st, statErr := e.Stat()
	if err != nil || statErr != nil || !strings.HasPrefix(path, "/") {
		w.lost.Add(1)
		return
	}
	if st.Nlink == 0 {
		path = strings.TrimSuffix(path, " (deleted)")
	}
	out := Event{Path: path, PID: e.PID, Dir: st.Mode&syscall.S_IFMT == syscall.S_IFDIR,
		Opened:   e.Mask&(sys.FanOpen|sys.FanOpened) != 0,
		Executed: e.Mask&sys.FanExec != 0, Written: e.Mask&sys.FanCloseWrite != 0}
	out.Program = out.Opened && !out.Dir && w.runs(path) && startsAsProgram(e)
	w.each(out)
}

// runs reports whether path is on a mount without noexec.
func (w *Watcher) runs(path string) bool {
	return slices.ContainsFunc(w.exec, func(point string) bool {
		return paths.Within(point, path)
	})
}

func startsAsProgram(e sys.FileEvent) bool {
	var head [4]byte
	n, err := e.ReadAt(head[:], 0)
	return err == nil && string(head[:n]) == "\x7fELF"
}

// Lost returns how many times events were lost so far, each time an unknown number.
func (w *Watcher) Lost() int64 { return w.lost.Load() }

// Close reports the queued events and stops watching. Later opens do not wait. The jail's mounts
// exist until Close returns. lost is the final result of Lost.
func (w *Watcher) Close() (lost int64, err error) {
	stopErr := w.w.Stop()
	w.done.Wait()
	if err := errors.Join(stopErr, w.err, w.release()); err != nil {
		return w.Lost(), fmt.Errorf("file events: %w", err)
	}
	return w.Lost(), nil
}

func (w *Watcher) release() error {
	var err error
	if w.w != nil {
		err = w.w.Close()
	}
	if w.names != nil {
		err = errors.Join(err, w.names.Close())
	}
	return err
}

// A Process identifies a process by the names that it has inside its jail.
type Process struct {
	// The PID in the jail; 0 if the process has ended.
	PID int
	// The path of its program in the jail; "" if the process has ended.
	Program string
}

// ProcessOf returns the process of an Event.PID. While an open is reported its process waits, so
// the answer is exact. During an Executed event the process still has its previous program.
func ProcessOf(pid int) Process {
	var p Process
	dir := "/proc/" + strconv.Itoa(pid)
	text, err := os.ReadFile(dir + "/status")
	if err != nil {
		return p
	}
	for line := range strings.Lines(string(text)) {
		// One PID for each namespace, the outermost first.
		if numbers, ok := strings.CutPrefix(line, "NSpid:"); ok {
			if f := strings.Fields(numbers); len(f) > 1 {
				p.PID, _ = strconv.Atoi(f[len(f)-1])
			}
		}
	}
	p.Program, _ = os.Readlink(dir + "/exe")
	return p
}
