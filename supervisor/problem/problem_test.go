package problem

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/jail-sandbox/jail/jail/launch"
)

// TestHintOf: jail takes the fault upon itself only where the kernel has not said more.
func TestHintOf(t *testing.T) {
	for errno, words := range map[syscall.Errno]string{
		syscall.ENOSPC: "make room", syscall.EMFILE: "short of", syscall.EROFS: "disk",
		syscall.EUCLEAN: "disk", syscall.EBADMSG: "disk",
		syscall.EACCES: "noexec",
		syscall.EPERM:  "rights", syscall.ENOENT: "the path", syscall.ELOOP: "the path",
		syscall.EISDIR: "the path",
	} {
		hint := New(Failed, "x").WithCause(&os.PathError{Op: "open", Path: "/x", Err: errno}).Hint
		if !strings.Contains(hint, words) || strings.Contains(hint, "fault of jail's own") {
			t.Errorf("%v: %s", errno, hint)
		}
	}
	if hint := New(Failed, "x").WithCause(errors.New("x")).Hint; !strings.Contains(hint,
		"fault of jail's own") {
		t.Errorf("nothing is known: %s", hint)
	}
}

// TestShort: an error names what the host is short of, and no other error is taken for that.
func TestShort(t *testing.T) {
	for _, c := range []struct {
		err error
		// In the message; "" is not short.
		want string
	}{
		{&fs.PathError{Op: "open", Path: "/lib/x", Err: syscall.EMFILE},
			"it has as many files open as it may"},
		{&Error{Code: NotFound, Err: fmt.Errorf("x: %w", syscall.ENFILE)},
			"the host has as many files open"},
		{&fs.PathError{Op: "fork/exec", Path: "/x/jail-shim", Err: syscall.EAGAIN},
			"as many processes"},
		{New(Failed, "x").WithCause(&launch.LayerError{Layer: "user namespace", Reason: "clone",
			Errno: syscall.EAGAIN}), "as many processes"},
		{fmt.Errorf("%w: it died", ErrProcesses), "as many processes"},
		{&fs.PathError{Op: "mount", Path: "/x", Err: syscall.ENOMEM}, "no memory left (mount /x"},
		{&fs.PathError{Op: "open", Path: "/leased", Err: syscall.EAGAIN}, ""},
		{&launch.LayerError{Layer: "mount", Reason: "x", Errno: syscall.EPERM}, ""},
		{&launch.LayerError{Layer: "mount", Reason: "x"}, ""},
	} {
		e := From(c.err)
		if busy := e.Code == Busy; busy != (c.want != "") || busy && !strings.Contains(e.Message,
			c.want) {
			t.Errorf("%v: %s, %q, want %q", c.err, e.Code, e.Message, c.want)
		}
	}
}
