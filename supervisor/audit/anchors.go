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

// Head is the content of a log's signed head.
type Head struct {
	Origin string // the log's name
	Size   uint64 // records
	// hash of the last one, "sha256:…"
	Chain string
	// The signed note as it is.
	Note []byte
}

// ReadHead reads the head of the log in dir. It does not check the signature: a keeper of the
// anchor can do so later, with the key.
func ReadHead(dir string) (Head, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Head{}, err
	}
	defer root.Close()
	// The head may be half overwritten.
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
	for _, why := range []purpose{asHead, asCheckpoint} {
		h, _, err := openLong(text, anyKey{}, why)
		if err == nil {
			return Head{string(origin), h.size, h.hash.String(), text}, nil
		}
	}
	return Head{}, errNote
}

// anyKey accepts every signature, to read the text of a note.
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

// ErrAnchor is returned for an anchor that is no signed note.
var ErrAnchor = errors.New("no anchor")

// Anchor is a head that was kept away from the log.
type Anchor struct {
	Head
	// Where it was kept, for messages.
	From string
}

// ParseAnchors parses a text with any number of notes, one after the other, or with lines of JSON
// that have a note in "note", as a syslog collector writes them.
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

// signature begins a signature line.
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

// noteInJSON returns the note in a line that holds a JSON object with one, whatever precedes the
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

// anchors are compared with a log.
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

// at compares the anchors of the current size with the log.
func (a *anchors) at(v *verifier) error {
	for len(a.left) > 0 && a.left[0].Size <= v.chain.size {
		it := a.left[0]
		a.left = a.left[1:]
		h, err := v.openAnchor(it)
		switch {
		case err != nil:
			return err
		// Only before the first kept record.
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

// end handles the anchors that are left at the end of the log.
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

// openAnchor verifies the signature. An anchor of another log belongs to an earlier log at this
// place.
func (v *verifier) openAnchor(a Anchor) (head, error) {
	for _, why := range []purpose{asHead, asCheckpoint} {
		if h, _, err := openLong(a.Note, v.known, why); err == nil {
			return h, nil
		}
	}
	if v.report.Origin != "" && a.Origin != v.report.Origin {
		return head{}, v.fault(max(a.Size, 1), missing,
			"anchor %s is of the log %s, and this one is %s: it was replaced, or the anchor is "+
				"another host's", a.From, a.Origin, v.report.Origin)
	}
	return head{}, v.fault(max(a.Size, 1), unsigned, "anchor %s is not signed by a key of this log",
		a.From)
}
