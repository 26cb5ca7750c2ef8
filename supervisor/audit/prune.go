package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"os"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/jail-sandbox/jail/jail/atomicfile"
)

const cutFile = "cut"

// Keep bounds what a log keeps. Zero values keep everything.
type Keep struct {
	// Bytes bounds the size of the segments, counted from the newest.
	Bytes int64
	// For bounds the age of a segment's last record.
	For time.Duration
}

// Pruning is the result of [Prune].
type Pruning struct {
	Segments int   `json:"segments"`
	Bytes    int64 `json:"bytes"`
	// First is the first record before the pruning.
	First uint64 `json:"first"`
	// Last is the last removed record; less than First if none was removed.
	Last uint64 `json:"last"`
}

// Prune removes whole segments from the beginning of a log, never the one in use, until the rest is
// within keep. It first records a "gap" with the removed records, then signs the file "cut", which
// says where the log begins, so that the rest verifies as before, and then removes the files. The
// log may be in use.
func Prune(opt Options, keep Keep) (Pruning, error) {
	l, err := Open(opt)
	if err != nil {
		return Pruning{}, err
	}
	p, err := l.Prune(keep)
	return p, errors.Join(err, l.Close())
}

// Prune is the function Prune for an open log.
func (l *Log) Prune(keep Keep) (p Pruning, err error) {
	err = l.hold(func() (err error) {
		p, err = l.writer.prune(keep)
		return err
	})
	return p, err
}

// prune removes segments as Prune does. The caller holds the lock and the log is up to date.
func (w *writer) prune(keep Keep) (p Pruning, err error) {
	from, err := w.cut()
	if err != nil {
		return p, err
	}
	p.First, p.Last = from.size+1, from.size
	list, err := segments(w.root)
	if err != nil {
		return p, err
	}
	var total int64
	infos := make([]os.FileInfo, len(list))
	for i, first := range list {
		if infos[i], err = segmentInfo(w.root, first); err != nil {
			return p, err
		}
		total += infos[i].Size()
	}
	old := w.opt.Now().Add(-keep.For)
	for i := 0; i < len(list) && list[i] < w.at.segment; i++ {
		tooMuch := keep.Bytes > 0 && total > keep.Bytes
		tooOld := keep.For > 0 && infos[i].ModTime().Before(old)
		if left := list[i] <= from.size; !left && !tooMuch && !tooOld {
			break
		}
		p.Segments++
		p.Bytes += infos[i].Size()
		p.Last = list[i+1] - 1
		total -= infos[i].Size()
	}
	if p.Last < p.First {
		return p, removeBefore(w.root, from.size)
	}
	if err := w.own(Gap{Reason: "pruned, as the operator asked", First: p.First,
		Last: p.Last}); err != nil {
		return p, err
	}
	w.since++
	if err := w.setCut(p.Last); err != nil {
		return p, err
	}
	return p, errors.Join(removeBefore(w.root, p.Last), w.seal(false))
}

// setCut writes the signed file "cut", which says that the log begins after record last.
func (w *writer) setCut(last uint64) error {
	at, err := w.headAt(last)
	if err != nil {
		return err
	}
	e, err := w.tree.edge(int64(last))
	if err != nil {
		return err
	}
	text, err := at.sign(asCut, w.opt.Now(), []string{e.line()}, w.keys.signer)
	if err != nil {
		return err
	}
	// Flush the tree: the removed lines could not rebuild it.
	if err := w.tree.f.Sync(); err != nil {
		return err
	}
	return atomicfile.WriteIn(w.root, cutFile, text, 0o640, atomicfile.Durable)
}

// headAt returns the head after record last, which ends a segment.
func (w *writer) headAt(last uint64) (head, error) {
	r := readLines(w.root)
	defer r.close()
	if err := r.seek(last+1, 0); err != nil {
		return head{}, err
	}
	text, err := r.next()
	if err != nil {
		return head{}, err
	}
	m, err := new(parser).mark(text.text)
	if err != nil || m.seq != last+1 {
		return head{}, fmt.Errorf("%w: %s does not begin with record %d", errDamaged,
			segmentName(last+1), last+1)
	}
	root, err := tlog.TreeHash(int64(last), w.tree)
	return head{state{last, m.prev}, root}, err
}

// removeBefore removes the segments up to record last, the oldest first.
func removeBefore(root *os.Root, last uint64) error {
	list, err := segments(root)
	if err != nil {
		return err
	}
	for _, first := range list {
		if first > last {
			break
		}
		for _, name := range []string{segmentName(first), packedName(first), packedName(first) +
			".new"} {
			if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return atomicfile.SyncIn(root)
}

// cut returns the head after the last pruned record, which is where the log begins.
func (w *writer) cut() (head, error) {
	h, _, err := readCut(w.root, w.keys.known)
	if err != nil {
		err = fmt.Errorf("%w: %w", errDamaged, err)
	}
	return h, err
}

// readCut reads the file "cut". Without one it returns the head of an empty log.
func readCut(root *os.Root, known note.Verifiers) (head, edge, error) {
	text, err := readSmall(root, cutFile)
	if errors.Is(err, fs.ErrNotExist) {
		return head{state{hash: noLine()}, edge(nil).root()}, nil, nil
	}
	if err != nil {
		return head{}, nil, err
	}
	h, more, err := openLong(text, known, asCut)
	if err != nil {
		return h, nil, fmt.Errorf("%s: %w", cutFile, err)
	}
	if len(more) != 1 {
		return h, nil, fmt.Errorf("%s: %w", cutFile, errNote)
	}
	e, err := parseEdge(more[0], h.size)
	if err == nil && e.root() != h.root {
		err = errRoot
	}
	if err != nil {
		return h, nil, fmt.Errorf("%s: %w", cutFile, err)
	}
	return h, e, nil
}

// edge returns the right edge of the tree with the given number of leaves.
func (t *tree) edge(leaves int64) (edge, error) {
	var e edge
	for rest := uint64(leaves); rest > 0; {
		level := bits.Len64(rest) - 1
		// The number of complete subtrees of that size to its left.
		before := (uint64(leaves) &^ (rest)) >> level
		hashes, err := t.ReadHashes([]int64{tlog.StoredHashIndex(level, int64(before))})
		if err != nil {
			return nil, err
		}
		e = append(e, subtree{level, hashes[0]})
		rest &^= 1 << level
	}
	return e, nil
}

const edgePrefix = "edge"

func (e edge) line() string {
	var b strings.Builder
	b.WriteString(edgePrefix)
	for _, s := range e {
		b.WriteByte(' ')
		b.WriteString(s.hash.String())
	}
	return b.String()
}

// parseEdge parses the output of line. The number of leaves determines the levels.
func parseEdge(text string, leaves uint64) (edge, error) {
	words := strings.Split(text, " ")
	if words[0] != edgePrefix || len(words)-1 != bits.OnesCount64(leaves) {
		return nil, errNote
	}
	var e edge
	for _, word := range words[1:] {
		h, err := fromBase64(word)
		if err != nil || len(h) != tlog.HashSize {
			return nil, errNote
		}
		level := bits.Len64(leaves) - 1
		leaves &^= 1 << level
		e = append(e, subtree{level, tlog.Hash(h)})
	}
	return e, nil
}
