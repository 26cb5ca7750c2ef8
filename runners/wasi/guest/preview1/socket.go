package preview1

import (
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/jail-sandbox/jail/runners/internal/sys"
)

// Variables that tell a guest the number of its descriptor from which sock_accept takes streams to
// the fetch proxy, and to the host of the agent that it is.
const (
	fetchVariable = "JAIL_FETCH_FD"
	agentVariable = "JAIL_AGENT_FD"
)

// addListener gives the guest a listener that accepts streams, and tells its number in a variable.
// It comes after the directories, because a C library searches those up to the first number that is
// none.
func (p *Process) addListener(variable string, open func() (*os.File, error)) {
	n := p.fds.put(&file{kind: kindListener, fd: -1, filetype: typeSocketStream,
		rights: rights{base: listenerRights, inherit: socketRights}, accept: open})
	var env []string
	for _, e := range p.env {
		if !strings.HasPrefix(e, variable+"=") {
			env = append(env, e)
		}
	}
	p.env = append(env, variable+"="+strconv.Itoa(int(n)))
}

// socket returns the stream of fd. If fd is neither a stream nor a listener, it records a denial of
// the call name.
func (p *Process) socket(name string, fd uint64) (*file, Errno) {
	f := p.fds.get(uint32(fd))
	if f != nil && f.kind == kindSocket {
		return f, success
	}
	if f == nil || f.kind != kindListener {
		p.denials.Add(Layer, "socket "+name, "no sockets")
	}
	if f == nil {
		return nil, errBadf
	}
	return nil, errNotsock
}

func sockAccept(p *Process, mem []byte, a []uint64) Errno {
	f := p.fds.get(uint32(a[0]))
	if f == nil || f.kind != kindListener {
		_, e := p.socket("sock_accept", a[0])
		if e == success {
			// A connected stream accepts nothing.
			e = errInval
		}
		return e
	}
	flags := uint32(a[1])
	switch {
	case flags&^flagNonblock != 0:
		return errInval
	case p.fds.full():
		return errMfile
	}
	if _, ok := memory(mem).at(uint32(a[2]), 4); !ok {
		// Checked before a stream is opened, which nobody could close.
		return errFault
	}
	stream, err := f.accept()
	if err != nil {
		return errConnRefused
	}
	// The stream belongs to this process alone, so it can be non-blocking: waiting is done by
	// polling.
	fd := int(stream.Fd())
	if err := syscall.SetNonblock(fd, true); err != nil {
		stream.Close()
		return errnoOf(err)
	}
	n := p.fds.put(&file{kind: kindSocket, fd: fd, filetype: typeSocketStream, flags: uint16(flags),
		rights: rights{base: socketRights}, socket: stream})
	return memory(mem).putU32(uint32(a[2]), n)
}

func sockRecv(p *Process, mem []byte, a []uint64) Errno {
	if _, e := p.socket("sock_recv", a[0]); e != success {
		return e
	}
	if uint32(a[3]) != 0 {
		// Neither looking ahead nor waiting for all.
		return errNotsup
	}
	b, ok := memory(mem).at(uint32(a[5]), 2)
	if !ok {
		// Checked before anything is read from the stream.
		return errFault
	}
	if e := readFd(p, mem, []uint64{a[0], a[1], a[2], a[4]}); e != success {
		return e
	}
	// No flag of a received message is reported.
	clear(b)
	return success
}

func sockSend(p *Process, mem []byte, a []uint64) Errno {
	if _, e := p.socket("sock_send", a[0]); e != success {
		return e
	}
	if uint32(a[3]) != 0 {
		// There are no flags for sending.
		return errInval
	}
	return writeFd(p, mem, []uint64{a[0], a[1], a[2], a[4]})
}

func sockShutdown(p *Process, _ []byte, a []uint64) Errno {
	f, e := p.socket("sock_shutdown", a[0])
	if e != success {
		return e
	}
	how := uint32(a[1])
	if how < 1 || how > 3 {
		return errInval
	}
	// The kernel counts from 0: read, write, both.
	return errnoOf(sys.Shutdown(f.fd, int(how)-1))
}
