package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/jail-sandbox/jail/jail/atomicfile"
)

// settle reads from at, which the head covers, to the end of the log. It keeps complete records,
// moves torn bytes aside, and records both. The caller holds the lock.
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
	// Only the next segment may follow, made just before the crash.
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
		gap = Gap{Reason: "records past the signed head, left by a writer that did not end in order", First: signed + 1, Last: at.size}
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

// setTornAside moves the bytes after the last complete record to a file. The file is named after
// the record that will report it, so that the next Open completes a crash between the two.
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

// maxTorn is well above one batch, and bounds how much of a hostile tail is copied, in bytes.
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
