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

// A line is one step of the queue, written to the disk completely or not at all. Each item replaces
// the action, grant or record with the same id.
type line struct {
	Actions []*stored `json:"actions,omitempty"`
	Grants  []*Grant  `json:"grants,omitempty"`
	// Ended are the ids of grants that have ended.
	Ended []string `json:"ended,omitempty"`
	// Records are audit records that still have to be written.
	Records []record `json:"records,omitempty"`
	// Recorded are the keys of records that have been written to the audit log.
	Recorded []string `json:"recorded,omitempty"`
}

// A journal is the file of a queue. Several daemons may share it. Each line of the file is a
// CRC-32C in hexadecimal, a space, a line as JSON, and a line feed:
//
//	5a3c1f00 {"actions":[{"id":"…","state":"pending",…}]}
//
// Lines are appended and flushed. If the last line has no line feed or a wrong checksum, a daemon
// was killed while writing it and had not answered yet: the line is cut off. Damage anywhere else
// is an error, and so is a complete line that cannot be decoded. See replace for how the file is
// compacted.
type journal struct {
	dir string
	// file is the open file, size is how many bytes of it were read, and lines how many lines.
	file  *os.File
	size  int64
	lines int
}

// errDamaged is the error for a corrupted journal.
var errDamaged = errors.New("the journal of approvals is damaged")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (j *journal) path() string { return filepath.Join(j.dir, "journal") }

// lock takes the lock of the queue among daemons. The end of the process releases it, too.
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
		// The name of the file must be durable before its contents are.
		if err := errors.Join(err, atomicfile.SyncDir(j.dir),
			atomicfile.SyncDir(filepath.Dir(j.dir))); err != nil {
			return err
		}
	}
	return j.read(take)
}

// read calls take with each line after size, and cuts off an unfinished last line.
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

// cut truncates the file to size.
func (j *journal) cut() error {
	if err := j.file.Truncate(j.size); err != nil {
		return err
	}
	return j.file.Sync()
}

// errUnfinished is the error for a line that was not written completely.
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

// append adds a line at the end and, if flush is true, waits until it is on disk. After an error it
// tries to cut the line off, and the next catchUp reads the whole file again: a line that could not
// be cut off is valid. The caller holds the lock and has called catchUp.
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

// replace durably replaces the journal with these lines. The caller holds the lock after catchUp.
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

// close closes the file. The next catchUp reads all of it again.
func (j *journal) close() {
	if j.file != nil {
		// Everything in it was flushed, or is not needed.
		_ = j.file.Close()
	}
	j.file, j.size, j.lines = nil, 0, 0
}

// changed reports whether the file has grown or was replaced since it was read. It takes no lock,
// so the result is only a hint to read again.
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

// applying takes the lock for applying the action with this id. If wait is false and somebody else
// holds the lock, ok is false. The lock is held until release is called or the process ends.
func (j *journal) applying(id string, wait bool) (release func() error, ok bool, err error) {
	f, err := os.OpenFile(filepath.Join(j.dir, "applying"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, false, err
	}
	how := setLock
	if wait {
		how = setLockWait
	}
	// The lock is on one byte of the file. Ids that share a byte are applied one after the other.
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
