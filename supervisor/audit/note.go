package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// sum is the SHA-256 of a line, or of nothing before record 1.
type sum [sha256.Size]byte

const sumPrefix = "sha256:"

func (s sum) String() string { return sumPrefix + hex.EncodeToString(s[:]) }

func noLine() sum { return sha256.Sum256(nil) }

// parseSum accepts the only spelling of a sum.
func parseSum(text []byte) (s sum, ok bool) {
	text, ok = bytes.CutPrefix(text, []byte(sumPrefix))
	if !ok || len(text) != 2*len(s) {
		return s, false
	}
	for i := range s {
		hi, lo := nibble(text[2*i]), nibble(text[2*i+1])
		if hi > 15 || lo > 15 {
			return s, false
		}
		s[i] = hi<<4 | lo
	}
	return s, true
}

// purpose is the last line of a note's text. It keeps a checkpoint, which anyone can copy out of
// the log, from passing for the head.
type purpose string

const (
	asHead       purpose = "latest"
	asCheckpoint purpose = "checkpoint"
	// The writer removed the records before it.
	asCut purpose = "cut"
)

// state is the number of records and the hash of the last record's line.
type state struct {
	size uint64
	hash sum
}

// head is what a note signs: the chain, and the tree over the same lines.
type head struct {
	state
	root tlog.Hash
}

// maxNote bounds a note in bytes.
const maxNote = 4 << 10

// sign makes a note. Its length is the same for every size, so that a head is overwritten in place
// and a crash leaves no rest of a longer one.
func (h head) sign(why purpose, now time.Time, more []string, signers ...note.Signer) ([]byte,
	error) {
	size := strconv.FormatUint(h.size, 10)
	pad := strings.Repeat(".", 21-len(size))
	text := fmt.Sprintf("%s\n%s\n%s\n%s %s %s\nchain %s\n", signers[0].Name(), size, h.root, why,
		now.UTC().Format(timeLayout), pad, h.hash)
	for _, line := range more {
		text += line + "\n"
	}
	return note.Sign(&note.Note{Text: text}, signers...)
}

// fromBase64 accepts the only spelling of bytes: Go's decoder, strict or not, ignores line ends.
func fromBase64(text string) ([]byte, error) {
	if strings.ContainsAny(text, "\r\n") {
		return nil, errBase64
	}
	return base64.StdEncoding.Strict().DecodeString(text)
}

var errBase64 = errors.New("an end of a line in base64")

var errNote = errors.New("not a note of this log")

// openNote checks a note's signature and form.
func openNote(msg []byte, keys note.Verifiers, why purpose) (head, error) {
	h, more, err := openLong(msg, keys, why)
	if err == nil && len(more) > 0 {
		err = errNote
	}
	return h, err
}

// openLong is openNote for a note with further lines.
func openLong(msg []byte, keys note.Verifiers, why purpose) (head, []string, error) {
	n, err := note.Open(msg, keys)
	if err != nil {
		return head{}, nil, err
	}
	for _, sig := range slices.Concat(n.Sigs, n.UnverifiedSigs) {
		if _, err := fromBase64(sig.Base64); err != nil {
			// note.Open accepts several spellings of one signature.
			return head{}, nil, errNote
		}
	}
	lines := strings.Split(n.Text, "\n")
	if len(lines) < 6 || lines[0] != n.Sigs[0].Name || !strings.HasPrefix(lines[3],
		string(why)+" ") {
		return head{}, nil, errNote
	}
	size, err := strconv.ParseUint(lines[1], 10, 63)
	root, rootErr := tlog.ParseHash(lines[2])
	chain, named := strings.CutPrefix(lines[4], "chain ")
	hash, ok := parseSum([]byte(chain))
	if err != nil || rootErr != nil || !named || !ok || strconv.FormatUint(size, 10) != lines[1] ||
		root.String() != lines[2] {
		return head{}, nil, errNote
	}
	return head{state{size, hash}, root}, lines[5 : len(lines)-1], nil
}

// verifiers parses public keys, one a line, as in audit.pub.
func verifiers(pub string) (note.Verifiers, error) {
	var list []note.Verifier
	for line := range strings.Lines(pub) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		v, err := note.NewVerifier(line)
		if err != nil {
			return nil, fmt.Errorf("%w: public key: %w", ErrKey, err)
		}
		list = append(list, v)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%w: no public key", ErrKey)
	}
	return note.VerifierList(list...), nil
}
