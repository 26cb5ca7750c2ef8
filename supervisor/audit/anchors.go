package audit

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/mod/sumdb/note"
)

// A Head is what a log's signed head says of it.
type Head struct {
	Origin string // the log's name
	Size   uint64 // records
	Chain  string // hash of the last one, "sha256:…"
	Note   []byte // the signed note as it is
}

// ReadHead reads the head of the log in dir. Its signature is not checked: whoever keeps it as an anchor can do so later, with the key.
func ReadHead(dir string) (Head, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Head{}, err
	}
	defer root.Close()
	for range followHead { // it may just be overwritten
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
	for _, why := range []purpose{asHead, asCheckpoint} {
		h, _, err := openLong(text, anyKey{}, why)
		if err == nil {
			return Head{string(origin), h.size, h.hash.String(), text}, nil
		}
	}
	return Head{}, errNote
}

// anyKey takes every signature: only to read what a note says.
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

// ErrAnchor says that an anchor is no signed note.
var ErrAnchor = errors.New("no anchor")

// An Anchor is a head that was kept away from the log.
type Anchor struct {
	Head
	From string // where it was kept, for messages
}

// ParseAnchors reads the notes of a text that holds any number of them, one behind the other, or as JSON texts named "note" in lines of their own,
// as a collector of syslog writes them down.
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

// signature begins a line of a signature.
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

// noteInJSON finds a note in a line that holds a JSON object with one, whatever stands before it.
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

// anchors are the ones that a log is held against.
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

// at holds the anchors of the size that the log has come to against it.
func (a *anchors) at(v *verifier) error {
	for len(a.left) > 0 && a.left[0].Size <= v.chain.size {
		it := a.left[0]
		a.left = a.left[1:]
		h, err := v.openAnchor(it)
		switch {
		case err != nil:
			return err
		case h.size < v.chain.size: // only before the first record that is still there
			a.pruned++
			continue
		case h.state != v.chain || h.root != v.edge.root():
			return v.fault(h.size, Altered, "anchor %s signs another history: the log was rebuilt, and it or a record before it is not what it was", it.From)
		}
		a.checked++
	}
	return nil
}

// end is for the end of the log.
func (a *anchors) end(v *verifier) error {
	if len(a.left) == 0 {
		return nil
	}
	it := a.left[len(a.left)-1]
	if _, err := v.openAnchor(it); err != nil {
		return err
	}
	return v.fault(v.chain.size+1, Missing, "the log ends with record %d, and anchor %s has %d", v.chain.size, it.From, it.Size)
}

// openAnchor checks who signed it. An anchor of another log is one of what was here before.
func (v *verifier) openAnchor(a Anchor) (head, error) {
	for _, why := range []purpose{asHead, asCheckpoint} {
		if h, _, err := openLong(a.Note, v.known, why); err == nil {
			return h, nil
		}
	}
	if v.report.Origin != "" && a.Origin != v.report.Origin {
		return head{}, v.fault(max(a.Size, 1), Missing, "anchor %s is of the log %s, and this one is %s: it was replaced, or the anchor is another host's", a.From, a.Origin, v.report.Origin)
	}
	return head{}, v.fault(max(a.Size, 1), Unsigned, "anchor %s is not signed by a key of this log", a.From)
}
