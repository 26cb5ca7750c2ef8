package audit

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/mod/sumdb/tlog"
)

const treeFile = "tree"

// tree is the Merkle tree (RFC 6962) over the lines of the log, stored as the hashes of its
// complete subtrees in the order of golang.org/x/mod/sumdb/tlog. Its file is a cache: it is used if
// its root is the one that the head signs, and otherwise rebuilt from the lines.
type tree struct {
	f *os.File
	// size is the number of leaves whose hashes are in the file.
	size int64
	// kept is the right edge of the tree with size leaves.
	kept edge
	// leaves is size plus the number of leaves in staged.
	leaves int64
	// staged has the hashes that are not in the file yet.
	staged []byte
	// right is the right edge of the tree with leaves leaves. New hashes are computed from it; the
	// file is read only at the start and for proofs.
	right edge
}

func openTree(root *os.Root) (*tree, error) {
	f, err := openRegular(root, treeFile, os.O_RDWR|os.O_CREATE, 0o640)
	if err != nil {
		return nil, err
	}
	return &tree{f: f}, nil
}

// begin assumes that the file has the tree with size leaves, and returns the tree's root.
func (t *tree) begin(size uint64) (tlog.Hash, error) {
	t.size, t.leaves, t.staged = int64(size), int64(size), t.staged[:0]
	var err error
	if t.kept, err = t.edge(t.size); err != nil {
		return tlog.Hash{}, err
	}
	t.right = append(t.right[:0], t.kept...)
	return t.root(), nil
}

// add appends a leaf for a line, in memory.
func (t *tree) add(line []byte) {
	t.right.stored(tlog.RecordHash(line), func(h tlog.Hash) {
		t.staged = append(t.staged, h[:]...)
	})
	t.leaves++
}

func (t *tree) root() tlog.Hash { return t.right.root() }

// write writes the staged hashes to the file. They become part of the tree by keep. They are not
// flushed: see heal.
func (t *tree) write() error {
	_, err := t.f.WriteAt(t.staged, hashOffset(tlog.StoredHashCount(t.size)))
	return err
}

// keep makes the written leaves part of the tree.
func (t *tree) keep() {
	t.size, t.staged, t.kept = t.leaves, t.staged[:0], append(t.kept[:0], t.right...)
}

// drop forgets the leaves that were added since the last keep.
func (t *tree) drop() {
	t.leaves, t.staged, t.right = t.size, t.staged[:0], append(t.right[:0], t.kept...)
}

func hashOffset(index int64) int64 { return index * tlog.HashSize }

// ReadHashes implements [tlog.HashReader].
func (t *tree) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	hashes := make([]tlog.Hash, len(indexes))
	behind := tlog.StoredHashCount(t.size)
	for i, index := range indexes {
		if index >= behind {
			copy(hashes[i][:], t.staged[hashOffset(index-behind):])
			continue
		}
		if _, err := t.f.ReadAt(hashes[i][:], hashOffset(index)); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, fmt.Errorf("%s: hash %d: %w", treeFile, index, err)
		}
	}
	return hashes, nil
}

// heal makes the tree fit the signed head h. If the file does not, after a power failure or a
// change by others, it rebuilds the file from the lines. The chain is verified up to the head
// before anything is signed.
func (w *writer) heal(h head) error {
	if root, err := w.tree.begin(h.size); err == nil && root == h.root {
		return nil
	}
	from, err := w.cut()
	if err != nil {
		return err
	}
	if root, err := w.tree.begin(from.size); err != nil || root != from.root {
		return fmt.Errorf("%w: %s does not fit the signed beginning of the log, record %d: %w",
			errDamaged, treeFile, from.size+1, errors.Join(err, errRoot))
	}
	reader := readLines(w.root)
	reader.from = from.size + 1
	defer reader.close()
	for uint64(w.tree.leaves) < h.size {
		text, err := reader.next()
		if err == io.EOF || err == nil && (text.torn || text.long) {
			return fmt.Errorf("%w: record %d is missing: the signed head has %d", errDamaged,
				w.tree.leaves+1, h.size)
		}
		if err != nil {
			return err
		}
		w.tree.add(text.text)
		if len(w.tree.staged) > maxBatch {
			if err := w.tree.write(); err != nil {
				return err
			}
			w.tree.keep()
		}
	}
	if w.tree.root() != h.root {
		return fmt.Errorf("%w: records %d to %d are not those that the head signs: %w", errDamaged,
			from.size+1, h.size, errRoot)
	}
	err = w.tree.write()
	w.tree.keep()
	return err
}

var errRoot = errors.New("another root of the tree")

// edge is the right edge of a growing tree: the hash of each complete subtree, the largest first.
// It is enough to append leaves and to compute the root.
type edge []subtree

type subtree struct {
	level int
	hash  tlog.Hash
}

// add appends a leaf.
func (e *edge) add(leaf tlog.Hash) { e.stored(leaf, func(tlog.Hash) {}) }

// stored appends a leaf. It calls each with the hashes that tlog stores for the leaf, in order: the
// leaf's hash, and those of the subtrees that it completes.
func (e *edge) stored(leaf tlog.Hash, each func(tlog.Hash)) {
	s := subtree{0, leaf}
	each(leaf)
	for n := len(*e); n > 0 && (*e)[n-1].level == s.level; n-- {
		s = subtree{s.level + 1, tlog.NodeHash((*e)[n-1].hash, s.hash)}
		each(s.hash)
		*e = (*e)[:n-1]
	}
	*e = append(*e, s)
}

func (e edge) root() tlog.Hash {
	if len(e) == 0 {
		return tlog.Hash(sha256.Sum256(nil))
	}
	h := e[len(e)-1].hash
	for i := len(e) - 2; i >= 0; i-- {
		h = tlog.NodeHash(e[i].hash, h)
	}
	return h
}
