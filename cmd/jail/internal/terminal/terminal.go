// Package terminal writes to terminals: colours, lines of progress, raw mode, and a filter that
// passes only harmless control sequences.
package terminal

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
)

// Is reports whether a stream is a terminal.
func Is(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Colours are SGR parameters (ECMA-48 section 8.3.117).
const (
	Red   = "31"
	Green = "32"
	Amber = "33"
	Cyan  = "36"
	Bold  = "1"
)

// Paint returns text in a colour if on is set, else unchanged.
func Paint(on bool, colour, text string) string {
	if !on {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// Progress returns a function that shows the progress of a transfer; nil if w is no terminal.
func Progress(w io.Writer, what string) func(done, total int64) {
	if !Is(w) {
		return nil
	}
	var last time.Time
	return func(done, total int64) {
		if now := time.Now(); now.Sub(last) > 100*time.Millisecond || done == total {
			last = now
			fmt.Fprintf(w, "\r\x1b[K%.60s: %s of %s",
				output.Printable(what), output.Size(done), output.Size(total))
		}
	}
}

// ClearLine erases a line of progress.
func ClearLine(w io.Writer) {
	if Is(w) {
		fmt.Fprint(w, "\r\x1b[K")
	}
}
