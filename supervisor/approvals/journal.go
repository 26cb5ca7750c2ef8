package approvals

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/jail-sandbox/jail/jail/atomicfile"
	"github.com/jail-sandbox/jail/supervisor/flock"
)

// A line is one step of the queue, which is on the disk as a whole or not at all. Each item is the
// whole new value of what has its id.
type line struct {
	Actions []*stored `json:"actions,omitempty"`
	Grants  []*Grant  `json:"grants,omitempty"`
	// Ended are the ids of grants that allow nothing any more.
	Ended []string `json:"ended,omitempty"`
	// Records are owed to the audit log from this step on.
	Records []record `json:"records,omitempty"`
	// Recorded are the keys of records that the audit log has.
	Recorded []string `json:"recorded,omitempty"`
}

// A journal is the file of a queue, which several daemons share. A line of the file is the CRC-32C
// of a line in hexadecimal, a space, the line as JSON, and a line feed:
//
//	5a3c1f00 {"actions":[{"id":"…","state":"pending",…}]}
//
// Lines are appended and flushed. A line that a daemon was killed at has no line feed or a wrong
// sum, is the last one, and is cut off: the daemon had not answered yet. Damage anywhere else is an
// error, and so is a whole line that cannot be decoded. The file is replaced by a shorter one that
// says the same, see replace.
type journal struct {
	dir string
	// file is open at what was read of it, size is how far that is, and lines counts it.
	file  *os.File
	size  int64
	lines int
}

// errDamaged is the error of a journal that somebody or the disk has changed.
var errDamaged = errors.New("the journal of approvals is damaged")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (j *journal) path() string { return filepath.Join(j.dir, "journal") }

// lock waits until no other daemon uses the queue. The lock ends with unlock, or with the process.
func (j *journal) lock() (unlock func() error, err error) {
	if err := os.MkdirAll(j.dir, 0o700); err != nil {
		return nil, err
	}
	f, err := flock.Open(filepath.Join(j.dir, "lock"))
	if err != nil {
		return nil, err
	}
	return f.Close, nil
}

// catchUp calls take with each line that other daemons have written since the last call. If the
// file has been replaced since then, it calls forget first. The caller holds the lock.
func (j *journal) catchUp(forget func(), take func(line)) error {
	f, err := os.OpenFile(j.path(), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	same := false
	if j.file != nil {
		old, oldErr := j.file.Stat()
		now, nowErr := f.Stat()
		if err := errors.Join(oldErr, nowErr); err != nil {
			return errors.Join(err, f.Close())
		}
		same = os.SameFile(old, now) && now.Size() >= j.size
	}
	if same {
		if err := f.Close(); err != nil {
			return err
		}
	} else {
		forget()
		j.close()
		j.file, j.size, j.lines = f, 0, 0
	}
	if info, err := f.Stat(); !same && (err != nil || info.Size() == 0) {
		// Its name must outlive a power loss before anything in it does.
		if err := errors.Join(err, atomicfile.SyncDir(j.dir),
			atomicfile.SyncDir(filepath.Dir(j.dir))); err != nil {
			return err
		}
	}
	return j.read(take)
}

// read passes on what is behind the part that was read before, and cuts off an unfinished line.
func (j *journal) read(take func(line)) error {
	if _, err := j.file.Seek(j.size, io.SeekStart); err != nil {
		return err
	}
	in := bufio.NewReader(j.file)
	for {
		text, err := in.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if len(text) == 0 {
			return nil
		}
		var l line
		if parseErr := parseLine(text, &l); parseErr != nil {
			_, err := in.Peek(1)
			if !errors.Is(parseErr, errUnfinished) || !errors.Is(err, io.EOF) {
				return fmt.Errorf("%w: %s, line %d: %w", errDamaged, j.path(), j.lines+1, parseErr)
			}
			return j.cut()
		}
		take(l)
		j.size += int64(len(text))
		j.lines++
	}
}

// cut removes what is behind the part that was read.
func (j *journal) cut() error {
	if err := j.file.Truncate(j.size); err != nil {
		return err
	}
	return j.file.Sync()
}

// errUnfinished is the error for a line that was not written as a whole.
var errUnfinished = errors.New("it is not whole")

func parseLine(text []byte, l *line) error {
	text, ok := bytes.CutSuffix(text, []byte("\n"))
	if !ok {
		return fmt.Errorf("%w: it has no end", errUnfinished)
	}
	sum, body, ok := bytes.Cut(text, []byte(" "))
	if !ok {
		return fmt.Errorf("%w: it has no sum", errUnfinished)
	}
	want, err := strconv.ParseUint(string(sum), 16, 32)
	if err != nil || uint32(want) != crc32.Checksum(body, castagnoli) {
		return fmt.Errorf("%w: its sum is wrong", errUnfinished)
	}
	return json.Unmarshal(body, l)
}

func formatLine(l line) ([]byte, error) {
	body, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	out := fmt.Appendf(nil, "%08x ", crc32.Checksum(body, castagnoli))
	return append(append(out, body...), '\n'), nil
}

// append adds a line behind what was read, and returns when it is on the disk; without flush, when
// the kernel has it. An error leaves the journal as it was: what cannot be taken back is read
// again. The caller holds the lock and has caught up.
func (j *journal) append(l line, flush bool) error {
	text, err := formatLine(l)
	if err != nil {
		return err
	}
	_, err = j.file.WriteAt(text, j.size)
	if err == nil && flush {
		err = syscall.Fdatasync(int(j.file.Fd()))
		if err != nil {
			err = &fs.PathError{Op: "fdatasync", Path: j.path(), Err: err}
		}
	}
	if err != nil {
		err = errors.Join(err, j.cut())
		// Only the disk knows what it has.
		j.close()
		return err
	}
	j.size += int64(len(text))
	j.lines++
	return nil
}

// replace makes the journal these lines. The caller holds the lock and has caught up.
func (j *journal) replace(lines []line) error {
	var all []byte
	for _, l := range lines {
		text, err := formatLine(l)
		if err != nil {
			return err
		}
		all = append(all, text...)
	}
	if err := atomicfile.Write(j.path(), all, 0o600, atomicfile.Durable); err != nil {
		return err
	}
	f, err := os.OpenFile(j.path(), os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	j.close()
	j.file, j.size, j.lines = f, int64(len(all)), len(lines)
	return nil
}

// close lets go of the file: the next catchUp reads all of it again.
func (j *journal) close() {
	if j.file != nil {
		// Everything in it was flushed, or is not needed.
		_ = j.file.Close()
	}
	j.file, j.size, j.lines = nil, 0, 0
}

// changed reports whether the journal has more than was read of it, or is another file. It takes no
// lock: the answer is a reason to look again, and nothing else.
func (j *journal) changed() bool {
	now, err := os.Stat(j.path())
	if err != nil || j.file == nil {
		return err == nil
	}
	old, err := j.file.Stat()
	return err != nil || !os.SameFile(old, now) || now.Size() != j.size
}

// Commands of fcntl(2) for locks that belong to an open file description.
const (
	setLock     = 37 // F_OFD_SETLK
	setLockWait = 38 // F_OFD_SETLKW
)

// applying takes the lock by which one daemon at a time applies the action with an id, or finds out
// that nobody does. Without wait, ok is false while somebody else has it. The lock ends with
// release, or with the process.
func (j *journal) applying(id string, wait bool) (release func() error, ok bool, err error) {
	f, err := os.OpenFile(filepath.Join(j.dir, "applying"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, false, err
	}
	how := setLock
	if wait {
		how = setLockWait
	}
	// Two ids may share a byte: then they are applied one after the other.
	at := int64(crc32.Checksum([]byte(id), castagnoli))
	for {
		err := syscall.FcntlFlock(f.Fd(), how,
			&syscall.Flock_t{Type: syscall.F_WRLCK, Start: at, Len: 1})
		switch {
		case err == nil:
			return f.Close, true, nil
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EACCES):
			return nil, false, f.Close()
		default:
			return nil, false, errors.Join(&fs.PathError{Op: "fcntl", Path: f.Name(), Err: err},
				f.Close())
		}
	}
}
