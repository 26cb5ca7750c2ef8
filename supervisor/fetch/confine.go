package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/jail-sandbox/jail/jail/confine"
	"github.com/jail-sandbox/jail/jail/control"
)

// Arg is the first argument that makes the daemon's program run as a proxy.
const Arg = "fetch-proxy"

// proxyControl is the number of the proxy's descriptor for its socket to the daemon.
const proxyControl = 3

// Main runs a proxy until it ends, and returns the exit code.
func Main(stderr io.Writer) int {
	conn, err := control.Inherit(proxyControl)
	if err != nil {
		fmt.Fprintln(stderr, "fetch proxy: it is started by jaild:", err)
		return 125
	}
	if err := serve(conn); err != nil && !errors.Is(err, io.EOF) {
		// An error means that the daemon is gone.
		_ = conn.Send(fromProxy{Failed: err.Error()})
		return 125
	}
	return 0
}

func serve(conn *control.Conn) error {
	var setup Setup
	files, err := conn.Receive(&setup)
	if err != nil {
		return err
	}
	want := 1
	if setup.sockets() {
		want = 2
	}
	if len(files) != want {
		return fmt.Errorf("%d descriptors came, not %d", len(files), want)
	}
	socket := control.New(files[0])
	if err := confine.Network(setup.UID, setup.Filter); err != nil {
		return err
	}
	link := &link{out: sender{conn: conn}, said: newFrames(conn), waiting: map[uint64]chan answer{}}
	p, err := newProxy(setup, link)
	if err != nil {
		return err
	}
	if setup.sockets() {
		p.hosts.socket = (&dialer{conn: control.New(files[1])}).dial
	}
	ready := &ready{}
	if p.authority != nil {
		ready.Authority = p.authority.pem
	}
	if err := link.out.send(fromProxy{Ready: ready}); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go p.admit(ctx, socket)
	go p.refused.settleOften(ctx)
	err = link.listen()
	cancel()
	if err != nil {
		return err
	}
	link.abandon()
	p.wait(lastWords)
	p.refused.settle()
	return nil
}

// lastWords bounds the time for reporting outcomes after the end of the run.
const lastWords = 2 * time.Second

// abandon answers all waiting intents and questions with a failure, since the daemon will not.
func (l *link) abandon() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, to := range l.waiting {
		to <- answer{ID: id, Failed: true}
		delete(l.waiting, id)
	}
}

// wait waits until no stream is served, for at most the time most.
func (p *proxy) wait(most time.Duration) {
	for end := time.Now().Add(most); len(p.streams) > 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

// admit accepts proxy connections until socket closes. All input on socket comes from inside the
// jail and is untrusted.
func (p *proxy) admit(ctx context.Context, socket *control.Conn) {
	defer socket.Close()
	for {
		var request control.OpenStream
		files, err := socket.Receive(&request)
		control.CloseAll(files)
		if err != nil {
			return
		}
		if request.Event != nil {
			p.tool.event.begin(*request.Event)
			err = socket.Send(control.Opened{})
		} else {
			err = p.open(ctx, socket, request.Scope)
		}
		if err != nil {
			return
		}
	}
}

func (p *proxy) open(ctx context.Context, socket *control.Conn, scope int) error {
	if len(p.streams) >= maxStreams || scope < 0 || scope >= len(p.scopes) {
		return socket.Send(control.Opened{Refused: true})
	}
	ours, theirs, err := control.Pair("stream")
	if err != nil {
		return socket.Send(control.Opened{Refused: true})
	}
	conn, err := net.FileConn(ours.File())
	ours.Close()
	if err == nil {
		err = socket.Send(control.Opened{}, theirs)
	}
	theirs.Close()
	if err != nil {
		return err
	}
	go p.serve(ctx, conn, p.scopes[scope])
	return nil
}

// dialer requests connections to Unix sockets of the host from the daemon.
type dialer struct {
	mu   sync.Mutex
	conn *control.Conn
}

// dial returns the connection for a recorded intent. The daemon answers in order, within
// dialSocketTime each.
func (d *dialer) dial(_ context.Context, id uint64, _ string) (net.Conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.conn.Send(socketRequest{ID: id}); err != nil {
		return nil, err
	}
	var answer socketAnswer
	files, err := d.conn.Receive(&answer)
	for _, f := range files {
		defer f.Close()
	}
	switch {
	case err != nil:
		return nil, err
	case answer.Failed != "":
		return nil, errors.New(answer.Failed)
	case len(files) != 1:
		return nil, errors.New("the daemon sent no connection")
	}
	return net.FileConn(files[0])
}

// link is the proxy's end of its socket to the daemon.
type link struct {
	out sender
	// said reads the daemon's messages.
	said    *frames
	mu      sync.Mutex
	waiting map[uint64]chan answer
}

// listen receives the daemon's answers until the daemon closes its end.
func (l *link) listen() error {
	for {
		var a answer
		if err := l.said.receive(&a); err != nil {
			return err
		}
		if a.End {
			return nil
		}
		l.mu.Lock()
		to := l.waiting[a.ID]
		delete(l.waiting, a.ID)
		l.mu.Unlock()
		if to != nil {
			to <- a
		}
	}
}

// await registers request id and returns the channel of the daemon's answer.
func (l *link) await(id uint64) chan answer {
	to := make(chan answer, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting[id] = to
	return to
}

// Intend returns after the daemon has recorded the intent, or with the reason for a refusal.
func (l *link) Intend(i Intent) (string, error) {
	answer := l.await(i.ID)
	if err := l.out.pack(packedIntent, &i); err != nil {
		return "", err
	}
	// The daemon answers; if it dies, this process dies, too.
	a := <-answer
	if a.Failed {
		return "", errors.New("not on record")
	}
	if a.Code != "" {
		return "", &heldError{a.Refuse}
	}
	return a.Refuse, nil
}

// Ended reports the outcome of a request. An error is ignored: it means that the daemon is gone,
// and this process ends with it.
func (l *link) Ended(o Outcome) { _ = l.out.pack(packedOutcome, &o) }

// Refused reports a request that was not sent.
func (l *link) Refused(r Refused) { _ = l.out.send(fromProxy{Refused: &r}) }
