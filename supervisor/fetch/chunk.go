package fetch

import (
	"bufio"
	"errors"
	"io"
	"strconv"
	"strings"
)

// chunked reads a chunked body in the one form on which all readers agree: no extensions, no
// trailers, CR LF after each line.
type chunked struct {
	r *bufio.Reader
	// left is the rest of the current chunk in bytes.
	left int64
	done bool
	err  error
}

var errChunk = bad("the chunks of the body are not plain chunks")

// maxChunkDigits bounds the hexadecimal size of a chunk.
const maxChunkDigits = 8

func (c *chunked) Read(p []byte) (int, error) {
	if c.err == nil && c.left == 0 && !c.done {
		c.err = c.next()
	}
	switch {
	case c.err != nil:
		return 0, c.err
	case c.done:
		return 0, io.EOF
	}
	n, err := c.r.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	if c.left == 0 && err == nil {
		err = c.expect("\r\n")
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	c.err = err
	return n, err
}

func (c *chunked) next() error {
	line, err := c.line()
	if err != nil {
		return err
	}
	if line == "" || len(line) > maxChunkDigits || strings.Trim(line,
		"0123456789abcdefABCDEF") != "" {
		return errChunk
	}
	// Eight digits always fit.
	c.left, _ = strconv.ParseInt(line, 16, 64)
	if c.left == 0 {
		c.done = true
		return c.expect("\r\n")
	}
	return nil
}

// line reads one line without its end.
func (c *chunked) line() (string, error) {
	var out []byte
	for {
		b, err := c.r.ReadByte()
		if err != nil {
			return "", noEOF(err)
		}
		if b == '\r' {
			if b, err = c.r.ReadByte(); err != nil {
				return "", noEOF(err)
			}
			if b != '\n' {
				return "", errChunk
			}
			return string(out), nil
		}
		if out = append(out, b); len(out) > maxChunkDigits {
			return "", errChunk
		}
	}
}

func (c *chunked) expect(text string) error {
	for i := range len(text) {
		b, err := c.r.ReadByte()
		if err != nil {
			return noEOF(err)
		}
		if b != text[i] {
			return errChunk
		}
	}
	return nil
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
