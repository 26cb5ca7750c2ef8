// Package mcp offers a session of jail to coding agents by the Model Context Protocol: tools that
// read, search, change and run things over a shadow of one directory, and a commit that a person
// approves. https://modelcontextprotocol.io/specification
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

// Options say what a server works with.
type Options struct {
	// Client asks for everything but decisions.
	Client *api.Client
	// Decider makes a connection of its own for a decision: nobody decides over the connection that
	// proposed.
	Decider func(context.Context) (*api.Client, error)
	// Session is asked for when it is not open. Its id names the session.
	Session message.SessionRequest
	// Silent: a person decides outside of the client, which is not asked.
	Silent bool
}

// A Server answers clients, all of which work in one session.
type Server struct {
	server  *mcp.Server
	session *toolsession.Session
	tools   *codetools.Tools
	// decider and silent are those of the options.
	decider func(context.Context) (*api.Client, error)
	silent  bool
	asked   questions
}

const instructions = "All tools work on a shadow of the directory: nothing changes in the real one " +
	"until a person or the policy approves a commit. Use diff to see what changed, and commit to propose it."

// New returns a server of a session, which it opens if it is not open.
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

// Serve answers one client on a pair of streams until the client ends the first.
func (s *Server) Serve(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
	return s.server.Run(ctx, &mcp.IOTransport{Reader: in, Writer: out})
}

// Path is where the server answers over HTTP.
const Path = "/mcp"

// maxBody bounds a request over HTTP, in bytes.
const maxBody = toolsession.MaxWritten + toolsession.MaxWritten/2

// stateless is the first version of the protocol that has no sessions: each request stands alone.
const stateless = "2026-07-28"

// ServeHTTP answers clients of all versions of the protocol that name the token, until ctx is done.
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

// A hint says what a tool may do, as clients ask before they call one.
type hint int

const (
	// readsOnly changes nothing.
	readsOnly hint = iota
	// changesShadow changes files of the shadow, the same way when it is called again.
	changesShadow
	// runsAnything may do all that the policy allows.
	runsAnything
	// asksPerson leads to a change of the real directory.
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

// text is a result that is shown as it is, beside its structured form.
func text(t string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: t}}}
}
