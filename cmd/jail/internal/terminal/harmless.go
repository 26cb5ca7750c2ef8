package terminal

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// Harmless is a writer to a UTF-8 terminal for an untrusted tool. It removes what does more than
// show text: operating system commands (titles, clipboard, palettes), device control, application
// and privacy strings, window operations, keyboard and mouse modes, and requests that a terminal
// answers by typing. Of control sequences it passes only known ones: colours, cursor, screen. See
// ECMA-48 and XTerm Control Sequences.
type Harmless struct {
	io.Writer
	state state
	// the bytes of an incomplete sequence or character
	held []byte
	out  []byte
}

type state uint8

const (
	inText state = iota
	// within a character of several bytes
	inRune
	// after ESC and its intermediate bytes
	afterEscape
	inSequence // after CSI
	// after OSC, DCS, SOS, PM, APC: removed until its end
	inString
	inStringHigh // in a string, after 0xC2
	inStringEsc  // in a string, after ESC
)

// maxHeld is the longest control sequence that is shown; terminals know none that is longer.
const maxHeld = 256

const (
	enquiry, bell, cancel, substitute, escape = 0x05, 0x07, 0x18, 0x1a, 0x1b
	csi, st                                   = 0x9b, 0x9c
)

// stringStarts are the C1 controls that begin a string: DCS, SOS, OSC, PM, APC. Terminals answer
// decid.
var stringStarts = []byte{0x90, 0x98, 0x9d, 0x9e, 0x9f}

const decid = 0x9a

// Write writes p without the removed sequences. It returns len(p) or an error.
func (h *Harmless) Write(p []byte) (int, error) {
	h.out = h.out[:0]
	for _, c := range p {
		h.take(c)
	}
	if len(h.out) > 0 {
		if _, err := h.Writer.Write(h.out); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

func (h *Harmless) take(c byte) {
	switch h.state {
	case inString, inStringHigh, inStringEsc:
		h.within(c)
	case afterEscape:
		h.escaped(c)
	case inSequence:
		h.sequence(c)
	case inRune:
		h.rune(c)
	default:
		h.text(c)
	}
}

// text handles a byte outside of any sequence or character.
func (h *Harmless) text(c byte) {
	switch {
	case c == enquiry:
	case c == escape:
		h.begin(afterEscape, c)
	case c < utf8.RuneSelf:
		h.out = append(h.out, c)
	case c < 0xa0:
		// It is no UTF-8: a terminal without UTF-8 takes it for a control.
		h.control(c, c)
	default:
		h.state = inRune
		h.rune(c)
	}
}

// rune takes a byte of a character of several bytes. What is none is shown as the replacement
// character, so that nothing is left of it that terminals read in different ways.
func (h *Harmless) rune(c byte) {
	h.held = append(h.held, c)
	if !utf8.FullRune(h.held) {
		return
	}
	text := slices.Clone(h.held)
	h.end(false)
	switch r, size := utf8.DecodeRune(text); {
	case r == utf8.RuneError && size <= 1:
		h.out = utf8.AppendRune(h.out, utf8.RuneError)
		for _, c := range text[1:] {
			h.take(c)
		}
	case r < 0xa0:
		h.control(byte(r), text...)
	default:
		h.out = append(h.out, text...)
	}
}

// control handles a C1 control, which was written as the bytes raw.
func (h *Harmless) control(c byte, raw ...byte) {
	switch {
	case c == csi:
		h.begin(inSequence, raw...)
	case slices.Contains(stringStarts, c):
		h.state = inString
	case c == st, c == decid:
	default:
		h.out = append(h.out, raw...)
	}
}

func (h *Harmless) begin(s state, raw ...byte) { h.state, h.held = s, append(h.held[:0], raw...) }

// end returns to text. The held bytes are written if show is set, else removed.
func (h *Harmless) end(show bool) {
	if show {
		h.out = append(h.out, h.held...)
	}
	h.state, h.held = inText, h.held[:0]
}

// interrupted handles a control character within a sequence, and reports whether c is one.
func (h *Harmless) interrupted(c byte) bool {
	switch {
	case c == escape:
		h.begin(afterEscape, c)
	case c == cancel, c == substitute:
		h.end(false)
	case c == enquiry:
	case c < ' ':
		// It takes effect at once, and the sequence goes on.
		h.out = append(h.out, c)
	default:
		return false
	}
	return true
}

// escaped handles a byte after ESC.
func (h *Harmless) escaped(c byte) {
	first := len(h.held) == 1
	switch {
	case h.interrupted(c):
	case c >= ' ' && c < '0' && len(h.held) < maxHeld:
		// an intermediate byte of an escape sequence
		h.held = append(h.held, c)
	case c >= 0x7f:
		h.end(false)
		h.text(c)
	case first && c == '[':
		h.held, h.state = append(h.held, c), inSequence
	case first && bytes.IndexByte([]byte("PX]^_k"), c) >= 0:
		// k begins a title of screen
		h.end(false)
		h.state = inString
	default:
		h.held = append(h.held, c)
		h.end(isShownEscape(string(h.held[1:])))
	}
}

// sequence handles a byte of a control sequence.
func (h *Harmless) sequence(c byte) {
	switch {
	case h.interrupted(c):
	case c >= 0x80:
		h.end(false)
		h.text(c)
	case c >= '@' && c < 0x7f:
		h.held = append(h.held, c)
		h.end(len(h.held) <= maxHeld && isShown(string(h.held)))
	case len(h.held) <= maxHeld:
		h.held = append(h.held, c)
	}
}

// Final bytes of the control sequences that are passed: cursor, erasing, inserting, deleting,
// scrolling, tabs, margins and colours. A terminal answers none of them.
const (
	shownFinals        = "@ABCDEFGHIJKLMPSTXZ`abdefgmrsu"
	shownPrivateFinals = "JK"
	// pairs: scroll, shape of the cursor, reset, protection
	shownIntermediates = " @ A q!p\"q"
)

// shownModes are the DEC modes that change only the display. Others change what the terminal types,
// such as mouse and focus reports.
var shownModes = []string{"3", "5", "6", "7", "12", "25", "45", "47", "1047", "1048", "1049",
	"2026"}

// isShown reports whether a control sequence is known to change only the display. CSI is ESC [ or
// U+009B; the single byte is no UTF-8.
func isShown(sequence string) bool {
	sequence, short := strings.CutPrefix(sequence, "\u009b")
	sequence, long := strings.CutPrefix(sequence, "\x1b[")
	if short == long || sequence == "" {
		return false
	}
	body, final := sequence[:len(sequence)-1], sequence[len(sequence)-1]
	mode := final == 'h' || final == 'l'
	if rest, private := strings.CutPrefix(body, "?"); private {
		if mode {
			return !slices.ContainsFunc(strings.Split(rest, ";"),
				func(m string) bool { return !slices.Contains(shownModes, m) })
		}
		return isParameters(rest) && strings.IndexByte(shownPrivateFinals, final) >= 0
	}
	if mode {
		// Mode 4 is the insert mode.
		return body == "4"
	}
	if n := len(body) - 1; n >= 0 && body[n] < '0' {
		for at := 0; at < len(shownIntermediates); at += 2 {
			if shownIntermediates[at:at+2] == string([]byte{body[n], final}) {
				return isParameters(body[:n])
			}
		}
		return false
	}
	return isParameters(body) && strings.IndexByte(shownFinals, final) >= 0
}

func isParameters(text string) bool { return strings.Trim(text, "0123456789;:") == "" }

// isShownEscape reports whether an escape sequence, without ESC, changes only the display: cursor,
// tabs, reset, character sets. ESC % is not passed: it would make the terminal take bytes of UTF-8
// for controls.
func isShownEscape(sequence string) bool {
	if len(sequence) == 2 {
		return strings.IndexByte("()*+-./#", sequence[0]) >= 0
	}
	return len(sequence) == 1 && strings.Contains("78=>DEHMNOcno|}~", sequence)
}

// within handles a byte of a string, all of which is removed.
func (h *Harmless) within(c byte) {
	was := h.state
	h.state = inString
	switch {
	case c == cancel, c == substitute, c == bell, c == st && was != inString, was == inStringEsc &&
		c == '\\':
		h.state = inText
	case c == escape:
		h.state = inStringEsc
	case was == inStringEsc:
		// The string was interrupted by another escape sequence.
		h.begin(afterEscape, escape)
		h.escaped(c)
	case c == 0xc2:
		h.state = inStringHigh
	}
}
