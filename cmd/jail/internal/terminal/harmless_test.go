package terminal

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"
)

func harmlessly(t testing.TB, pieces ...string) string {
	t.Helper()
	var out bytes.Buffer
	h := &Harmless{Writer: &out}
	for _, p := range pieces {
		if n, err := h.Write([]byte(p)); n != len(p) || err != nil {
			t.Fatalf("%q: %d, %v", p, n, err)
		}
	}
	return out.String()
}

// TestHarmless gives sequences to the filter whole and byte by byte.
func TestHarmless(t *testing.T) {
	for text, want := range map[string]string{
		"plain\r\n\ttext\a\b":                 "plain\r\n\ttext\a\b",
		"\x1b[1;31mred\x1b[0m\x1b[2K\x1b[H":   "\x1b[1;31mred\x1b[0m\x1b[2K\x1b[H",
		"\x1b[?25l\x1b[?1049h\x1b[2 q\x1b[!p": "\x1b[?25l\x1b[?1049h\x1b[2 q\x1b[!p",
		"\x1b(B\x1b7\x1b8\x1b[s\x1b[u\x1b[3S": "\x1b(B\x1b7\x1b8\x1b[s\x1b[u\x1b[3S",
		"é€😀\u201d":                           "é€😀\u201d",

		"a\x1b]0;title\ab":                           "ab",
		"a\x1b]2;title\x1b\\b":                       "ab",
		"a\x1b]52;c;cm0gLXJmIC8=\ab":                 "ab",
		"a\x1b]11;?\x1b\\b":                          "ab",
		"a\u009d0;title\u009cb":                      "ab",
		"a\x9d0;title\ab":                            "ab",
		"a\x1bktitle\x1b\\b":                         "ab",
		"a\x1bP$qm\x1b\\b\x1b_G\x1b\\c\x1b^x\x1b\\d": "abcd",
		"a\x1b]0;broken off\x1b[31mb":                "a\x1b[31mb",
		"a\x1b]0;given up\x18b":                      "ab",
		"a\x1b]0;never ends":                         "a",

		"a\x1b[cb\x1b[>0cc\x1b[=c\u009bcd":         "abcd",
		"a\x1b[6nb\x1b[?6n\x1b[5n":                 "ab",
		"a\x1b[21tb\x1b[8;9;9t\x1b[22;0t":          "ab",
		"a\x1b[?25$pb\x1b[1$w\x1b[>q\x1b[?u\x1b[x": "ab",
		// Reports of focus and mouse, the return key.
		"a\x1b[?1004hb\x1b[?1000;25h\x1b[20h": "ab",
		// A printer, colours, state, keys, the locator.
		"a\x1b[5ib\x1b[#R\x1b[$u\x1b[=1u\x1b['|":       "ab",
		"a\x1b%@b\x1b Gc\x1b[1>cd\x1b[?2ld":            "abcdd",
		"\x1b[38:2::1:2:3mx\x1b[?2J\x1b[4h\x1b#8\x1bM": "\x1b[38:2::1:2:3mx\x1b[?2J\x1b[4h\x1b#8\x1bM",
		"a\x1b[[Ab\u009b[c\x9b31md\u009b1me":           "aAbcd\u009b1me",
		"a\x05b\x1bZc\u009ad":                          "abcd",
		"a\x1b[3\x056n\x1b[\nnb":                       "a\nb",
		"a\x1b[3\x1b[cb":                               "ab",
		"a\x1b[" + strings.Repeat("1;", 400) + "mb":    "ab",

		"a\xc2": "a",
		// Half of a character, whose rest begins a string without UTF-8.
		"\xe2\x9d\x1b[cb":  "\ufffdb",
		"\xe0\x9d0;x\ab":   "\ufffdb",
		"\xff\xc0\x9dx\ab": "\ufffd\ufffdb",
	} {
		if got := harmlessly(t, text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
		if got := harmlessly(t, strings.Split(text, "")...); got != want && utf8.ValidString(text) {
			t.Errorf("%q in pieces: got %q, want %q", text, got, want)
		}
	}
}

// FuzzHarmless: what is shown has none of what is left out, however it is cut; shown once more it
// is the same.
func FuzzHarmless(f *testing.F) {
	f.Add([]byte("a\x1b]0;t\ab\x1b[6n\xc2\x9d\xe2\x80\x9d"), uint8(3))
	f.Fuzz(func(t *testing.T, text []byte, at uint8) {
		cut := min(int(at), len(text))
		got := harmlessly(t, string(text[:cut]), string(text[cut:]))
		if whole := harmlessly(t, string(text)); got != whole {
			t.Errorf("%q cut at %d: %q, whole %q", text, cut, got, whole)
		}
		for _, bad := range []string{"\x1b]", "\x1bP", "\x1b_", "\x1b^", "\x1bX", "\x1bZ", "\u009d",
			"\u0090", "\u009a", "\x05"} {
			if strings.Contains(got, bad) {
				t.Errorf("%q: %q has %q", text, got, bad)
			}
		}
		if again := harmlessly(t, got); again != got {
			t.Errorf("%q: shown %q, again %q", text, got, again)
		}
	})
}
