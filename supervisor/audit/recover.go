package audit

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/jail-sandbox/jail/jail/atomicfile"
	"github.com/jail-sandbox/jail/supervisor/audit/internal/flock"
)

// open finds the end of the log, or begins a log.
func (l *Log) open() (err error) {
	if l.root, err = openDir(l.opt.Dir, 0o750); err != nil {
		return err
	}
	if l.keys, err = openDir(l.opt.KeyDir, 0o700); err != nil {
		return err
	}
	if l.lock, err = openRegular(l.root, lockFile, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return err
	}
	if err = flock.Lock(l.lock); err != nil {
		return err
	}
	if l.tree, err = openTree(l.root); err != nil {
		return err
	}
	defer flock.Unlock(l.lock)
	list, err := segments(l.root)
	if err != nil {
		return err
	}
	headThere, err := exists(l.root, headFile)
	if err != nil {
		return err
	}
	if err := l.loadKey(len(list) > 0 || headThere); err != nil {
		return err
	}
	if headThere {
		if err := l.resume(list); err != nil {
			return err
		}
	} else if err := l.begin(list); err != nil {
		return err
	}
	if err := l.enter(l.at.segment); err != nil {
		return err
	}
	if err := l.settle(l.at); err != nil {
		return err
	}
	return l.settleKey()
}

func openDir(dir string, perm fs.FileMode) (*os.Root, error) {
	if err := os.MkdirAll(dir, perm); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	info, err := root.Stat(".")
	if err == nil && info.Mode().Perm()&0o002 != 0 {
		err = fmt.Errorf("%s: mode is %v: anyone could replace files in it", dir, info.Mode())
	}
	if err != nil {
		root.Close()
		return nil, err
	}
	return root, nil
}

func (l *Log) loadKey(logThere bool) error {
	there, err := exists(l.keys, keyFile)
	if err != nil {
		return err
	}
	if !there {
		if logThere {
			return fmt.Errorf("%w: %s is missing, but it signed an existing log", ErrKey, keyFile)
		}
		if err := newKey(l.keys); err != nil {
			return err
		}
	}
	var pub string
	if l.signer, pub, err = readKey(l.keys); err != nil {
		return err
	}
	// The keys before it, too.
	all, err := readPublic(l.keys)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		all = []byte(pub)
	case err != nil:
		return err
	case !strings.Contains("\n"+string(all), "\n"+pub):
		return fmt.Errorf("%w: %s in %s is not the public half of %s", ErrKey, pubFile,
			l.keys.Name(), keyFile)
	}
	if l.known, err = verifiers(string(all)); err != nil {
		return err
	}
	return errors.Join(publish(l.keys, string(all)), publish(l.root, string(all)))
}

// begin makes the head of an empty log, unless there was a log before.
func (l *Log) begin(list []uint64) error {
	if len(list) > 0 {
		return fmt.Errorf("%w: the signed head is missing", errDamaged)
	}
	if known, err := l.lastKnown(); err != nil {
		return err
	} else if known.size > 0 {
		return fmt.Errorf("%w: records 1 to %d are missing: the whole log is gone", errDamaged,
			known.size)
	}
	l.at = position{segment: 1, state: state{hash: noLine()}}
	root, err := l.tree.begin(0)
	if err != nil {
		return err
	}
	text, err := head{l.at.state, root}.sign(asHead, l.opt.Now(), nil, l.signer)
	if err != nil {
		return err
	}
	if err := atomicfile.WriteIn(l.root, headFile, text, 0o640, atomicfile.Durable); err != nil {
		return err
	}
	_, err = l.openHead()
	return err
}

// resume finds the record that the head signs.
func (l *Log) resume(list []uint64) error {
	head, err := l.openHead()
	if err != nil {
		return err
	}
	known, err := l.lastKnown()
	if err != nil {
		return err
	}
	if known.size > head.size {
		return fmt.Errorf("%w: the log was put back to record %d; there was a record %d",
			errDamaged, head.size, known.size)
	}
	if l.at, err = locate(l.root, &l.parser, list, head.state); err != nil {
		return err
	}
	return l.heal(head)
}

func (l *Log) openHead() (head, error) {
	f, err := openRegular(l.root, headFile, os.O_RDWR, 0)
	if err != nil {
		return head{}, err
	}
	l.head = f
	if l.hdInfo, err = f.Stat(); err != nil {
		return head{}, err
	}
	// Keep the file open: a checkpoint must not need a descriptor, because a failed checkpoint ends
	// the log.
	if l.lastHead, err = openRegular(l.keys, knownFile, os.O_WRONLY|os.O_CREATE,
		0o600); err != nil {
		return head{}, err
	}
	return l.readHead()
}

func (l *Log) readHead() (head, error) {
	text := make([]byte, maxNote)
	n, err := l.head.ReadAt(text, 0)
	if err != nil && err != io.EOF {
		return head{}, err
	}
	s, err := openNote(text[:n], l.known, asHead)
	// Another writer may have changed the key.
	if err != nil && l.loadKey(true) == nil {
		s, err = openNote(text[:n], l.known, asHead)
	}
	if err != nil {
		return s, fmt.Errorf("%w: head: %w", errDamaged, err)
	}
	l.signed = text[:n]
	return s, nil
}

// lastKnown returns the head in the key directory, of size 0 without one.
func (l *Log) lastKnown() (head, error) {
	text, err := readSmall(l.keys, knownFile)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(text) == 0 {
		return head{}, nil
	}
	if err != nil {
		return head{}, err
	}
	s, err := openNote(text, l.known, asHead)
	if err != nil {
		return s, fmt.Errorf("%w: %s: %w", errDamaged, knownFile, err)
	}
	return s, nil
}

// locate finds the end of the head's record. It reads the end of one segment and no more than it
// must: a client without a daemon opens the log for every run.
func locate(root *os.Root, p *parser, list []uint64, head state) (position, error) {
	if head.size == 0 {
		return position{segment: 1, state: head}, nil
	}
	at := position{state: head}
	for _, first := range list {
		if first <= head.size {
			at.segment = first
		}
	}
	missing := fmt.Errorf("%w: record %d is missing: the signed head has it", errDamaged, head.size)
	if at.segment == 0 {
		return at, missing
	}
	f, err := openRegular(root, segmentName(at.segment), os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return locateIn(root, p, at, missing)
	}
	if err != nil {
		return at, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return at, err
	}
	// A crash leaves few records after the head, so the record is near the end; otherwise read the
	// whole segment.
	for window := int64(64 << 10); window <= 16<<20; window *= 16 {
		from := max(0, info.Size()-window)
		found, err := at.seek(io.NewSectionReader(f, from, window), from, p)
		if found || err != nil {
			return at, err
		}
		if from == 0 {
			return at, missing
		}
	}
	found, err := at.seek(f, 0, p)
	if err == nil && !found {
		err = missing
	}
	return at, err
}

// locateIn is locate in a segment that is packed or missing.
func locateIn(root *os.Root, p *parser, at position, missing error) (position, error) {
	s, err := openSource(root, at.segment, 0)
	if err != nil {
		return at, err
	}
	defer s.Close()
	found, err := at.seek(s, 0, p)
	if err == nil && !found {
		err = missing
	}
	return at, err
}

// seek reads lines from offset until the one of at's state, and moves past it. The first may be the
// end of a line; lines that are no records are skipped.
func (at *position) seek(from io.Reader, offset int64, p *parser) (bool, error) {
	r := &lines{buf: bufio.NewReaderSize(from, 64<<10)}
	for {
		text, err := r.slice()
		offset += int64(len(text))
		if err == io.EOF || errors.Is(err, bufio.ErrBufferFull) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		m, err := p.mark(text[:len(text)-1])
		if err != nil || m.seq != at.size {
			continue
		}
		at.offset = offset
		if m.hash != at.hash {
			return true, fmt.Errorf("%w: record %d is altered: its hash is not the signed one",
				errDamaged, m.seq)
		}
		return true, nil
	}
}
