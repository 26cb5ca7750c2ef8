package exit_test

import (
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
)

// A full disk is that of the file which the caller named, and none of jail's own.
func TestFullDisk(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT} {
		e := exit.About(&fs.PathError{Op: "write", Path: "x", Err: errno}, "file x")
		if e.Exit() != 125 || !strings.HasPrefix(e.Message, "file x: ") ||
			e.Hint != "make room on the disk of the file" {
			t.Errorf("%v: %d, %q, hint %q", errno, e.Exit(), e.Message, e.Hint)
		}
	}
}
