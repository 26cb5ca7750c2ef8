package detached

import (
	"encoding/binary"
	"errors"
	"os"
	"syscall"
	"time"
)

// elsewhere reports whether another daemon has the run, where this one does not.
func (o *store) elsewhere(id string) bool {
	file, err := os.Open(o.path(id, "output"))
	if err != nil {
		return false
	}
	defer file.Close()
	return held(file)
}

// held reports whether a daemon still has the run whose output that is. Where none does the file is
// locked, as for all who look at it, until it is closed.
func held(file *os.File) bool {
	return errors.Is(syscall.Flock(int(file.Fd()), syscall.LOCK_SH|syscall.LOCK_NB),
		syscall.EWOULDBLOCK)
}

// lookAgain is how often the output of another daemon's run is looked at: that daemon tells nobody
// of more.
const lookAgain = 200 * time.Millisecond

// stateElsewhere is state for a run of another daemon, of which only the output file is at hand. It
// counts whole parts only: the last one may be incomplete.
func stateElsewhere(file *os.File, read int64) (size int64, ended bool, changed <-chan struct{}) {
	// asked first: then nothing more comes
	ended = !held(file)
	info, err := file.Stat()
	if err != nil {
		return 0, true, nil
	}
	if ended {
		return info.Size(), true, nil
	}
	var head [5]byte
	// whole parts: the last may be being written
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
