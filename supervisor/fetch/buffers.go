package fetch

import (
	"bufio"
	"io"
	"sync"
)

// bufferSize is the size of one read or write of a body, in bytes.
const bufferSize = 32 << 10

// Pools of buffers, reused by all requests of one run: new ones caused most of the garbage
// collection.
var (
	writers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, bufferSize) }}
	pieces  = sync.Pool{New: func() any { return new([bufferSize]byte) }}
)

// writerTo returns a buffered writer to w. giveBack returns it to the pool.
func writerTo(w io.Writer) *bufio.Writer {
	b := writers.Get().(*bufio.Writer)
	b.Reset(w)
	return b
}

// giveBack drops the rest of a buffer and returns it to the pool.
func giveBack(b *bufio.Writer) {
	b.Reset(nil)
	writers.Put(b)
}
