package stdio

import (
	"bytes"
	"io"
	"strings"
	"unicode/utf8"
)

// Kept is the beginning of a stream.
type Kept struct {
	bytes.Buffer
	// Most is the most that is kept in bytes; Cut says that there was more.
	Most int
	Cut  bool
}

// Write keeps what there is room for. It never fails: the tool writes on.
func (k *Kept) Write(p []byte) (int, error) {
	n := min(len(p), k.Most-k.Len())
	k.Cut = k.Cut || n < len(p)
	k.Buffer.Write(p[:n])
	return len(p), nil
}

// ReadFrom hides that of the buffer, which knows no bound.
func (k *Kept) ReadFrom(r io.Reader) (int64, error) { return io.Copy(struct{ io.Writer }{k}, r) }

// String is the text, without half a character at a cut.
func (k *Kept) String() string { return strings.ToValidUTF8(k.Buffer.String(), "\uFFFD") }

// IsText reports whether the stream can be shown as text.
func (k *Kept) IsText() bool {
	return !bytes.ContainsRune(k.Bytes(), 0) && (utf8.Valid(k.Bytes()) || k.Cut)
}
