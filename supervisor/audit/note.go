package audit

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// sum is the SHA-256 of a line; of no bytes before record 1.
type sum [sha256.Size]byte

const sumPrefix = "sha256:"

func (s sum) String() string { return sumPrefix + hex.EncodeToString(s[:]) }

func noLine() sum { return sha256.Sum256(nil) }

// parseSum parses a sum. It accepts only the spelling that String returns.
func parseSum(text []byte) (s sum, ok bool) {
	text, ok = bytes.CutPrefix(text, []byte(sumPrefix))
	if !ok || len(text) != 2*len(s) || bytes.ContainsAny(text, "ABCDEF") {
		return s, false
	}
	_, err := hex.Decode(s[:], text)
	return s, err == nil
}

// purpose is a word in a note that says what the note is for. It keeps a checkpoint, which anyone
// can copy from the log, from being accepted as the head.
type purpose string

const (
	asHead       purpose = "latest"
	asCheckpoint purpose = "checkpoint"
	// asCut: the records before the note's state were pruned.
	asCut purpose = "cut"
)

// state is a state of the log: the number of records and the hash of the last one's line.
type state struct {
	size uint64
	hash sum
}

// head is the content of a signed note: a state, and the root of the tree over the same lines.
type head struct {
	state
	root tlog.Hash
}

// maxNote bounds a note in bytes.
const maxNote = 4 << 10

// sign returns the signed note of h. Its length does not depend on the size, so that a head can be
// overwritten in place and a crash leaves no rest of a longer one. more has further lines.
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

// fromBase64 decodes text. It rejects line ends, which Go's decoder ignores even if strict.
func fromBase64(text string) ([]byte, error) {
	if strings.ContainsAny(text, "\r\n") {
		return nil, errBase64
	}
	return base64.StdEncoding.Strict().DecodeString(text)
}

var errBase64 = errors.New("an end of a line in base64")

var errNote = errors.New("not a note of this log")

// openNote verifies a note's signature, format and purpose, and returns its head.
func openNote(msg []byte, keys note.Verifiers, why purpose) (head, error) {
	h, more, err := openLong(msg, keys, why)
	if err == nil && len(more) > 0 {
		err = errNote
	}
	return h, err
}

// openLong is openNote for a note that may have further lines, which it returns.
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

// verifiers parses the public keys of a log, one a line, as in audit.pub.
func verifiers(pub string) (note.Verifiers, error) {
	list, err := keyLines(pub, "no public key", func(line string) (note.Verifier, error) {
		v, err := note.NewVerifier(line)
		if err != nil {
			err = fmt.Errorf("%w: public key: %w", ErrKey, err)
		}
		return v, err
	})
	if err != nil {
		return nil, err
	}
	return note.VerifierList(list...), nil
}

// keyLines parses keys, one a line. none is the error text for a text without keys.
func keyLines[T any](text, none string, parse func(line string) (T, error)) (list []T, err error) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		key, err := parse(line)
		if err != nil {
			return nil, err
		}
		list = append(list, key)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%w: %s", ErrKey, none)
	}
	return list, nil
}

// Head is the content of a log's signed head.
type Head struct {
	Origin string // the log's name
	Size   uint64 // records
	// Chain is the hash of the last record's line, "sha256:…".
	Chain string
	// Note is the signed note as read.
	Note []byte
}

// ReadHead reads the head of the log in dir. It does not verify the signature. That needs the key,
// and is done by [Verify] when the head is used as an anchor.
func ReadHead(dir string) (Head, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Head{}, err
	}
	defer root.Close()
	// A writer may be overwriting the head.
	for range followHead {
		text, err := readSmall(root, headFile)
		if err != nil {
			return Head{}, err
		}
		if h, err := parseHead(text); err == nil {
			return h, nil
		}
	}
	return Head{}, errNote
}

func parseHead(text []byte) (Head, error) {
	origin, _, _ := bytes.Cut(text, []byte("\n"))
	h, err := openAny(text, anyKey{})
	if err != nil {
		return Head{}, err
	}
	return Head{string(origin), h.size, h.hash.String(), text}, nil
}

// openAny verifies a note that is a head or a checkpoint.
func openAny(text []byte, keys note.Verifiers) (head, error) {
	for _, why := range []purpose{asHead, asCheckpoint} {
		if h, _, err := openLong(text, keys, why); err == nil {
			return h, nil
		}
	}
	return head{}, errNote
}

// anyKey is a note.Verifier that accepts every signature, for reading the text of a note.
type anyKey struct {
	name string
	hash uint32
}

func (anyKey) Verifier(name string, hash uint32) (note.Verifier, error) {
	return anyKey{name, hash}, nil
}
func (k anyKey) Name() string              { return k.name }
func (k anyKey) KeyHash() uint32           { return k.hash }
func (anyKey) Verify(msg, sig []byte) bool { return true }

// ErrAnchor is wrapped by errors for an anchor that is not a signed note.
var ErrAnchor = errors.New("no anchor")

// Anchor is a head that was kept outside the log.
type Anchor struct {
	Head
	// From is the place where it was kept, for messages.
	From string
}

// ParseAnchors parses a text of notes, one after the other, or of lines of JSON with a note in
// "note", as a syslog collector writes them. from names the text in errors.
func ParseAnchors(from string, text []byte) ([]Anchor, error) {
	var all []Anchor
	for number, n := range splitNotes(text) {
		h, err := parseHead(n)
		if err != nil {
			return nil, fmt.Errorf("%w: %s: note %d is none", ErrAnchor, from, number+1)
		}
		all = append(all, Anchor{h, from})
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: %s holds none", ErrAnchor, from)
	}
	return all, nil
}

// signature starts a signature line of a note.
const signature = "\u2014 "

func splitNotes(text []byte) (notes [][]byte) {
	var now []byte
	signed := false
	end := func() {
		if len(bytes.TrimSpace(now)) > 0 {
			notes = append(notes, now)
		}
		now, signed = nil, false
	}
	for line := range bytes.Lines(text) {
		if n, ok := noteInJSON(line); ok {
			end()
			notes = append(notes, n)
			continue
		}
		if is := bytes.HasPrefix(line, []byte(signature)); !is && signed {
			end()
		} else {
			signed = is
		}
		if len(now) == 0 && len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		now = append(now, line...)
	}
	end()
	return notes
}

// noteInJSON returns the field "note" of a JSON object in the line, whatever text precedes the
// object.
func noteInJSON(line []byte) ([]byte, bool) {
	at := bytes.IndexByte(line, '{')
	if at < 0 {
		return nil, false
	}
	var o struct {
		Note string `json:"note"`
	}
	if json.NewDecoder(bytes.NewReader(line[at:])).Decode(&o) != nil || o.Note == "" {
		return nil, false
	}
	return []byte(o.Note), true
}

// anchors has the anchors to be compared with a log, and the results.
type anchors struct {
	left    []Anchor // by size
	checked int
	pruned  int
}

func newAnchors(list []Anchor) *anchors {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b Anchor) int { return cmp.Compare(a.Size, b.Size) })
	return &anchors{left: list}
}

// at compares the anchors with the size of v's current state with the log. A difference is a fault.
func (a *anchors) at(v *verifier) error {
	for len(a.left) > 0 && a.left[0].Size <= v.chain.size {
		it := a.left[0]
		a.left = a.left[1:]
		h, err := v.openAnchor(it)
		switch {
		case err != nil:
			return err
		// An anchor is older than the state only at the first kept record.
		case h.size < v.chain.size:
			a.pruned++
			continue
		case h.state != v.chain || h.root != v.edge.root():
			return v.fault(h.size, altered,
				"anchor %s signs another history: the log was rebuilt, and it or a record before "+
					"it is not what it was", it.From)
		}
		a.checked++
	}
	return nil
}

// end returns a fault if anchors are left at the end of the log: they have more records.
func (a *anchors) end(v *verifier) error {
	if len(a.left) == 0 {
		return nil
	}
	it := a.left[len(a.left)-1]
	if _, err := v.openAnchor(it); err != nil {
		return err
	}
	return v.fault(v.chain.size+1, missing, "the log ends with record %d, and anchor %s has %d",
		v.chain.size, it.From, it.Size)
}

// openAnchor verifies an anchor's signature. An anchor of another origin is a fault: the log was
// replaced, or the anchor is another log's.
func (v *verifier) openAnchor(a Anchor) (head, error) {
	if h, err := openAny(a.Note, v.known); err == nil {
		return h, nil
	}
	if v.report.Origin != "" && a.Origin != v.report.Origin {
		return head{}, v.fault(max(a.Size, 1), missing,
			"anchor %s is of the log %s, and this one is %s: it was replaced, or the anchor is "+
				"another host's", a.From, a.Origin, v.report.Origin)
	}
	return head{}, v.fault(max(a.Size, 1), unsigned, "anchor %s is not signed by a key of this log",
		a.From)
}
