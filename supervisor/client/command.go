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

// A Cmd is a prepared run, like exec.Cmd of os/exec. It can be run once.
type Cmd struct {
	// Request is the request, as prepared by Command and Script. By default Dir is the current
	// directory, of which the workspace is a shadow.
	Request
	// Stdin is the tool's standard input; nil means none.
	Stdin io.Reader
	// Stdout and Stderr receive the tool's output as it comes; nil discards it. The output limit
	// counts both together. If both are the same writer, it gets all output in the order of the
	// tool's writes.
	Stdout, Stderr io.Writer

	c *Client
}

// Command returns a Cmd for a tool: a command of an installed bundle (grep, core-utils/grep), a
// path to a .wasm file, or a program of the host that the policy permits.
func (c *Client) Command(tool string, args ...string) *Cmd {
	return &Cmd{c: c, Request: Request{ID: string(jail.NewID()), Tool: tool, Args: args}}
}

// Script returns a Cmd for a POSIX shell script whose every command is a jailed tool. params are $1
// and so on.
func (c *Client) Script(text string, params ...string) *Cmd {
	return &Cmd{c: c, Request: Request{ID: string(jail.NewID()),
		Script: &message.Script{Name: "-c", Text: text}, Args: params}}
}

// Run starts the tool and waits for its end. An error is always an *Error and about jail: the tool
// was refused, or the sandbox failed. A failure of the tool is only in the Result. When ctx ends,
// the run ends.
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

// Output is Run with the tool's output in the Result.
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
