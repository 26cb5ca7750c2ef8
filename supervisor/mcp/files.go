package mcp

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/jail-sandbox/jail/supervisor/codetools"
)

func (s *Server) addFiles() {
	f := codetools.NewFiles(s.session)
	add(s, tool("read", "Read a file",
		"Read a text file of the directory, 2000 lines from offset on unless limit says otherwise.",
		readsOnly), showing(f.Read))
	add(s, tool("write", "Write a file",
		"Write a whole file in the shadow of the directory, and the directories that it needs.",
		changesShadow), showing(f.Write))
	add(s, tool("edit", "Edit a file",
		"Replace old_string by new_string in a text file of the shadow. old_string must occur "+
			"exactly once, unless replace_all is true.", changesShadow), showing(f.Edit))
	add(s, tool("glob", "Find files by name",
		"List the files whose path matches a pattern, such as **/*.go: * stands for a part of a "+
			"name, ** for directories. At most 1000.", readsOnly), showing(f.Glob))
	add(s, tool("grep", "Search in files",
		"Search files for an extended regular expression.", readsOnly), showing(f.Grep))
}

// showing is the handler of a tool whose result says how it is shown.
func showing[In any, Out interface{ Shown() string }](f func(context.Context, In) (Out, error)) mcp.
	ToolHandlerFor[In, Out] {
	return func(ctx context.Context, _ *mcp.CallToolRequest, in In) (*mcp.CallToolResult, Out, error) {
		out, err := f(ctx, in)
		if err != nil {
			return nil, out, err
		}
		return text(out.Shown()), out, nil
	}
}
