package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/tlog"
)

// errProof is wrapped by errors for an invalid proof.
var errProof = errors.New("proof")

// ErrNoRecord is wrapped by errors for a record number that is not in the log.
var ErrNoRecord = errors.New("no such record")

// Proof proves that a line is a record of a log. Checking it needs only the log's public key.
type Proof struct {
	// Line is the record's line without its newline.
	Line   []byte
	Index  uint64 // the record's number minus one
	Hashes []tlog.Hash
	// Note is the signed head: a C2SP tlog-checkpoint.
	Note []byte
}

const proofHeader = "c2sp.org/tlog-proof@v1"

// Prove returns a proof for record seq of the log in dir. It needs no private key. pub has the
// public keys, one a line.
func Prove(dir, pub string, seq uint64) (Proof, error) {
	known, err := verifiers(pub)
	if err != nil {
		return Proof{}, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Proof{}, err
	}
	defer root.Close()
	line, err := findLine(root, seq)
	if err != nil {
		return Proof{}, err
	}
	p := Proof{Line: line, Index: seq - 1}
	// A writer may be overwriting the head. The tree on disk is never behind the head.
	for range followHead {
		if p.Note, err = readSmall(root, headFile); err != nil {
			return Proof{}, err
		}
		var h head
		if h, err = openNote(p.Note, known, asHead); err == nil {
			if p.Hashes, err = proveIn(root, h, p.Index); err == nil {
				return p, p.check(h)
			}
		}
	}
	return Proof{}, err
}

func proveIn(root *os.Root, h head, index uint64) ([]tlog.Hash, error) {
	if index >= h.size {
		return nil, fmt.Errorf("%w: the signed head has %d records", ErrNoRecord, h.size)
	}
	f, err := openRegular(root, treeFile, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return tlog.ProveRecord(int64(h.size), int64(index),
		&tree{f: f, size: int64(h.size), leaves: int64(h.size)})
}

// findLine returns the line of record seq.
func findLine(root *os.Root, seq uint64) ([]byte, error) {
	list, err := segments(root)
	if err != nil {
		return nil, err
	}
	r := readLines(root)
	defer r.close()
	n := holding(list, seq)
	if n == 0 {
		return nil, ErrNoRecord
	}
	for p, err := range r.read(context.Background(), Span{Place{n, 0}, wholeSegment}) {
		if err != nil || n == seq {
			return p.Line, err
		}
		n++
	}
	return nil, ErrNoRecord
}

// Marshal returns the record's line, followed by a C2SP tlog-proof of it.
func (p Proof) Marshal() []byte {
	b := append(bytes.Clone(p.Line), '\n')
	b = fmt.Appendf(b, "%s\nindex %d\n", proofHeader, p.Index)
	for _, h := range p.Hashes {
		b = append(b, h.String()...)
		b = append(b, '\n')
	}
	b = append(b, '\n')
	return append(b, p.Note...)
}

// maxProof bounds a proof in bytes.
const maxProof = maxLine + 64*64 + maxNote

// ParseProof parses the output of Marshal.
func ParseProof(text []byte) (p Proof, err error) {
	if len(text) > maxProof {
		return p, fmt.Errorf("%w: longer than %d bytes", errProof, maxProof)
	}
	wrong := fmt.Errorf(
		"%w: want a record's line, then %q, its index, hashes, an empty line and a signed head",
		errProof, proofHeader)
	line, rest, found := bytes.Cut(text, []byte("\n"))
	top, signed, found2 := bytes.Cut(rest, []byte("\n\n"))
	lines := strings.Split(string(top), "\n")
	if !found || !found2 || len(lines) < 2 || lines[0] != proofHeader {
		return p, wrong
	}
	digits, isIndex := strings.CutPrefix(lines[1], "index ")
	p.Index, err = strconv.ParseUint(digits, 10, 63)
	if !isIndex || err != nil || strconv.FormatUint(p.Index, 10) != digits {
		return p, wrong
	}
	for _, word := range lines[2:] {
		h, err := fromBase64(word)
		if err != nil || len(h) != tlog.HashSize {
			return p, wrong
		}
		p.Hashes = append(p.Hashes, tlog.Hash(h))
	}
	p.Line, p.Note = line, signed
	return p, nil
}

// CheckProof verifies a proof with the public keys in pub, one a line, and returns its record.
func CheckProof(p Proof, pub string) (Record, error) {
	known, err := verifiers(pub)
	if err != nil {
		return Record{}, err
	}
	h, err := openNote(p.Note, known, asHead)
	if err != nil {
		return Record{}, fmt.Errorf("%w: its head: %w", errProof, err)
	}
	if err := p.check(h); err != nil {
		return Record{}, err
	}
	r, err := ParseRecord(p.Line)
	if err != nil {
		return Record{}, fmt.Errorf("%w: %w", errProof, err)
	}
	if r.Seq != p.Index+1 {
		return Record{}, fmt.Errorf("%w: the record says that it is %d, and stands at %d", errProof,
			r.Seq, p.Index+1)
	}
	return r, nil
}

func (p Proof) check(h head) error {
	if p.Index >= h.size {
		return fmt.Errorf("%w: record %d is not among the %d that the head signs", errProof,
			p.Index+1, h.size)
	}
	if err := tlog.CheckRecord(p.Hashes, int64(h.size), h.root, int64(p.Index),
		tlog.RecordHash(p.Line)); err != nil {
		return fmt.Errorf("%w: the line is not record %d of the log whose head this is", errProof,
			p.Index+1)
	}
	return nil
}
