// Package lasting starts daemons that outlive the command that needs them, and that end by
// themselves when nothing is left for them to do.
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
	// Linger is how long a lasting daemon waits for more to do: long enough for the next command of
	// a script.
	Linger = 10 * time.Second
	// startBound is how long it may take to answer; it first clears up what a daemon before it
	// left.
	startBound = time.Minute
)

// Start starts the daemon and waits until dial succeeds. Of two that start at one time, one serves
// the clients of both. Its errors are of the type *problem.Error.
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
	// What ends the terminal's processes does not end it.
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

// lastWords is what a daemon that could not begin said.
func lastWords(name string, said *os.File) error {
	// Nothing but a worse message.
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
