package audit

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"golang.org/x/mod/sumdb/tlog"
)

// ErrPutBack is returned if a witness has seen more records of a log than the log has.
var ErrPutBack = errors.New("the log was cut or put back")

// WitnessRequest returns the request of the log in dir to a witness: its head h, and the proof that
// the first old records, which the witness has seen, are the beginning of the log.
func WitnessRequest(dir string, h Head, old uint64) ([]byte, error) {
	if old > h.Size {
		return nil, fmt.Errorf("%w: it has %d records, and the witness has seen %d", ErrPutBack,
			h.Size, old)
	}
	out := fmt.Appendf(nil, "old %d\n", old)
	if old > 0 && old < h.Size {
		proof, err := proveGrowth(dir, h, old)
		if err != nil {
			return nil, err
		}
		for _, hash := range proof {
			out = append(out, hash.String()+"\n"...)
		}
	}
	return append(append(out, '\n'), h.Note...), nil
}

// proveGrowth reads the tree after checking that the head signs it: a proof from another tree would
// look like another history.
func proveGrowth(dir string, h Head, old uint64) (tlog.TreeProof, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := openRegular(root, treeFile, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	t := &tree{f: f}
	body, _, _ := bytes.Cut(h.Note, []byte("\n\n"))
	is, err := t.begin(uint64(h.Size))
	if want, ok := parseCheckpoint(string(body) + "\n"); err != nil || !ok || want.root != is {
		return nil, fmt.Errorf(
			"%s does not fit the signed head: it is made anew when the daemon starts again: %w",
			treeFile, errors.Join(err, errRoot))
	}
	return tlog.ProveTree(int64(h.Size), int64(old), t)
}
