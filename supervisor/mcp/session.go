package mcp

import "github.com/jail-sandbox/jail/supervisor/toolsession"

// A session is the session of jail in which all tools run.
type session struct{ *toolsession.Session }
