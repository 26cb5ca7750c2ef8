package shell

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"strings"
)

// maxFrames bounds the stack of the parser, which calls itself for each level of a script: some
// 2000 levels. Go ends the whole program where a stack passes 1 GB, and nothing recovers from that.
const maxFrames = 20_000

// depthReader passes a script to the parser, a little at a time. It fails if it is called from
// deeper on the stack than maxFrames.
type depthReader struct {
	text *strings.Reader
	// That the parser has come to.
	line int
}

func (r *depthReader) Read(p []byte) (int, error) {
	var frame [1]uintptr
	if runtime.Callers(maxFrames, frame[:]) > 0 {
		return 0, depthError(r.line)
	}
	// A parser that took all at once would not come back before it is too deep.
	n, err := r.text.Read(p[:min(len(p), 1024)])
	r.line += bytes.Count(p[:n], []byte("\n"))
	return n, err
}

var _ io.Reader = (*depthReader)(nil)

// depthError is the line at which a script is nested too deeply.
type depthError int

func (e depthError) Error() string {
	return fmt.Sprintf("the script is nested too deeply at line %d: write it in fewer levels",
		int(e))
}
