// Package engine manages the shared engines of a session: long-lived processes, each in a jail of
// the session, in which the WebAssembly invocations of one policy run as module instances.
//
//	Set.Take    get the running engine for an invocation, or a new one
//	Call.Start  send the invocation to the engine
//	Call.Done   the engine has replied, or has ended
//
// An invocation has its own instance, memory, descriptors and view of files. It shares the process,
// jail and control group with the others in its engine. So the WebAssembly engine isolates them from
// each other, and the jail isolates them from everything else.
package engine

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/prewarm"
	"github.com/jail-sandbox/jail/supervisor/stdio"
)

// grace is how long an engine may take to stop a cancelled invocation before it is killed.
const grace = 2 * time.Second

// Bounds of the CPU time that an engine may use beyond that of its invocations.
const (
	watchEvery = time.Second
	ownCPU     = 2 * time.Second
	// ownShare permits the engine one part in ownShare of all its CPU time for itself, such as for
	// garbage collection.
	ownShare = 4
)

// An Engine is one engine process in its jail. Its methods may be called from several goroutines.
type Engine struct {
	jail *prewarm.Jail
	leaf *cgroup.Leaf
	// caches are the directories of the compiled modules mounted in the jail, in order.
	caches []string

	// sending is held while a call is sent.
	sending sync.Mutex
	calls   calls
	// watched says that a check of the CPU time is scheduled.
	watched atomic.Bool

	// reason says why the daemon killed the process; nil if it did not.
	reason atomic.Pointer[string]
	// ended is closed when the process has ended; end is valid then.
	ended chan struct{}
	end   End
	// gone is closed when nothing is left of the jail.
	gone chan struct{}
}

// An End is how the process of an engine ended.
type End struct {
	Status control.Exited
	Usage  cgroup.Usage
	// Reason says why the daemon killed the process; "" if it did not.
	Reason string
	Err    error
}

// stand starts an engine in a jail that was made for it, and returns the first call to it. So the
// engine is busy from the start, and is not ended as idle.
func stand(j *prewarm.Jail, caches []string) (*Call, error) {
	e := &Engine{jail: j, caches: caches, calls: calls{running: map[uint64]*Call{}},
		ended: make(chan struct{}), gone: make(chan struct{})}
	var err error
	if e.leaf, err = cgroup.Open(j.Plan().Cgroup.Path); err == nil {
		err = j.Process.Invoke(runners.Order{Serve: true})
	}
	if err != nil {
		j.Close()
		return nil, fmt.Errorf("start of a shared engine: %w", err)
	}
	// The output of the process itself, as of a crash, is discarded.
	j.Pipes.Start(stdio.Streams{Out: io.Discard, Err: io.Discard}, 0, func(int64) {}, func() {})
	first, heard := e.calls.add(e), make(chan struct{})
	go e.hear(heard)
	go e.await(heard)
	return first, nil
}

// ID returns the id of the engine's jail, as in the audit log.
func (e *Engine) ID() string { return string(e.jail.Plan().ID) }

// Jail returns the engine's jail.
func (e *Engine) Jail() *prewarm.Jail { return e.jail }

// hear passes the engine's replies to their calls until the engine ends.
func (e *Engine) hear(heard chan<- struct{}) {
	defer close(heard)
	for {
		var said runners.Reply
		if err := e.jail.Process.Report(&said); err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				e.kill("it sent no proper reply")
			}
			// Without the socket the process is of no use.
			_ = e.jail.Process.Kill()
			return
		}
		e.calls.finish(said)
	}
}

// await waits for the end of the process, then ends its calls and removes the jail.
func (e *Engine) await(heard <-chan struct{}) {
	defer close(e.gone)
	p := e.jail.Process
	var end End
	end.Status, end.Err = p.Wait()
	// Replies that it sent before its end still count.
	_ = p.EndReport()
	<-heard
	var err error
	if end.Usage, err = e.leaf.Usage(); err != nil && end.Err == nil {
		end.Err = err
	}
	e.leaf.Close()
	if reason := e.reason.Load(); reason != nil {
		end.Reason = *reason
	}
	e.end = end
	close(e.ended)
	e.calls.lose()
	e.jail.Close()
}

// kill kills the process, which ends all its invocations. reason is reported in their errors.
func (e *Engine) kill(reason string) {
	e.reason.CompareAndSwap(nil, &reason)
	e.calls.retire()
	// It may have ended by itself.
	_ = e.jail.Process.Kill()
}

// fits reports whether the engine is alive and has the compiled module in dir mounted as cache
// number at.
func (e *Engine) fits(at int, dir string) bool {
	select {
	case <-e.ended:
		return false
	default:
	}
	return at < len(e.caches) && e.caches[at] == dir && !e.jail.Process.Ended()
}

func (e *Engine) leave() {
	if e.calls.leave() {
		e.kill(unneeded)
	}
}

// retire lets the engine end as soon as no invocation uses it, and reports whether it ends now.
func (e *Engine) retire() (idle bool) {
	if idle = e.calls.retire(); idle {
		e.kill(unneeded)
	}
	return idle
}

// unneeded says why an engine that was retired is killed.
const unneeded = "nothing needs it any more"

// watch schedules a check whether the process has used more CPU time than its invocations may. The
// check trusts no report of the engine, except for ended invocations up to their wall time.
func (e *Engine) watch() {
	if e.watched.CompareAndSwap(false, true) {
		time.AfterFunc(watchEvery, e.look)
	}
}

func (e *Engine) look() {
	e.watched.Store(false)
	may, limited := e.calls.cpu()
	if !limited {
		return
	}
	if u, err := e.leaf.Usage(); err == nil && u.CPU > may+ownCPU+u.CPU/ownShare {
		e.kill("it used more CPU time than its invocations may")
		return
	}
	e.watch()
}

func (e *Engine) send(call runners.Call, files ...*os.File) error {
	e.sending.Lock()
	defer e.sending.Unlock()
	return e.jail.Process.Invoke(call, files...)
}
