package api

import (
	"bytes"
	"strings"

	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/stdio"
)

// maxPlain bounds the output that an answer without streams has of each stream, in bytes: it lies
// in the daemon's memory until the run has ended.
const maxPlain = 16 << 20

// unstreamed does a run whose client asks for no streams: it has no input, and its output is in the
// result. The run ends when the client goes away.
func unstreamed(do func(stdio.Streams) message.Result) message.Result {
	var out, errOut bounded
	res := do(stdio.Streams{In: strings.NewReader(""), Out: &out, Err: &errOut})
	res.Stdout, res.Stderr = out.kept.Bytes(), errOut.kept.Bytes()
	res.Truncated = res.Truncated || out.more || errOut.more
	return res
}

// bounded keeps the first maxPlain bytes that are written to it.
type bounded struct {
	kept bytes.Buffer
	more bool
}

func (b *bounded) Write(p []byte) (int, error) {
	room := maxPlain - b.kept.Len()
	b.more = b.more || len(p) > room
	b.kept.Write(p[:min(len(p), room)])
	return len(p), nil
}
