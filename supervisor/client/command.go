package client

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// A Cmd is one run that is being prepared, in the manner of os/exec. It can be run once.
type Cmd struct {
	// Request is what is asked for. Command and Script fill in what they know: Dir is the current
	// directory, and a shadow of it the workspace.
	Request
	// Stdin is what the tool reads; nil is nothing.
	Stdin io.Reader
	// Stdout and Stderr take what the tool writes, as it comes; nil throws it away. The limit of
	// output counts both together. As with os/exec, one writer for both gets all in the order in
	// which the tool wrote it.
	Stdout, Stderr io.Writer

	c *Client
}

// Command prepares a run of a tool: a command of an installed bundle (grep, core-utils/grep), a
// path to a .wasm file, or a program of the host where the policy has one.
func (c *Client) Command(tool string, args ...string) *Cmd {
	return &Cmd{c: c, Request: Request{ID: string(jail.NewID()), Tool: tool, Args: args}}
}

// Script prepares a run of a POSIX shell script, whose every command is a jailed tool. params are
// its $1 and on.
func (c *Client) Script(text string, params ...string) *Cmd {
	return &Cmd{c: c, Request: Request{ID: string(jail.NewID()),
		Script: &message.Script{Name: "-c", Text: text}, Args: params}}
}

// Run starts the tool and waits for its end. The error is for jail itself, always an *Error: the
// tool was refused, or the sandbox failed; how a tool that ran has ended is in the Result alone.
// When ctx ends, so does the run.
func (c *Cmd) Run(ctx context.Context) (Result, error) {
	req := c.Request
	if req.Dir == "" {
		dir, err := os.Getwd()
		if err != nil {
			return Result{}, failed(err, "set Dir", "the current directory: %v", problem.Cause(err))
		}
		req.Dir = dir
	}
	if !filepath.IsAbs(req.Dir) || req.Workspace != "" && !filepath.IsAbs(req.Workspace) {
		return Result{}, &Error{Code: problem.Usage,
			Message: fmt.Sprintf("directory %q, workspace %q: they must be absolute paths", req.Dir,
				req.Workspace)}
	}
	res, err := c.c.Run(ctx, req, c.Stdin, discarded(c.Stdout), discarded(c.Stderr))
	switch {
	case err != nil && ctx.Err() != nil:
		return res, failed(err, "", "run %s: %v", req.ID, context.Cause(ctx))
	case err != nil:
		return res, problem.From(err)
	case res.Error != nil:
		return res, res.Error
	}
	return res, nil
}

// Output runs the tool and puts what it writes into the Result.
func (c *Cmd) Output(ctx context.Context) (Result, error) {
	var out, errOut bytes.Buffer
	run := *c
	run.Stdout, run.Stderr = &out, &errOut
	res, err := run.Run(ctx)
	res.Stdout, res.Stderr = slices.Clip(out.Bytes()), slices.Clip(errOut.Bytes())
	return res, err
}

func discarded(w io.Writer) io.Writer {
	if w == nil {
		return io.Discard
	}
	return w
}
