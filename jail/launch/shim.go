package launch

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"

	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/internal/sys"
	"github.com/jail-sandbox/jail/jail/seccomp"
)

// A shim is a running jail-shim without an order. It ends when the daemon closes conn or dies.
type shim struct {
	cmd *exec.Cmd
	// process is its pidfd.
	process *os.File
	conn    *control.Conn
}

// newShim starts the jail-shim at path.
func newShim(path string) (*shim, error) {
	conn, theirs, err := control.Pair("shim")
	if err != nil {
		return nil, err
	}
	// Only the shim may hold its end of the socket. Otherwise the daemon would not read end of file
	// when the shim dies.
	defer theirs.Close()
	cmd := exec.Command(path)
	// The shim gets no environment of the daemon. It lives for one jail and needs no garbage
	// collection, and no look at the CPU limit of its control group.
	cmd.Env = []string{"GOGC=off", "GODEBUG=containermaxprocs=0,updatemaxprocs=0"}
	cmd.ExtraFiles = []*os.File{theirs}
	// The working directory of the daemon may have been deleted, and a jail that lives must not
	// keep it from being unmounted.
	cmd.Dir = "/"
	// A session of its own, so that signals of the daemon's terminal do not reach the shim.
	pidfd := -1
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, PidFD: &pidfd}
	if err := cmd.Start(); err != nil {
		conn.Close()
		return nil, err
	}
	s := &shim{cmd: cmd, conn: conn}
	if pidfd >= 0 {
		s.process = os.NewFile(uintptr(pidfd), "jail-shim")
	}
	return s, nil
}

// hasEnded reports whether the process has ended. It also reports true if it cannot find out.
func (s *shim) hasEnded() bool {
	if s.process == nil {
		return true
	}
	ended, err := sys.HasEnded(s.process)
	return ended || err != nil
}

// end ends a shim without an order and waits for it.
func (s *shim) end() {
	s.conn.Close()
	s.process.Close()
	// It may have been killed.
	_ = s.cmd.Wait()
}

// shim returns the shim that was started ahead, or a new one.
func (l Launcher) shim() (*shim, error) {
	if s := l.Ahead.take(); s != nil {
		if !s.hasEnded() {
			s.process.Close()
			return s, nil
		}
		s.end()
	}
	s, err := newShim(l.Shim)
	if err != nil {
		return nil, err
	}
	s.process.Close()
	return s, nil
}

// Ahead keeps one shim that is started before its jail is requested, so that the start of a jail
// does not wait for a program start. Such a shim has no order and no descriptor of a run, and
// serves one jail. The first one is started after the first jail. A nil Ahead keeps none. Its
// methods may be called from several goroutines.
type Ahead struct {
	path string

	mu     sync.Mutex
	next   *shim
	making bool
	closed bool
	made   sync.WaitGroup
}

// NewAhead returns an Ahead for the jail-shim at path. The caller closes it.
func NewAhead(path string) *Ahead { return &Ahead{path: path} }

// take returns the shim that was started ahead, or nil.
func (a *Ahead) take() *shim {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.next
	a.next = nil
	return s
}

// refill starts the next shim in the background, if there is none.
func (a *Ahead) refill() {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.next != nil || a.making || a.closed {
		return
	}
	a.making = true
	a.made.Go(func() {
		// After an error the next start of a jail starts its own shim, and reports the error.
		s, err := newShim(a.path)
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.making = false; err == nil {
			a.next = s
		}
	})
}

// Close ends the shim that has no order.
func (a *Ahead) Close() {
	if a == nil {
		return
	}
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	a.made.Wait()
	if s := a.take(); s != nil {
		s.end()
	}
}

// CompileFilter returns f as BPF instructions for a process of the host. It runs jail-shim, the
// only program with the compiler.
func (l Launcher) CompileFilter(ctx context.Context, f seccomp.Filter) ([]byte, error) {
	text, err := json.Marshal(f)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, l.Shim, control.ShimFilterArg)
	var out, said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(text), &out, &said
	cmd.Env = []string{}
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("compile a filter: %w: %s", err, strings.TrimSpace(said.String()))
	}
	return out.Bytes(), nil
}

// A FilterOnce is a filter that is compiled when it is first needed. The zero value has compiled
// nothing. Its method may be called from several goroutines.
type FilterOnce struct {
	mu      sync.Mutex
	program []byte
}

// Get returns the result of CompileFilter for f, cached. f must be the same at each call.
func (o *FilterOnce) Get(ctx context.Context, l Launcher, f seccomp.Filter) ([]byte, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.program == nil {
		program, err := l.CompileFilter(ctx, f)
		if err != nil {
			return nil, err
		}
		o.program = program
	}
	return o.program, nil
}
