package fetch

import (
	"bufio"
	"io"
	"sync"
)

// bufferSize is how much of a message goes at once, in bytes.
const bufferSize = 32 << 10

// Buffers go from request to request, all of one run: new ones for each were most of what the collector had to do.
var (
	writers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, bufferSize) }}
	pieces  = sync.Pool{New: func() any { return new([bufferSize]byte) }}
)

// writerTo returns a buffer before w, which goes back by giveBack.
func writerTo(w io.Writer) *bufio.Writer {
	b := writers.Get().(*bufio.Writer)
	b.Reset(w)
	return b
}

// giveBack drops what is left in a buffer.
func giveBack(b *bufio.Writer) {
	b.Reset(nil)
	writers.Put(b)
}
