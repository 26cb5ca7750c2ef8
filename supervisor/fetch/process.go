package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/jail/control"
)

// Bounds of the proxy's process.
const (
	processMemory = 256 << 20 // bytes
	processTasks  = 64
	endTime       = 5 * time.Second
)

// startTime bounds the time until a proxy is confined, as for each step of a jail's start. Tests
// shorten it.
var startTime = 30 * time.Second

// ErrLate is wrapped by the error for a proxy that was not confined in time and was killed.
var ErrLate = errors.New("it was not ready in time")

// Spec describes the proxy to start.
type Spec struct {
	// Exe is the path of the daemon's own program.
	Exe string
	// Cgroup is a cgroup for the proxy alone; empty leaves it in the daemon's cgroup.
	Cgroup string
	Setup  Setup
	// Record records requests. A request is dialled only after its IntendAfter has returned.
	Record Log
	// Ask decides on a request that needs an approval. It returns soon after its context ends. If
	// Ask is nil, no such request is sent.
	Ask func(context.Context, Question) Verdict
	// Died is called once if the proxy ends before Close.
	Died func(error)
}

// Log records a run's requests for the daemon.
type Log interface {
	// IntendAfter records the outcomes ended and the intent i with one flush. It returns why the
	// request must not be sent, or "". It refuses requests without the approval that they need. The
	// caller has checked the addresses.
	IntendAfter(ended []Outcome, i Intent) (refuse string, err error)
	Ended(Outcome)
	Refused(Refused)
}

// Process is the daemon's handle of a run's proxy.
type Process struct {
	// Door is the jail's end of the proxy's socket. The caller passes it to the jail and closes it.
	Door *os.File
	PID  int
	// Authority is a PEM certificate that the tools in the jail must trust besides the operator's
	// roots; nil without interception.
	Authority []byte

	cmd *exec.Cmd
	// out is the daemon's end of the socket to the proxy.
	out sender
	// dials receives requests for connections to Unix sockets of the host; nil if no host needs it.
	dials *control.Conn
	// said reads the proxy's messages.
	said  *frames
	spec  Spec
	ended chan struct{}
	asks  *questions
	// records are on the way to the log.
	records *recording
	closed  closing
}

// closing says whether the proxy has been told to end.
type closing struct {
	sync.Mutex
	done bool
}

// Start starts a proxy. It returns when the proxy is confined.
func Start(ctx context.Context, s Spec) (*Process, error) {
	conn, theirs, err := control.Pair("fetch proxy")
	if err != nil {
		return nil, err
	}
	ours, socket, err := control.Pair("fetch socket")
	if err != nil {
		return nil, errors.Join(err, conn.Close(), theirs.Close())
	}
	defer ours.Close()
	p := &Process{Door: socket, out: sender{conn: conn}, spec: s, ended: make(chan struct{}),
		asks: newQuestions()}
	sockets := []*os.File{ours.File()}
	if s.Setup.sockets() {
		var end *os.File
		if p.dials, end, err = control.Pair("sockets of the host"); err != nil {
			return nil, errors.Join(err, theirs.Close(), socket.Close(), p.closeSockets())
		}
		defer end.Close()
		sockets = append(sockets, end)
	}
	p.records = newRecording(s.Record, s.Setup.Internal, p.ended)
	p.cmd = exec.Command(s.Exe, Arg)
	// One processor limits what a run's requests take from others, and saves waking a second thread
	// for each request.
	p.cmd.Env = []string{"GOTRACEBACK=none", "GOMAXPROCS=1", "GOMEMLIMIT=200MiB",
		"GODEBUG=netdns=go,containermaxprocs=0,updatemaxprocs=0"}
	p.cmd.ExtraFiles = []*os.File{theirs}
	p.cmd.Dir = "/"
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = p.cmd.Start()
	theirs.Close()
	if err != nil {
		return nil, errors.Join(err, socket.Close(), p.closeSockets())
	}
	p.PID = p.cmd.Process.Pid
	stop := context.AfterFunc(ctx, p.kill)
	timer := time.AfterFunc(startTime, p.kill)
	err = p.begin(sockets)
	if !timer.Stop() {
		// It was killed, so the error of begin is a consequence.
		err = fmt.Errorf("%w, which is %v", ErrLate, startTime)
	}
	stop()
	if err != nil {
		p.kill()
		// The error of begin is the cause, not the exit status.
		_ = p.cmd.Wait()
		return nil, errors.Join(fmt.Errorf("fetch proxy: %w", err), socket.Close(),
			p.closeSockets(), p.removeGroup())
	}
	go p.listen()
	if p.dials != nil {
		go p.dialSockets()
	}
	return p, nil
}

// closeSockets closes the daemon's ends of the sockets to the proxy.
func (p *Process) closeSockets() error {
	err := p.out.conn.Close()
	if p.dials != nil {
		err = errors.Join(err, p.dials.Close())
	}
	return err
}

// dialSockets serves the proxy's requests for connections to Unix sockets of the host until the
// proxy ends. The proxy sends only a request's id. The recorder checks that the request is recorded
// and knows its socket.
func (p *Process) dialSockets() {
	for {
		var asked socketRequest
		files, err := p.dials.ReceiveMost(&asked, maxSocketRequest)
		control.CloseAll(files)
		if err != nil {
			return
		}
		// If the proxy is gone, the next Receive returns an error.
		_ = p.dialSocket(asked.ID)
	}
}

// maxSocketRequest bounds a socketRequest, in bytes.
const maxSocketRequest = 256

func (p *Process) dialSocket(id uint64) error {
	path := p.records.socketOf(id)
	if path == "" {
		return p.dials.Send(socketAnswer{Failed: "no request on record has a socket of the host"})
	}
	conn, err := dialSocket(context.Background(), path)
	if err != nil {
		return p.dials.Send(socketAnswer{Failed: err.Error()})
	}
	defer conn.Close()
	f, err := conn.(*net.UnixConn).File()
	if err != nil {
		return p.dials.Send(socketAnswer{Failed: err.Error()})
	}
	defer f.Close()
	return p.dials.Send(socketAnswer{}, f)
}

// kill kills the proxy. It may have ended already.
func (p *Process) kill() { _ = p.cmd.Process.Kill() }

// begin moves the proxy into its cgroup, sends the setup and waits until the proxy is confined.
func (p *Process) begin(sockets []*os.File) error {
	if p.spec.Cgroup != "" {
		if err := cgroup.Enclose(p.spec.Cgroup,
			cgroup.Ceiling{Memory: processMemory, PIDs: processTasks}, p.PID); err != nil {
			return err
		}
	}
	if err := p.out.conn.Send(p.spec.Setup, sockets...); err != nil {
		return err
	}
	p.said = newFrames(p.out.conn)
	var said fromProxy
	if err := p.receive(&said); err != nil {
		return err
	}
	if said.Ready == nil {
		return errors.New(said.Failed)
	}
	p.Authority = said.Ready.Authority
	return nil
}

func (p *Process) receive(m *fromProxy) error {
	err := p.said.receive(m)
	if errors.Is(err, io.EOF) {
		return errors.New("it ended")
	}
	return err
}

// listen handles the proxy's messages until the proxy ends. It only records them, since the proxy
// is exposed to untrusted input.
func (p *Process) listen() {
	defer close(p.ended)
	defer p.asks.waiting.Wait()
	defer p.asks.stop()
	var failed error
	for {
		var m fromProxy
		if err := p.receive(&m); err != nil {
			p.records.finish()
			// Stop a proxy that has closed its socket but not ended.
			p.kill()
			if how := p.cmd.Wait(); how != nil {
				err = fmt.Errorf("%w: %w", err, how)
			}
			p.end(errors.Join(failed, err))
			return
		}
		switch {
		case m.Failed != "":
			failed = errors.New(m.Failed)
		case m.Question != nil:
			p.decide(*m.Question)
		case m.Gone != 0:
			p.asks.end(m.Gone, false)
		case m.Intent != nil:
			held := p.records.unhold()
			p.records.atOnce(func() { p.answer(p.records.intend(held, *m.Intent)) })
		case m.Outcome != nil:
			p.records.outcome(*m.Outcome)
		case m.Refused != nil:
			p.spec.Record.Refused(*m.Refused)
		}
	}
}

// answer sends the reply to an intent or a question. If the proxy is gone, listen notices.
func (p *Process) answer(a answer) { _ = p.out.pack(packedAnswer, &a) }

// end records an unknown outcome for each open request, and reports an unexpected end of the proxy.
func (p *Process) end(err error) {
	p.records.unknown(err)
	p.closed.Lock()
	closed := p.closed.done
	p.closed.Unlock()
	if !closed && p.spec.Died != nil {
		p.spec.Died(err)
	}
}

// Close ends the proxy, waits until everything is recorded, and removes its remains. The jail must
// have ended.
func (p *Process) Close() error {
	p.asks.stop()
	// Sending and noting are one step under the lock: a proxy that has ended by now ended on its
	// own, maybe unnoticed.
	p.closed.Lock()
	err := p.out.send(answer{End: true})
	p.closed.done = err == nil
	p.closed.Unlock()
	if err != nil {
		p.kill()
	}
	select {
	case <-p.ended:
	case <-time.After(endTime):
		p.kill()
		<-p.ended
	}
	return errors.Join(p.closeSockets(), p.removeGroup())
}

func (p *Process) removeGroup() error {
	if p.spec.Cgroup == "" {
		return nil
	}
	return cgroup.Remove(p.spec.Cgroup)
}
