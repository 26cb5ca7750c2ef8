package asuser

import (
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// A Peer is the process at the other end of a Unix socket, as it was when the connection was made.
type Peer struct {
	Caller
	PID int
}

// PeerOf asks the kernel who made the connection (unix(7), SO_PEERCRED and SO_PEERGROUPS).
func PeerOf(conn *net.UnixConn) (Peer, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return Peer{}, err
	}
	var p Peer
	var credErr error
	err = raw.Control(func(fd uintptr) {
		var c sys.PeerCredentials
		if c, credErr = sys.PeerCred(int(fd)); credErr == nil {
			p = Peer{Caller{c.UID, c.GID, c.Groups}, c.PID}
		}
	})
	if err == nil {
		err = credErr
	}
	return p, err
}

// Home returns the home directory that the password file gives a user, "" where there is none.
func Home(uid uint32) string {
	text, err := os.ReadFile("/etc/passwd")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) >= 7 && f[2] == strconv.FormatUint(uint64(uid), 10) {
			return f[5]
		}
	}
	return ""
}
