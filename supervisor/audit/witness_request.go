package audit

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/tlog"
)

// MaxWitnessRequest bounds what a witness is sent.
const MaxWitnessRequest = 16 << 10

// maxProofLines is how long a proof that one tree begins another can be.
const maxProofLines = 63

// A witnessRequest is what a log asks.
type witnessRequest struct {
	old   uint64
	proof tlog.TreeProof
	note  []byte
	head  treeHead
}

// follows checks that the head goes on from the last one.
func (r witnessRequest) follows(last lastSeen) error {
	seen := !last.at.IsZero()
	switch {
	case r.old != last.size, seen && r.head.size == last.size && r.head.root != last.root:
		return &WitnessError{Status: WitnessConflict, Size: last.size, Why: fmt.Sprintf("the newest head of %s that was cosigned has %d records", r.head.origin, last.size)}
	case r.old == 0 || r.old == r.head.size:
		if len(r.proof) > 0 {
			return &WitnessError{Status: WitnessBadProof, Why: "between these sizes the proof has no lines"}
		}
		if r.head.size == 0 && r.head.root != sha256.Sum256(nil) {
			return &WitnessError{Status: WitnessBadProof, Why: "the root is not that of a log without records"}
		}
		return nil
	}
	if tlog.CheckTree(r.proof, int64(r.head.size), tlog.Hash(r.head.root), int64(r.old), tlog.Hash(last.root)) != nil {
		return &WitnessError{Status: WitnessBadProof, Why: fmt.Sprintf("it is not proved that the first %d records of %s are those that were cosigned", r.old, r.head.origin)}
	}
	return nil
}

// parseWitnessRequest takes the only form of one.
func parseWitnessRequest(text []byte) (r witnessRequest, err error) {
	wrong := errors.New("want lines: old SIZE, then the hashes of the proof, an empty one, and a signed head")
	if len(text) > MaxWitnessRequest {
		return r, fmt.Errorf("it is longer than %d bytes", MaxWitnessRequest)
	}
	top, signed, found := bytes.Cut(text, []byte("\n\n"))
	lines := strings.Split(string(top), "\n")
	digits, isOld := strings.CutPrefix(lines[0], "old ")
	r.old, err = strconv.ParseUint(digits, 10, 63)
	if !found || !isOld || err != nil || strconv.FormatUint(r.old, 10) != digits || len(lines)-1 > maxProofLines {
		return r, wrong
	}
	for _, line := range lines[1:] {
		h, err := fromBase64(line)
		if err != nil || len(h) != tlog.HashSize {
			return r, wrong
		}
		r.proof = append(r.proof, tlog.Hash(h))
	}
	body, _, signedAtAll := bytes.Cut(signed, []byte("\n\n"))
	var ok bool
	if r.head, ok = parseCheckpoint(string(body) + "\n"); !ok || !signedAtAll || len(signed) > maxNote {
		return r, wrong
	}
	r.note = signed
	return r, nil
}

// ErrPutBack says that a witness has seen more records of a log than it has.
var ErrPutBack = errors.New("the log was cut or put back")

// WitnessRequest is what the log in dir asks a witness with: its head h, and the proof that its first old records, which the witness has seen, are the
// beginning of it.
func WitnessRequest(dir string, h Head, old uint64) ([]byte, error) {
	if old > h.Size {
		return nil, fmt.Errorf("%w: it has %d records, and the witness has seen %d", ErrPutBack, h.Size, old)
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

// proveGrowth reads the tree, and first whether it is the one that the head signs: a proof from another would look like another history.
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
	t := &tree{f: f, size: int64(h.Size), leaves: int64(h.Size)}
	body, _, _ := bytes.Cut(h.Note, []byte("\n\n"))
	is, err := t.root()
	if want, ok := parseCheckpoint(string(body) + "\n"); err != nil || !ok || want.root != is {
		return nil, fmt.Errorf("%s does not fit the signed head: it is made anew when the daemon starts again: %w", treeFile, errors.Join(err, errRoot))
	}
	return tlog.ProveTree(int64(h.Size), int64(old), t)
}
