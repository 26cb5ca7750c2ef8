package mcp

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/jail-sandbox/jail/jail/tick"
	"github.com/jail-sandbox/jail/supervisor/codetools"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/stdio"
	"github.com/jail-sandbox/jail/supervisor/toolsession"
)

// addTools adds the tools of supervisor/codetools.
func (s *Server) addTools() {
	t := s.tools
	add(s, tool("read", "Read a file",
		"Read a text file of the directory, 2000 lines from offset on unless limit says otherwise.",
		readsOnly), showing(t.Read))
	add(s, tool("write", "Write a file",
		"Write a whole file in the shadow of the directory, and the directories that it needs.",
		changesShadow), showing(t.Write))
	add(s, tool("edit", "Edit a file",
		"Replace old_string by new_string in a text file of the shadow. old_string must occur "+
			"exactly once, unless replace_all is true.", changesShadow), showing(t.Edit))
	add(s, tool("glob", "Find files by name",
		"List the files whose path matches a pattern, such as **/*.go: * stands for a part of a "+
			"name, ** for directories. At most 1000.", readsOnly), showing(t.Glob))
	add(s, tool("grep", "Search in files",
		"Search files for an extended regular expression.", readsOnly), showing(t.Grep))
	add(s, tool("bash", "Run a command",
		"Run a shell command over the shadow of the directory, behind the walls of the session. "+
			"timeout is in milliseconds; the policy may allow less.", runsAnything), showing(t.Bash))
	add(s, tool("fetch", "Fetch a URL",
		"Fetch a URL through the audited proxy, if the policy grants its host.", runsAnything), s.fetch)
	var todos codetools.Todos
	add(s, tool("todo", "Keep a list of work",
		"Replace the list of what is to be done, or read it if todos is left out.", changesShadow),
		func(_ context.Context, _ *mcp.CallToolRequest, in codetools.TodoInput) (*mcp.CallToolResult,
			codetools.TodoOutput, error) {
			out, err := todos.Keep(in)
			return nil, out, err
		})
}

// showing returns a handler that calls f and has the text of Shown in its result.
func showing[In any, Out interface{ Shown() string }](
	f func(context.Context, In) (Out, error)) mcp.ToolHandlerFor[In, Out] {
	return func(ctx context.Context, req *mcp.CallToolRequest, in In) (*mcp.CallToolResult, Out, error) {
		defer lives(ctx, req)()
		out, err := f(ctx, in)
		if err != nil {
			return nil, out, err
		}
		return text(out.Shown()), out, nil
	}
}

// progressEvery is the interval of progress notifications.
const progressEvery = 2 * time.Second

// lives sends progress notifications until stop is called, if the client asked for them.
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
			// Ignore errors: if the client is gone, the call itself fails.
			_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
				ProgressToken: token, Progress: past.Seconds(),
				Message: fmt.Sprintf("running for %s", past)})
		}
	})
	return func() { cancel(); done.Wait() }
}

func (s *Server) fetch(ctx context.Context, req *mcp.CallToolRequest, in codetools.FetchInput) (
	*mcp.CallToolResult, toolsession.Output, error) {
	res, out, err := showing(s.tools.Fetch)(ctx, req, in)
	if err == nil {
		res.IsError = out.ExitCode != 0
	}
	return res, out, err
}

// addResources adds the diff and the audit records of the session as resources.
func (s *Server) addResources() {
	id := s.session.Name()
	s.server.AddResource(&mcp.Resource{URI: "jail://diff/" + id, Name: "diff",
		Title: "What changed in the shadow", MIMEType: "text/x-diff"}, s.readDiff)
	s.server.AddResource(&mcp.Resource{URI: "jail://log/" + id, Name: "log",
		Title: "What jail recorded of the session", MIMEType: "application/jsonl"}, s.readLog)
}

func resource(req *mcp.ReadResourceRequest, mime, content string) *mcp.ReadResourceResult {
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{
		{URI: req.Params.URI, MIMEType: mime, Text: content}}}
}

func (s *Server) readDiff(ctx context.Context, req *mcp.ReadResourceRequest) (
	*mcp.ReadResourceResult, error) {
	o, err := s.tools.Diff(ctx, codetools.DiffInput{})
	if err != nil {
		return nil, err
	}
	if o.Truncated {
		o.Text += "\n[there is more]\n"
	}
	return resource(req, "text/x-diff", o.Text), nil
}

func (s *Server) readLog(ctx context.Context, req *mcp.ReadResourceRequest) (
	*mcp.ReadResourceResult, error) {
	b := stdio.Kept{Most: toolsession.MaxWritten}
	for r, err := range s.session.Client().AuditRecords(ctx,
		message.RecordsRequest{Session: s.session.ID()}) {
		if err != nil {
			return nil, codetools.Plain(err)
		}
		b.Write(r.Line)
		b.WriteString("\n")
	}
	return resource(req, "application/jsonl", b.String()), nil
}
