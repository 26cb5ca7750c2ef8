package fetch

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// TestScrubberStreams: what cannot be the beginning of the credential passes at once, as the events
// of a model must.
func TestScrubberStreams(t *testing.T) {
	secret := Secret{Kind: secretBearer, Value: "tok-0123456789", Scrub: true}
	r, w := io.Pipe()
	defer r.Close()
	s := &scrubber{r: r, forms: secret.forms()}
	for sent, want := range map[string]string{"data: 1\n\n": "data: 1\n\n",
		// The end could be a beginning of the credential.
		"data: tok": "data: "} {
		go io.WriteString(w, sent)
		got := make([]byte, 100)
		n, err := s.Read(got)
		if err != nil || string(got[:n]) != want {
			t.Errorf("of %q came %q, %v", sent, got[:n], err)
		}
		// Drop what is held, so that the order of the cases does not matter.
		s.buf = nil
	}
}

// TestScrubberFindsPieces: no form of the credential passes, wherever the stream is cut.
func TestScrubberFindsPieces(t *testing.T) {
	// Its beginning stands in it again, and ends two of its forms.
	secret := Secret{Kind: secretBasic, User: "u", Value: "ab+abab+abc", Scrub: true}
	for _, form := range secret.forms() {
		// Beginnings that go on otherwise stand before it.
		text := "a ab+ab " + string(form[:len(form)-1]) + " ab+" + string(form) + " end"
		for cut := range len(text) {
			s := &scrubber{r: io.MultiReader(strings.NewReader(text[:cut]),
				iotest.OneByteReader(strings.NewReader(text[cut:]))), forms: secret.forms()}
			out, err := io.ReadAll(s)
			if err != nil || len(out) != len(text) || !strings.HasSuffix(string(out), " end") ||
				!strings.HasPrefix(string(out), "a ab+ab ") || !s.hit ||
				strings.Contains(string(out), string(form)) {
				t.Fatalf("%s cut at %d: %q, %v", form, cut, out, err)
			}
		}
	}
}
