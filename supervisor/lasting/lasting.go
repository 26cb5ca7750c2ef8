// Package lasting starts daemons that outlive the command that needs them and end by themselves
// when they are idle.
package lasting

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/supervisor/calm"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

const (
	// Linger is how long such a daemon stays idle before it ends: long enough for the next command
	// of a script.
	Linger = 10 * time.Second
	// startBound is how long a daemon may take to answer, including the cleanup after an earlier
	// daemon.
	startBound = time.Minute
)

// Start starts the daemon program with args and waits until dial succeeds. If two are started at
// one time, one serves all clients. Its errors are of type *problem.Error.
func Start(ctx context.Context, socket, program string, args []string,
	dial func(context.Context) error) error {
	name := filepath.Base(program)
	said, err := os.CreateTemp("", name+"-")
	if err != nil {
		return failed(err, "", "no daemon can be started: %v", err)
	}
	defer said.Close()
	if err := os.Remove(said.Name()); err != nil {
		return failed(err, "", "no daemon can be started: %v", err)
	}
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Stderr = "/", said
	// Signals to the terminal's process group must not end it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := calm.Start(cmd); err != nil {
		return failed(err, "build or install "+name+" beside jail",
			"no daemon answers on %s, and %s cannot be started: %v", socket, program,
			problem.Cause(err))
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	ctx, cancel := context.WithTimeout(ctx, startBound)
	defer cancel()
	for {
		err := dial(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return failed(ctx.Err(), "",
				"the daemon that was started does not answer on %s: %v", socket, err)
		case <-ended:
			if dial(ctx) == nil {
				return nil
			}
			return lastWords(name, said)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// lastWords returns the error that a daemon printed when it could not start.
func lastWords(name string, said *os.File) error {
	// If this fails, the message is only less exact.
	text, _ := io.ReadAll(io.NewSectionReader(said, 0, 64<<10))
	e := &problem.Error{Code: problem.Failed, Message: "the daemon that was started ended at once"}
	for line := range strings.Lines(string(text)) {
		if m, ok := strings.CutPrefix(line, name+": error: "); ok {
			e.Message = "a daemon could not be started: " + strings.TrimSpace(m)
		}
		if h, ok := strings.CutPrefix(line, name+": hint: "); ok {
			e.Hint = strings.TrimSpace(h)
		}
	}
	e.Err = errors.New(e.Message)
	return e
}

func failed(err error, hint, format string, args ...any) error {
	return &problem.Error{Code: problem.Failed, Message: fmt.Sprintf(format, args...), Hint: hint,
		Err: err}
}
