package guest

import (
	"bytes"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/runners"
)

// KeepArg is the argument that makes jail-init, called by a shell in a jail, report the shell's
// environment and directory.
const KeepArg = "keep"

// keepFD is the descriptor to which Keep writes. Shells use free numbers from 10 on for their own.
const keepFD = 29

// Keep writes the working directory and the environment of this process to the descriptor that it
// was given for that. It returns the exit code.
func Keep() int {
	dir, err := syscall.Getwd()
	if err != nil {
		dir = ""
	}
	text := []byte(strings.Join(append([]string{dir}, os.Environ()...), "\x00") + "\x00\x00")
	for len(text) > 0 {
		n, err := syscall.Write(keepFD, text)
		if err != nil && err != syscall.EINTR {
			return 1
		}
		text = text[max(n, 0):]
	}
	return 0
}

// keeper reads the report of Keep. Any process of the jail can write to its descriptor.
type keeper struct {
	r, w *os.File
	text chan []byte
}

// newKeeper returns a keeper and adds its descriptor, keepFD, to start.
func newKeeper(start *syscall.ProcAttr) (*keeper, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	for len(start.Files) < keepFD {
		start.Files = append(start.Files, ^uintptr(0))
	}
	start.Files = append(start.Files, w.Fd())
	return &keeper{r, w, make(chan []byte, 1)}, nil
}

// begin starts to read until all copies of the descriptor are closed. Call it after the program has
// started.
func (k *keeper) begin() {
	k.w.Close()
	go func() {
		// On a deadline a complete report still counts.
		text, _ := io.ReadAll(io.LimitReader(k.r, runners.MaxKept+1))
		// Drain the rest, so that no writer blocks.
		_, _ = io.Copy(io.Discard, struct{ io.Reader }{k.r})
		k.text <- text
	}()
}

// keepWait is how long the end of the report may take once the program has ended. No process of the
// jail is left then, but one in another jail of the session may have been given the descriptor.
const keepWait = 5 * time.Second

// end returns the report of the shell, or nil without a valid one.
func (k *keeper) end() *runners.Kept {
	// Where the descriptor cannot be waited for with a bound, that is as before.
	_ = k.r.SetReadDeadline(time.Now().Add(keepWait))
	text := <-k.text
	if len(text) > runners.MaxKept {
		return &runners.Kept{TooLarge: true}
	}
	whole, ok := bytes.CutSuffix(text, []byte("\x00\x00"))
	if !ok {
		return nil
	}
	fields := strings.Split(string(whole), "\x00")
	return &runners.Kept{Cwd: fields[0], Env: fields[1:]}
}
