package api

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/asuser"
	"github.com/jail-sandbox/jail/supervisor/caller"
)

type peerKey struct{}

// withPeer stores the caller in a connection's context, as the kernel identified it when the
// connection was made (SO_PEERCRED, unix(7)). Claims of the client itself do not count.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	caller, err := peer(c)
	if err != nil {
		return context.WithValue(ctx, peerKey{}, err)
	}
	return context.WithValue(ctx, peerKey{}, caller)
}

func peer(c net.Conn) (caller.Caller, error) {
	if in, ok := c.(counted); ok {
		c = in.UnixConn
	}
	unix, ok := c.(*net.UnixConn)
	if !ok {
		return caller.Caller{}, fmt.Errorf("connection %T tells nothing of its other end", c)
	}
	p, err := asuser.PeerOf(unix)
	if err != nil {
		return caller.Caller{}, err
	}
	caller := caller.Caller{Caller: p.Caller, PID: p.PID, Home: asuser.Home(p.UID),
		Connection: string(jail.NewID())}
	// For the audit log only: the process may have ended, or executed another program.
	caller.Exe, _ = os.Readlink("/proc/" + strconv.Itoa(p.PID) + "/exe")
	return caller, nil
}

func callerOf(ctx context.Context) (caller.Caller, error) {
	switch v := ctx.Value(peerKey{}).(type) {
	case caller.Caller:
		return v, nil
	case error:
		return caller.Caller{}, v
	}
	return caller.Caller{}, fmt.Errorf("the connection has no caller")
}
