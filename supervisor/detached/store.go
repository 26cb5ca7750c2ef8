package detached

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/atomicfile"
	"github.com/jail-sandbox/jail/supervisor/daemonlog"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// store stores the output of detached runs, in a directory each:
//
//	about.json    about
//	output        parts: one byte for the stream, four for the length, big-endian, and the data
//	result.json   the message.Result, after the end
//
// The daemon that supervises the run locks the output (flock(2)) until the result is stored. After
// an upgrade this may be the previous daemon.
type store struct {
	log *daemonlog.Log

	dir string

	mu   sync.Mutex
	live map[string]*run
}

// Streams of a part.
const (
	streamOut = '1'
	streamErr = '2'
)

// in bytes; the writer's parts are shorter
const maxPart = 1 << 20

func openStore(dir string) (*store, error) {
	return &store{dir: dir, live: map[string]*run{}}, os.MkdirAll(dir, 0o700)
}

func (o *store) path(id string, name ...string) string {
	return filepath.Join(append([]string{o.dir, id}, name...)...)
}

// about reads the stored file about.json of a run. It returns fs.ErrNotExist if there is none.
func (o *store) about(id string) (a about, err error) {
	if _, err := jail.ParseID(id); err != nil {
		return a, fs.ErrNotExist
	}
	err = atomicfile.ReadJSON(o.path(id, "about.json"), &a)
	if err == nil && a.ID != id {
		err = fs.ErrInvalid
	}
	return a, err
}

// unread reports whether err means that a file exists but could not be read.
func unread(err error) bool {
	_, ok := errors.AsType[*fs.PathError](err)
	return ok && !errors.Is(err, fs.ErrNotExist)
}

// add makes the directory of a new run. If the same request has made one before, known is true and
// d is its run, nil if it has ended.
func (o *store) add(about about, input bool) (d *run, known bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	old, err := o.about(about.ID)
	if unread(err) {
		// create would remove the stored output of the other run.
		return nil, false, problem.New(problem.Failed, "output of run %s: %w", about.ID, err)
	}
	if err == nil {
		if old.UID == about.UID && old.Digest == about.Digest {
			return o.live[about.ID], true, nil
		}
		return nil, false, problem.New(problem.Usage, "run id %s is in use, by another request",
			about.ID)
	}
	mine := 0
	for _, other := range o.live {
		if other.about.UID == about.UID {
			mine++
		}
	}
	if mine >= maxDetached {
		return nil, false, problem.New(problem.Busy,
			"you have as many detached runs as one user may have at one time").
			WithHint("jail ps shows them, jail kill ID ends one")
	}
	d = &run{about: about, started: make(chan struct{}), over: make(chan struct{}),
		changed: make(chan struct{})}
	if err := o.create(d); err != nil {
		return nil, false, problem.New(problem.Failed, "output of run %s: %v", about.ID, err).
			WithCause(errors.Join(err, os.RemoveAll(o.path(about.ID))))
	}
	if input {
		d.in = newTyping()
	}
	o.live[about.ID] = d
	return d, false, nil
}

func (o *store) create(d *run) (err error) {
	// an incomplete one, left by a killed daemon
	_ = os.RemoveAll(o.path(d.about.ID))
	if err := os.Mkdir(o.path(d.about.ID), 0o700); err != nil {
		return err
	}
	if d.out, err = os.OpenFile(o.path(d.about.ID, "output"), os.O_CREATE|os.O_WRONLY|os.O_APPEND,
		0o600); err != nil {
		return err
	}
	if err := syscall.Flock(int(d.out.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return os.NewSyscallError("flock", err)
	}
	// Last: a directory with this file is complete.
	return atomicfile.WriteJSON(o.path(d.about.ID, "about.json"), d.about, 0o600, atomicfile.Volatile)
}

// forget removes a run that never started.
func (o *store) forget(d *run) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.live, d.about.ID)
	// An empty output that stays looks like a run whose daemon was killed.
	o.log.Failed("remove the output", d.about.ID, os.RemoveAll(o.path(d.about.ID)))
	d.end()
}

// finish writes the result of a run to its directory and marks the run as ended. If the result cannot
// be written, the error is logged, and the audit log still has the result.
func (o *store) finish(d *run, res message.Result) {
	d.mu.Lock()
	res.Truncated = res.Truncated || d.lost != nil
	d.mu.Unlock()
	err := atomicfile.WriteJSON(o.path(d.about.ID, "result.json"), res, 0o600, atomicfile.Volatile)
	o.log.Failed("keep the result", d.about.ID, err)
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.live, d.about.ID)
	d.end()
}

// end marks the run as ended and wakes its readers.
func (d *run) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended = true
	d.out.Close()
	if d.in != nil {
		d.in.end()
	}
	close(d.changed)
	close(d.over)
}

// A writer appends one stream of a run to the output file.
type writer struct {
	d      *run
	stream byte
}

func (w writer) Write(p []byte) (int, error) {
	part := append(binary.BigEndian.AppendUint32([]byte{w.stream}, uint32(len(p))), p...)
	w.d.mu.Lock()
	defer w.d.mu.Unlock()
	// The last part may be incomplete after an error.
	if w.d.lost == nil {
		_, w.d.lost = w.d.out.Write(part)
	}
	if w.d.lost != nil {
		// This error ends a run that is still running.
		return 0, w.d.lost
	}
	w.d.size += int64(len(part))
	close(w.d.changed)
	w.d.changed = make(chan struct{})
	return len(p), nil
}

// find returns the detached run with this id, of any user. The run is nil if it has ended or
// belongs to another daemon.
func (o *store) find(id string) (*run, about, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	about, err := o.about(id)
	return o.live[id], about, err
}

func (o *store) info(id string, d *run) message.DetachedInfo {
	about, err := o.about(id)
	if err != nil {
		return message.DetachedInfo{}
	}
	info := message.DetachedInfo{ID: id, Started: about.Started}
	if d == nil {
		info.Running = o.elsewhere(id)
		return info
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	info.Running = !d.ended
	return info
}

// follow copies a run's output from its start to out and errOut. With follow it waits for more
// until the run ends.
func (o *store) follow(ctx context.Context, about about, d *run, follow bool,
	out, errOut io.Writer) (*message.Result, error) {
	file, err := os.Open(o.path(about.ID, "output"))
	if err != nil {
		return nil, problem.New(problem.Failed, "output of run %s: %w", about.ID, err)
	}
	defer file.Close()
	r, read := bufio.NewReaderSize(file, 128<<10), int64(0)
	for {
		size, ended, changed := d.state(file, read)
		for read < size {
			n, err := copyPart(r, out, errOut)
			if err != nil {
				return nil, err
			}
			read += n
		}
		switch {
		case ended:
			return o.result(about)
		case !follow:
			return nil, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, problem.New(problem.Failed, "the caller went away").WithCause(ctx.Err())
		}
	}
}

// state returns the size of the output, whether the run has ended, and a channel that is closed
// when there is more. read is the size that was read already.
func (d *run) state(file *os.File, read int64) (size int64, ended bool, changed <-chan struct{}) {
	if d == nil {
		return stateElsewhere(file, read)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.size, d.ended, d.changed
}

func copyPart(r *bufio.Reader, out, errOut io.Writer) (int64, error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, problem.New(problem.Failed, "output of a detached run: %w", err)
	}
	size := int64(binary.BigEndian.Uint32(head[1:]))
	to := out
	if head[0] == streamErr {
		to = errOut
	}
	if size > maxPart || head[0] != streamOut && head[0] != streamErr {
		return 0, problem.New(problem.Failed, "output of a detached run: it is damaged").
			WithCause(fs.ErrInvalid)
	}
	if _, err := io.CopyN(to, r, size); errors.Is(err, io.EOF) {
		// cut off when the daemon was killed
		return 5 + size, nil
	} else if err != nil {
		return 0, err
	}
	return 5 + size, nil
}

// result reads the result of an ended run. If its daemon was killed, the result says so.
func (o *store) result(about about) (*message.Result, error) {
	var res message.Result
	err := atomicfile.ReadJSON(o.path(about.ID, "result.json"), &res)
	if errors.Is(err, fs.ErrNotExist) {
		e := problem.New(problem.Failed, "run %s has no result: its daemon was killed while it ran",
			about.ID).
			WithCause(err).
			WithHint("jail inspect " + about.ID + " shows what the log says of it")
		return &message.Result{ID: about.ID, ExitCode: e.Exit(), Error: e}, nil
	}
	if err != nil {
		return nil, problem.New(problem.Failed, "result of run %s: %w", about.ID, err)
	}
	return &res, nil
}

// prune removes the oldest ended runs of a user that exceed the bounds on number, size and age.
func (o *store) prune(uid uint32) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	entries, err := os.ReadDir(o.dir)
	if err != nil {
		return err
	}
	var mine []about
	sizes := map[string]int64{}
	for _, e := range entries {
		about, err := o.about(e.Name())
		if err != nil || about.UID != uid || o.live[about.ID] != nil || o.elsewhere(about.ID) {
			continue
		}
		if info, err := os.Stat(o.path(about.ID, "output")); err == nil {
			sizes[about.ID] = info.Size()
		}
		mine = append(mine, about)
	}
	slices.SortFunc(mine, func(a, b about) int { return b.Started.Compare(a.Started) })
	bytes := int64(0)
	for i, about := range mine {
		bytes += sizes[about.ID]
		if i < maxKept && bytes <= maxKeptBytes && time.Since(about.Started) < maxKeptAge {
			continue
		}
		if err := os.RemoveAll(o.path(about.ID)); err != nil {
			return err
		}
	}
	return nil
}

// elsewhere reports whether another daemon supervises the run.
func (o *store) elsewhere(id string) bool {
	file, err := os.Open(o.path(id, "output"))
	if err != nil {
		return false
	}
	defer file.Close()
	return held(file)
}

// held reports whether a daemon supervises the run with this output. If not, held leaves a shared
// lock on the file until it is closed.
func held(file *os.File) bool {
	return errors.Is(syscall.Flock(int(file.Fd()), syscall.LOCK_SH|syscall.LOCK_NB),
		syscall.EWOULDBLOCK)
}

// lookAgain is how often the output of another daemon's run is polled.
const lookAgain = 200 * time.Millisecond

// stateElsewhere is state for a run of another daemon, by its output file alone. It counts only
// whole parts, since the last one may be incomplete.
func stateElsewhere(file *os.File, read int64) (size int64, ended bool, changed <-chan struct{}) {
	// Checked first: if no daemon holds the file, no more output comes.
	ended = !held(file)
	info, err := file.Stat()
	if err != nil {
		return 0, true, nil
	}
	if ended {
		return info.Size(), true, nil
	}
	var head [5]byte
	// The last part may be half written.
	for size = read; ; {
		if _, err := file.ReadAt(head[:], size); err != nil {
			break
		}
		next := size + 5 + int64(binary.BigEndian.Uint32(head[1:]))
		if next > info.Size() {
			break
		}
		size = next
	}
	again := make(chan struct{})
	time.AfterFunc(lookAgain, func() { close(again) })
	return size, false, again
}
