package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
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
	startTime     = 10 * time.Second
	endTime       = 5 * time.Second
	heldTime      = 2 * time.Millisecond // that an outcome waits for an intent to go on record with
	maxHeld       = 64                   // outcomes that wait
	maxRecording  = 128                  // records of one run that are on their way to the log: another's waits behind so many at most
)

// A Spec says how a proxy is started.
type Spec struct {
	Exe    string // the daemon's own program
	Cgroup string // of the proxy alone; empty leaves it in the daemon's
	Setup  Setup
	// Record puts on record what the proxy does. Its Intend returns before anything is dialled.
	Record Log
	// Died is called once if the proxy ends before it is told to.
	Died func(error)
}

// A Log is the daemon's record of a run.
type Log interface {
	Recorder
	// IntendAfter is Intend, behind the ends of requests before it: the disk is waited for once, for all of them.
	IntendAfter(ended []Outcome, i Intent) (refuse string, err error)
}

// A Process is the proxy of one run, seen from the daemon.
type Process struct {
	Door *os.File // the jail's end; the caller hands it on and closes it
	PID  int
	// Authority is the certificate, in PEM, that the tools of this jail are to trust beside the operator's roots, or nil.
	Authority []byte

	cmd    *exec.Cmd
	conn   *control.Conn
	said   *frames // by the proxy
	spec   Spec
	write  sync.Mutex
	ended  chan struct{}
	asked  sync.WaitGroup // what is being put on record
	places chan struct{}  // for it
	next   chan func()    // of it, for whoever waits for more
	mu     sync.Mutex
	open   map[uint64]bool // intents without an outcome
	closed bool
	held   []Outcome // that wait for company
	timer  *time.Timer
}

// Start starts a proxy and returns when it is confined.
func Start(ctx context.Context, s Spec) (*Process, error) {
	conn, theirs, err := control.Pair("fetch proxy")
	if err != nil {
		return nil, err
	}
	doorOurs, door, err := control.Pair("door")
	if err != nil {
		return nil, errors.Join(err, conn.Close(), theirs.Close())
	}
	defer doorOurs.Close()
	p := &Process{Door: door, conn: conn, spec: s, ended: make(chan struct{}), open: map[uint64]bool{}, places: make(chan struct{}, maxRecording), next: make(chan func())}
	p.cmd = exec.Command(s.Exe, Arg)
	// One processor: what a run's requests take of the others is bounded, and no thread wakes another for each of them.
	p.cmd.Env = []string{"GOTRACEBACK=none", "GOMAXPROCS=1", "GOMEMLIMIT=200MiB", "GODEBUG=netdns=go,containermaxprocs=0,updatemaxprocs=0"}
	p.cmd.ExtraFiles = []*os.File{theirs}
	p.cmd.Dir = "/"
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = p.cmd.Start()
	theirs.Close()
	if err != nil {
		return nil, errors.Join(err, conn.Close(), door.Close())
	}
	p.PID = p.cmd.Process.Pid
	stop := context.AfterFunc(ctx, p.kill)
	timer := time.AfterFunc(startTime, p.kill)
	err = p.begin(doorOurs.File())
	timer.Stop()
	stop()
	if err != nil {
		p.kill()
		_ = p.cmd.Wait() // err is the one that matters
		return nil, errors.Join(fmt.Errorf("fetch proxy: %w", err), conn.Close(), door.Close(), p.removeGroup())
	}
	go p.listen()
	return p, nil
}

func (p *Process) kill() { _ = p.cmd.Process.Kill() } // it may have ended by itself

// begin puts the process where it belongs before it is told anything.
func (p *Process) begin(door *os.File) error {
	if p.spec.Cgroup != "" {
		if err := cgroup.Enclose(p.spec.Cgroup, cgroup.Ceiling{Memory: processMemory, PIDs: processTasks}, p.PID); err != nil {
			return err
		}
	}
	if err := p.conn.Send(p.spec.Setup, door); err != nil {
		return err
	}
	p.said = newFrames(p.conn)
	var said FromProxy
	if err := p.receive(&said); err != nil {
		return err
	}
	if said.Ready == nil {
		return errors.New(said.Failed)
	}
	p.Authority = said.Ready.Authority
	return nil
}

func (p *Process) receive(m *FromProxy) error {
	err := p.said.receive(m)
	if errors.Is(err, io.EOF) {
		return errors.New("it ended")
	}
	return err
}

// listen takes what the proxy says until it ends. What it says was written by a process that strangers speak to: it is only ever recorded.
func (p *Process) listen() {
	defer close(p.ended)
	var failed error
	for {
		var m FromProxy
		if err := p.receive(&m); err != nil {
			p.release()
			p.asked.Wait() // what is put on record now has no end that anybody could tell
			p.kill()       // where it has not ended, it says nothing any more
			if how := p.cmd.Wait(); how != nil {
				err = fmt.Errorf("%w: %w", err, how)
			}
			p.end(errors.Join(failed, err))
			return
		}
		switch {
		case m.Failed != "":
			failed = errors.New(m.Failed)
		case m.Intent != nil:
			held := p.unhold()
			p.atOnce(func() { p.intent(held, *m.Intent) })
		case m.Outcome != nil:
			p.mu.Lock()
			known := p.open[m.Outcome.ID]
			delete(p.open, m.Outcome.ID)
			p.mu.Unlock()
			switch {
			case known && m.Outcome.Redirect != "": // what the tool asks for next is recorded as its sequel
				p.spec.Record.Ended(*m.Outcome)
			case known:
				p.hold(*m.Outcome)
			}
		case m.Refused != nil:
			p.spec.Record.Refused(*m.Refused)
		}
	}
}

// atOnce puts something on record beside others, so that they share what makes the log durable. So many at most: a proxy that says more waits.
func (p *Process) atOnce(record func()) {
	p.places <- struct{}{}
	p.asked.Add(1)
	select {
	case p.next <- record:
	default: // nobody waits for it
		go p.work(record)
	}
}

// work puts things on record until the proxy ends. Who has done so stays, with the stack that it took.
func (p *Process) work(record func()) {
	for {
		record()
		<-p.places
		p.asked.Done()
		select {
		case record = <-p.next:
		case <-p.ended:
			return
		}
	}
}

// hold keeps an outcome for a moment, in which the tool's next intent mostly comes: the log is then made durable once for both, and the intent,
// which a request waits for, does not wait for the outcome, which nothing waits for.
func (p *Process) hold(o Outcome) {
	p.mu.Lock()
	p.held = append(p.held, o)
	full := len(p.held) >= maxHeld
	if p.timer == nil {
		p.timer = time.AfterFunc(heldTime, p.release)
	}
	p.mu.Unlock()
	if full {
		p.release()
	}
}

// unhold takes over what was held.
func (p *Process) unhold() []Outcome {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.unheld()
}

func (p *Process) unheld() []Outcome {
	held := p.held
	p.held = nil
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
	return held
}

// release puts on record what was held.
func (p *Process) release() {
	p.mu.Lock()
	held := p.unheld()
	p.asked.Add(len(held)) // under the lock: who waits for asked has released before
	p.mu.Unlock()
	for _, o := range held {
		p.places <- struct{}{}
		go func() {
			defer p.asked.Done()
			defer func() { <-p.places }()
			p.spec.Record.Ended(o)
		}()
	}
}

// intent puts one on record, behind what was held.
func (p *Process) intent(held []Outcome, i Intent) {
	a := Answer{ID: i.ID}
	if own := ownAddress(i.Addresses); own != "" {
		a.Refuse = own
		for _, o := range held {
			p.spec.Record.Ended(o)
		}
	} else {
		p.mu.Lock()
		p.open[i.ID] = true
		p.mu.Unlock()
		refuse, err := p.spec.Record.IntendAfter(held, i)
		a.Refuse, a.Failed = refuse, err != nil
		if a.Failed || refuse != "" {
			p.mu.Lock()
			delete(p.open, i.ID)
			p.mu.Unlock()
		}
	}
	p.write.Lock()
	defer p.write.Unlock()
	_ = p.conn.Send(a) // a proxy that is gone is seen by listen
}

// end records what became of the requests whose end nobody can tell, and that the proxy is gone.
func (p *Process) end(err error) {
	p.mu.Lock()
	open, closed := p.open, p.closed
	p.open = nil
	p.mu.Unlock()
	for id := range open {
		p.spec.Record.Ended(Outcome{ID: id, Error: "unknown: the proxy ended before the request did (" + err.Error() + ")", Truncated: true})
	}
	if !closed && p.spec.Died != nil {
		p.spec.Died(err)
	}
}

// Close ends the proxy and waits until all that it did is on record and nothing of it is left. The jail must have ended.
func (p *Process) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.write.Lock()
	err := p.conn.Send(Answer{End: true})
	p.write.Unlock()
	if err != nil {
		p.kill()
	}
	select {
	case <-p.ended:
	case <-time.After(endTime):
		p.kill()
		<-p.ended
	}
	return errors.Join(p.conn.Close(), p.removeGroup())
}

func (p *Process) removeGroup() error {
	if p.spec.Cgroup == "" {
		return nil
	}
	return cgroup.Remove(p.spec.Cgroup)
}

// ownAddress says that one of the addresses is this host's, if one is.
func ownAddress(addrs []netip.Addr) string { return theHost.any(addrs) }
