package mcp

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/jail-sandbox/jail/supervisor/codetools"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/stdio"
	"github.com/jail-sandbox/jail/supervisor/toolsession"
)

// addResources offers the differences and the records of the session, and nothing of other ones.
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
	o, err := codetools.Changes(ctx, s.session, codetools.DiffInput{})
	if err != nil {
		return nil, codetools.Plain(err)
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
