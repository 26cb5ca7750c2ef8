package client

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

const (
	// linger is how long a lasting daemon waits for more to do: long enough for the next command of
	// a script.
	linger = 10 * time.Second
	// startBound is how long it may take to answer; it first clears up what a daemon before it
	// left.
	startBound = time.Minute
)

// startLasting starts a daemon that outlives this process, and waits until it answers. Of two that
// are started at once one has the state directory; then the other ends, and its client is served by
// the first.
func (o Options) startLasting(ctx context.Context) (*api.Client, error) {
	said, err := os.CreateTemp("", "jaild-")
	if err != nil {
		return nil, failed(err, "", "no daemon can be started: %v", err)
	}
	defer said.Close()
	if err := os.Remove(said.Name()); err != nil {
		return nil, failed(err, "", "no daemon can be started: %v", err)
	}
	cmd := exec.Command(o.Jaild, "--until-idle", linger.String(), "--socket", o.Socket)
	if o.State != "" {
		cmd.Args = append(cmd.Args, "--state", o.State)
	}
	cmd.Dir, cmd.Stderr = "/", said
	// What ends the terminal's processes does not end it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, failed(err, "build or install jaild beside jail",
			"no daemon answers on %s, and %s cannot be started: %v", o.Socket, o.Jaild, problem.Cause(err))
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	ctx, cancel := context.WithTimeout(ctx, startBound)
	defer cancel()
	for {
		c, err := api.Dial(ctx, o.Socket)
		if err == nil {
			return c, nil
		}
		select {
		case <-ctx.Done():
			return nil, failed(ctx.Err(), "",
				"the daemon that was started does not answer on %s: %v", o.Socket, err)
		case <-ended:
			if c, err := api.Dial(ctx, o.Socket); err == nil {
				return c, nil
			}
			return nil, lastWords(said)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// lastWords is what a daemon that could not begin said.
func lastWords(said *os.File) error {
	// Nothing but a worse message.
	text, _ := io.ReadAll(io.NewSectionReader(said, 0, 64<<10))
	e := &Error{Code: problem.Failed, Message: "the daemon that was started ended at once"}
	for line := range strings.Lines(string(text)) {
		if m, ok := strings.CutPrefix(line, "jaild: error: "); ok {
			e.Message = "a daemon could not be started: " + strings.TrimSpace(m)
		}
		if h, ok := strings.CutPrefix(line, "jaild: hint: "); ok {
			e.Hint = strings.TrimSpace(h)
		}
	}
	e.Err = errors.New(e.Message)
	return e
}
