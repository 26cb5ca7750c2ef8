package mcp

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/jail-sandbox/jail/jail/tick"
	"github.com/jail-sandbox/jail/supervisor/codetools"
	"github.com/jail-sandbox/jail/supervisor/toolsession"
)

// progressEvery is how often a client that asks for it is told that a program still runs.
const progressEvery = 2 * time.Second

func (s *Server) addPrograms() {
	add(s, tool("bash", "Run a command",
		"Run a shell command over the shadow of the directory, behind the walls of the session. "+
			"timeout is in milliseconds; the policy may allow less.", runsAnything), s.bash)
	add(s, tool("fetch", "Fetch a URL",
		"Fetch a URL through the audited proxy, if the policy grants its host.", runsAnything), s.fetch)
	add(s, tool("todo", "Keep a list of work",
		"Replace the list of what is to be done, or read it if todos is left out.", changesShadow),
		s.todo)
}

func (s *Server) bash(ctx context.Context, req *mcp.CallToolRequest, in codetools.BashInput) (
	*mcp.CallToolResult, toolsession.Output, error) {
	defer lives(ctx, req)()
	out, err := codetools.Bash(ctx, s.session, in)
	if err != nil {
		return nil, out, err
	}
	return text(out.Shown()), out, nil
}

// lives tells a client that asks for it how long a call has been running, until the returned
// function is called.
func lives(ctx context.Context, req *mcp.CallToolRequest) (stop func()) {
	token := req.Params.GetProgressToken()
	if token == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		began := time.Now()
		for range tick.Each(ctx.Done(), progressEvery) {
			past := time.Since(began).Round(time.Second)
			// A client that is gone needs no progress; the call itself finds out.
			_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
				ProgressToken: token, Progress: past.Seconds(),
				Message: fmt.Sprintf("running for %s", past)})
		}
	})
	return func() { cancel(); done.Wait() }
}

func (s *Server) fetch(ctx context.Context, req *mcp.CallToolRequest, in codetools.FetchInput) (
	*mcp.CallToolResult, toolsession.Output, error) {
	defer lives(ctx, req)()
	out, err := codetools.Fetch(ctx, s.session, in)
	if err != nil {
		return nil, out, err
	}
	res := text(out.Shown())
	res.IsError = out.ExitCode != 0
	return res, out, nil
}

func (s *Server) todo(_ context.Context, _ *mcp.CallToolRequest, in codetools.TodoInput) (
	*mcp.CallToolResult, codetools.TodoOutput, error) {
	out, err := s.todos.Keep(in)
	return nil, out, err
}
