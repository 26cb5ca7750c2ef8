package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/term"
)

// print writes what a command was asked for. Output that could not be written whole is an error.
func (a *app) print(write func(w io.Writer) error) error {
	out := bufio.NewWriter(sink{a.stdout, "standard output"})
	if err := write(out); err != nil {
		return errors.Join(err, out.Flush())
	}
	return out.Flush()
}

// printAtOnce is print of what somebody waits for: each piece is seen as it is written.
func (a *app) printAtOnce(write func(w io.Writer) error) error {
	return write(sink{a.stdout, "standard output"})
}

// printJSON writes one value, indented, for people and programs alike.
func (a *app) printJSON(v any) error {
	return a.print(func(w io.Writer) error { return writeJSON(w, v, "  ") })
}

// show writes v as JSON where that was asked for, else as text.
func (a *app) show(asJSON bool, v any, text func(w io.Writer) error) error {
	if asJSON {
		return a.printJSON(v)
	}
	return a.print(text)
}

// writeJSON writes a value on a line of its own, or on several where indent says so. Characters that a terminal would not show
// as themselves are escapes in it, which mean the same.
func writeJSON(w io.Writer, v any, indent string) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(escapeJSON(b.Bytes()))
	return err
}

func escapeJSON(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		switch {
		case r < 0x7f || strconv.IsPrint(r):
			out = append(out, text[:n]...)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		text = text[n:]
	}
	return out
}

// sink names what could not be written to.
type sink struct {
	io.Writer
	name string
}

func (s sink) Write(p []byte) (int, error) {
	n, err := s.Writer.Write(p)
	if err != nil {
		err = failed(err, "", "%s: %v", s.name, cause(err))
	}
	return n, err
}

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// colour reports whether standard output takes colours, and wants them (no-color.org).
func (a *app) colour() bool {
	return a.getenv("NO_COLOR") == "" && a.getenv("TERM") != "dumb" && isTerminal(a.stdout)
}

// Colours, as terminals know them.
const (
	red   = "31"
	green = "32"
	amber = "33"
	cyan  = "36"
	bold  = "1"
)

// paint colours text if on.
func paint(on bool, colour, text string) string {
	if !on {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}
