// Package mcp serves a session of jail to coding agents over the Model Context Protocol: tools that
// read, search and change files and run programs on a shadow of one directory, and a commit that a
// person approves. https://modelcontextprotocol.io/specification
//
//	server.go    the server, on a pair of streams or over HTTP, on loopback and with a token
//	tools.go     read, write, edit, glob, grep, bash, fetch and todo, of supervisor/codetools, and the
//	             differences and the records, as resources
//	review.go    diff, commit, revert and approvals, and questions to the person of a client
package mcp

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/codetools"
	"github.com/jail-sandbox/jail/supervisor/config"
	"github.com/jail-sandbox/jail/supervisor/loopback"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/toolsession"
)

// Options are the dependencies and settings of a Server.
type Options struct {
	// Client is the connection to jaild for everything but decisions.
	Client *api.Client
	// Decider opens a connection for one decision: an action cannot be decided over the connection
	// that proposed it.
	Decider func(context.Context) (*api.Client, error)
	// Session is the request that opens the session. Its ID is the session's name.
	Session message.SessionRequest
	// Silent is true if the client is never asked: people decide outside of it.
	Silent bool
}

// A Server serves MCP clients, which all work in one session.
type Server struct {
	server  *mcp.Server
	session *toolsession.Session
	tools   *codetools.Tools
	// decider and silent are copied from Options.
	decider func(context.Context) (*api.Client, error)
	silent  bool
	asked   questions
}

const instructions = "All tools work on a shadow of the directory: nothing changes in the real one " +
	"until a person or the policy approves a commit. Use diff to see what changed, and commit to propose it."

// New returns a server. It opens the session if it is not open.
func New(ctx context.Context, o Options) (*Server, error) {
	session, err := toolsession.Open(ctx, o.Client, o.Session)
	if err != nil {
		return nil, err
	}
	s := &Server{session: session, tools: &codetools.Tools{Session: session}, decider: o.Decider,
		silent: o.Silent}
	s.server = mcp.NewServer(&mcp.Implementation{Name: "jail", Title: "jail", Version: config.Version},
		&mcp.ServerOptions{Instructions: instructions})
	s.addTools()
	s.addReview()
	s.addResources()
	return s, nil
}

// Serve serves one client on a pair of streams until the end of in.
func (s *Server) Serve(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
	return s.server.Run(ctx, &mcp.IOTransport{Reader: in, Writer: out})
}

// Path is the HTTP path of the server.
const Path = "/mcp"

// maxBody bounds the body of an HTTP request, in bytes.
const maxBody = toolsession.MaxWritten + toolsession.MaxWritten/2

// stateless is the first version of the protocol without sessions, with independent requests.
const stateless = "2026-07-28"

// ServeHTTP serves clients that send the token, of all versions of the protocol, until ctx is done.
func (s *Server) ServeHTTP(ctx context.Context, l net.Listener, token string) error {
	server := func(*http.Request) *mcp.Server { return s.server }
	old := mcp.NewStreamableHTTPHandler(server,
		&mcp.StreamableHTTPOptions{SessionTimeout: loopback.IdleTime, MaxRequestBodyBytes: maxBody})
	alone := mcp.NewStreamableHTTPHandler(server,
		&mcp.StreamableHTTPOptions{Stateless: true, MaxRequestBodyBytes: maxBody})
	return loopback.Serve(ctx, l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !loopback.Same(r.Header.Get("Authorization"), "Bearer "+token):
			loopback.Refuse(w)
		case strings.TrimSuffix(r.URL.Path, "/") != Path:
			http.NotFound(w, r)
		case r.Header.Get("Mcp-Protocol-Version") >= stateless:
			alone.ServeHTTP(w, r)
		default:
			old.ServeHTTP(w, r)
		}
	}))
}

// A hint says what a tool may do. Clients get it as annotations of the tool.
type hint int

const (
	// readsOnly tools change nothing.
	readsOnly hint = iota
	// changesShadow tools change files of the shadow, and are idempotent.
	changesShadow
	// runsAnything tools may do all that the policy allows.
	runsAnything
	// asksPerson tools may change the real directory, after an approval.
	asksPerson
)

func tool(name, title, about string, h hint) *mcp.Tool {
	destructive, open := h == runsAnything || h == asksPerson, h == runsAnything
	return &mcp.Tool{Name: name, Title: title, Description: about,
		Annotations: &mcp.ToolAnnotations{Title: title, ReadOnlyHint: h == readsOnly,
			DestructiveHint: &destructive, OpenWorldHint: &open,
			IdempotentHint: h == readsOnly || h == changesShadow}}
}

func add[In, Out any](s *Server, t *mcp.Tool, h mcp.ToolHandlerFor[In, Out]) {
	t.InputSchema, t.OutputSchema = codetools.Schema[In](), codetools.Schema[Out]()
	mcp.AddTool(s.server, t, h)
}

// text returns a result with t as its text. The SDK adds the structured output.
func text(t string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: t}}}
}
