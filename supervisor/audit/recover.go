package audit

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/jail-sandbox/jail/jail/atomicfile"
	"github.com/jail-sandbox/jail/supervisor/flock"
)

// open opens the log at its end, or creates a log.
func (w *writer) open() (err error) {
	if w.root, err = openDir(w.opt.Dir, 0o750); err != nil {
		return err
	}
	if w.keys.dir, err = openDir(w.opt.KeyDir, 0o700); err != nil {
		return err
	}
	if w.lock, err = openRegular(w.root, lockFile, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return err
	}
	if err = flock.Lock(w.lock); err != nil {
		return err
	}
	if w.tree, err = openTree(w.root); err != nil {
		return err
	}
	defer flock.Unlock(w.lock)
	list, err := segments(w.root)
	if err != nil {
		return err
	}
	headThere, err := exists(w.root, headFile)
	if err != nil {
		return err
	}
	if err := w.keys.load(len(list) > 0 || headThere, w.root); err != nil {
		return err
	}
	if headThere {
		if err := w.resume(list); err != nil {
			return err
		}
	} else if err := w.begin(list); err != nil {
		return err
	}
	if err := w.enter(w.at.segment); err != nil {
		return err
	}
	if err := w.settle(w.at); err != nil {
		return err
	}
	return w.settleKey()
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

// load reads the keys and publishes the public ones in the log. For a new log it makes a key.
func (k *keys) load(logThere bool, log *os.Root) error {
	there, err := exists(k.dir, keyFile)
	if err != nil {
		return err
	}
	if !there {
		if logThere {
			return fmt.Errorf("%w: %s is missing, but it signed an existing log", ErrKey, keyFile)
		}
		if err := newKey(k.dir); err != nil {
			return err
		}
	}
	var pub string
	if k.signer, pub, err = readKey(k.dir); err != nil {
		return err
	}
	// Earlier public keys, too.
	all, err := readPublic(k.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		all = []byte(pub)
	case err != nil:
		return err
	case !strings.Contains("\n"+string(all), "\n"+pub):
		return fmt.Errorf("%w: %s in %s is not the public half of %s", ErrKey, pubFile,
			k.dir.Name(), keyFile)
	}
	if k.known, err = verifiers(string(all)); err != nil {
		return err
	}
	return errors.Join(publish(k.dir, string(all)), publish(log, string(all)))
}

// begin creates the head of an empty log. It returns an error if there are signs of an earlier log.
func (w *writer) begin(list []uint64) error {
	if len(list) > 0 {
		return fmt.Errorf("%w: the signed head is missing", errDamaged)
	}
	if known, err := w.keys.lastKnown(); err != nil {
		return err
	} else if known.size > 0 {
		return fmt.Errorf("%w: records 1 to %d are missing: the whole log is gone", errDamaged,
			known.size)
	}
	w.at = position{segment: 1, state: state{hash: noLine()}}
	root, err := w.tree.begin(0)
	if err != nil {
		return err
	}
	text, err := head{w.at.state, root}.sign(asHead, w.opt.Now(), nil, w.keys.signer)
	if err != nil {
		return err
	}
	if err := atomicfile.WriteIn(w.root, headFile, text, 0o640, atomicfile.Durable); err != nil {
		return err
	}
	_, err = w.openHead()
	return err
}

// resume continues after the last record that the head signs. list has the segments.
func (w *writer) resume(list []uint64) error {
	head, err := w.openHead()
	if err != nil {
		return err
	}
	known, err := w.keys.lastKnown()
	if err != nil {
		return err
	}
	if known.size > head.size {
		return fmt.Errorf("%w: the log was put back to record %d; there was a record %d",
			errDamaged, head.size, known.size)
	}
	if w.at, err = locate(w.root, list, head.state); err != nil {
		return err
	}
	return w.heal(head)
}

func (w *writer) openHead() (head, error) {
	f, err := openRegular(w.root, headFile, os.O_RDWR, 0)
	if err != nil {
		return head{}, err
	}
	w.head.file = f
	if w.head.info, err = f.Stat(); err != nil {
		return head{}, err
	}
	// Keep the file open: a checkpoint must not fail for lack of a descriptor, because a failed
	// checkpoint ends the log.
	if w.head.last, err = openRegular(w.keys.dir, knownFile, os.O_WRONLY|os.O_CREATE,
		0o600); err != nil {
		return head{}, err
	}
	return w.readHead()
}

func (w *writer) readHead() (head, error) {
	text := make([]byte, maxNote)
	n, err := w.head.file.ReadAt(text, 0)
	if err != nil && err != io.EOF {
		return head{}, err
	}
	s, err := openNote(text[:n], w.keys.known, asHead)
	// Another process may have changed the key.
	if err != nil && w.keys.load(true, w.root) == nil {
		s, err = openNote(text[:n], w.keys.known, asHead)
	}
	if err != nil {
		return s, fmt.Errorf("%w: head: %w", errDamaged, err)
	}
	w.head.signed = text[:n]
	return s, nil
}

// lastKnown returns the head in the key directory, or a head of size 0.
func (k *keys) lastKnown() (head, error) {
	text, err := readSmall(k.dir, knownFile)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(text) == 0 {
		return head{}, nil
	}
	if err != nil {
		return head{}, err
	}
	s, err := openNote(text, k.known, asHead)
	if err != nil {
		return s, fmt.Errorf("%w: %s: %w", errDamaged, knownFile, err)
	}
	return s, nil
}

// locate returns the position after the record that the head signs. It reads as little as possible
// from the end of one segment, since a client without a daemon opens the log for every run.
func locate(root *os.Root, list []uint64, head state) (position, error) {
	if head.size == 0 {
		return position{segment: 1, state: head}, nil
	}
	at := position{segment: holding(list, head.size), state: head}
	missing := fmt.Errorf("%w: record %d is missing: the signed head has it", errDamaged, head.size)
	if at.segment == 0 {
		return at, missing
	}
	f, err := openRegular(root, segmentName(at.segment), os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return locateIn(root, at, missing)
	}
	if err != nil {
		return at, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return at, err
	}
	end, err := linesEnd(f, info.Size())
	if err != nil {
		return at, err
	}
	// A crash leaves few records after the head, so the record is near the end. Otherwise read the
	// whole segment.
	for window := int64(64 << 10); window <= 16<<20; window *= 16 {
		from := max(0, end-window)
		found, err := at.seek(io.NewSectionReader(f, from, window), from)
		if found || err != nil {
			return at, err
		}
		if from == 0 {
			return at, missing
		}
	}
	found, err := at.seek(f, 0)
	if err == nil && !found {
		err = missing
	}
	return at, err
}

// locateIn is locate for a segment that is packed or missing.
func locateIn(root *os.Root, at position, missing error) (position, error) {
	s, err := openSource(root, at.segment, 0)
	if err != nil {
		return at, err
	}
	defer s.Close()
	found, err := at.seek(s, 0)
	if err == nil && !found {
		err = missing
	}
	return at, err
}

// seek reads lines from offset on until the line of at's state, moves at past it, and reports
// whether it is there. The first line may be incomplete; it skips lines that are not records.
func (at *position) seek(from io.Reader, offset int64) (bool, error) {
	var p parser
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

// settle reads from at, where the head's records end, to the end of the log. It keeps complete
// records, moves torn bytes to a file, and records both in a gap. The caller holds the lock.
func (w *writer) settle(at position) error {
	signed := at.size
	reader := readLines(w.root)
	defer reader.close()
	if err := reader.seek(at.segment, at.offset); err != nil {
		return err
	}
	torn, tornIn, p := false, uint64(0), parser{}
	for {
		text, err := reader.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		m, err := p.mark(text.text)
		torn = text.torn || text.long || err != nil || m.seq != at.size+1 || m.prev != at.hash ||
			text.segment != at.segment && text.segment != m.seq
		if torn {
			tornIn = text.segment
			break
		}
		w.tree.add(text.text)
		at = position{text.segment, reader.offset, state{m.seq, m.hash}}
	}
	list, err := segments(w.root)
	if err != nil {
		return err
	}
	// At most one further segment may follow, made just before the crash.
	if last := list[len(list)-1]; last != at.segment {
		if last != at.size+1 || list[max(0, len(list)-2)] != at.segment || torn && tornIn != last {
			return fmt.Errorf("%w: segment %s does not follow record %d", errDamaged,
				segmentName(last), at.size)
		}
		at.segment, at.offset = last, 0
	}
	w.at = at
	if err := w.enter(at.segment); err != nil {
		return err
	}
	gap := Gap{}
	if at.size > signed {
		gap = Gap{Reason: "records past the signed head, left by a writer that did not end in order",
			First: signed + 1, Last: at.size}
	}
	if err := w.setTornAside(torn, &gap); err != nil {
		return err
	}
	if gap.Reason == "" {
		return nil
	}
	if err := w.own(gap); err != nil {
		return err
	}
	w.since++
	return w.seal(false)
}

// setTornAside moves the bytes after the last complete record to a file and describes them in gap.
// The file has the number of the record that reports it, so the next Open completes a crash
// between.
func (w *writer) setTornAside(torn bool, gap *Gap) error {
	name := fmt.Sprintf("torn-%012d", w.at.size+1)
	if torn {
		if err := w.copyTorn(name); err != nil {
			return err
		}
		if err := w.seg.Truncate(w.at.offset); err != nil {
			return err
		}
		w.seg.size = w.at.offset
		if err := w.seg.Sync(); err != nil {
			return err
		}
	}
	f, err := openRegular(w.root, name, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, f)
	if err != nil {
		return err
	}
	reason := "torn bytes behind the last whole record, left by a writer that did not end in order"
	if gap.Reason != "" {
		reason = gap.Reason + "; " + reason
	}
	gap.Reason, gap.Count = reason, -1
	gap.Bytes, gap.SHA256, gap.File = n, hex.EncodeToString(h.Sum(nil)), name
	return nil
}

// maxTorn bounds the torn bytes that are copied. It is well above one batch.
const maxTorn = 4 * maxBatch

func (w *writer) copyTorn(name string) error {
	from, err := openRegular(w.root, segmentName(w.at.segment), os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil {
		return err
	}
	end, err := linesEnd(from, info.Size())
	if err != nil {
		return err
	}
	n := max(end-w.at.offset, 0)
	if n > maxTorn {
		return fmt.Errorf("%w: %d bytes behind record %d: no writer leaves so much", errDamaged, n,
			w.at.size)
	}
	to, err := openRegular(w.root, name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o640)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, io.NewSectionReader(from, w.at.offset, n))
	return errors.Join(err, to.Sync(), to.Close(), atomicfile.SyncIn(w.root))
}
