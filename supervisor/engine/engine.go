// Package engine has the shared engines of a session: standing processes, each in a jail of the
// session, in which the WebAssembly invocations of one policy run as instances of their modules.
//
//	Set.Take    an engine for an invocation: the one that stands, or a new one
//	Call.Start  hand the invocation over
//	Call.Done   the engine has replied, or has ended
//
// An invocation has an instance, a memory, descriptors and a file view of its own. It shares the
// process, the jail and the control group with the others in its engine, so their isolation from
// each other rests on the WebAssembly engine, while that from everything else rests on the jail.
package engine

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/prewarm"
	"github.com/jail-sandbox/jail/supervisor/stdio"
)

// grace is how long an engine may take to stop an invocation that was cancelled. Then the whole
// engine is killed.
const grace = 2 * time.Second

// Bounds of the CPU time that an engine as a whole may use, beside what its invocations may.
const (
	watchEvery = time.Second
	ownCPU     = 2 * time.Second
	// ownShare is the part of all its CPU time that an engine may use for itself, as for collecting
	// garbage: one in so many.
	ownShare = 4
)

// An Engine is one process. Its methods may be called from several goroutines.
type Engine struct {
	jail *prewarm.Jail
	leaf *cgroup.Leaf
	// caches are the directories of the compiled modules that the jail has, in order.
	caches []string

	// sending is held while a call is sent.
	sending sync.Mutex

	mu    sync.Mutex
	calls map[uint64]*Call
	next  uint64
	// busy counts the invocations that have been given the engine.
	busy int
	// retired: it ends when it is not busy any more.
	retired bool
	// accounted is the CPU time of the invocations that have ended.
	accounted time.Duration
	watching  bool
	// reason says why the daemon killed it.
	reason string

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
	// Reason says why the daemon killed it, or is empty.
	Reason string
	// Refused are the system calls that the kernel refused it.
	Refused []control.Refused
	Err     error
}

// stand makes an engine of a jail that was made for it, and returns the first call to it. So the
// engine is busy before others see it, and nobody ends it as an idle one.
func stand(j *prewarm.Jail, caches []string) (*Call, error) {
	e := &Engine{jail: j, caches: caches, calls: map[uint64]*Call{}, ended: make(chan struct{}),
		gone: make(chan struct{})}
	var err error
	if e.leaf, err = cgroup.Open(j.Plan().Cgroup.Path); err == nil {
		err = j.Process.Invoke(runners.Order{Serve: true})
	}
	if err != nil {
		j.Close()
		return nil, fmt.Errorf("start of a shared engine: %w", err)
	}
	// Nobody reads what the process itself writes, as when it crashes.
	j.Pipes.Start(stdio.Streams{Out: discard{}, Err: discard{}}, 0, func(int64) {}, func() {})
	first, heard := e.call(), make(chan struct{})
	go e.hear(heard)
	go e.await(heard)
	return first, nil
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// ID is the name of the engine's jail, as records give it.
func (e *Engine) ID() string { return string(e.jail.Plan().ID) }

// Jail returns the engine's jail.
func (e *Engine) Jail() *prewarm.Jail { return e.jail }

// hear passes on the replies of the engine until its end.
func (e *Engine) hear(heard chan<- struct{}) {
	defer close(heard)
	for {
		var said runners.Reply
		if err := e.jail.Process.Report(&said); err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				e.kill("it sent no proper reply")
			}
			// At the end of the socket the process ends, too; else nobody would hear it.
			_ = e.jail.Process.Kill()
			return
		}
		e.mu.Lock()
		c := e.calls[said.ID]
		delete(e.calls, said.ID)
		if c != nil {
			c.answer = said.Answer
			c.wall = time.Since(c.begun)
			if r := said.Answer.Report; r != nil {
				// A thread uses no more than the time that passes.
				c.cpu = min(max(time.Duration(r.Usage.CPUNanos), 0), c.wall)
			}
			e.accounted += c.cpu
		}
		e.mu.Unlock()
		if c != nil {
			close(c.done)
		}
	}
}

// await waits for the end of the process, and tells the invocations in it.
func (e *Engine) await(heard <-chan struct{}) {
	defer close(e.gone)
	p := e.jail.Process
	var end End
	end.Status, end.Err = p.Wait()
	end.Refused = p.Refused()
	// What it has said before its end still counts.
	_ = p.EndReport()
	<-heard
	var err error
	if end.Usage, err = e.leaf.Usage(); err != nil && end.Err == nil {
		end.Err = err
	}
	e.leaf.Close()
	e.mu.Lock()
	end.Reason = e.reason
	e.end = end
	close(e.ended)
	for id, c := range e.calls {
		delete(e.calls, id)
		c.lost, c.wall = true, time.Since(c.begun)
		close(c.done)
	}
	e.mu.Unlock()
	e.jail.Close()
}

// kill ends the process and all invocations in it. reason says why, in the words of a record.
func (e *Engine) kill(reason string) {
	e.mu.Lock()
	if e.reason == "" {
		e.reason = reason
	}
	e.mu.Unlock()
	// It may have ended by itself.
	_ = e.jail.Process.Kill()
}

// fits reports whether the engine can take an invocation whose module is in dir, the at-th of its
// caches.
func (e *Engine) fits(at int, dir string) bool {
	select {
	case <-e.ended:
		return false
	default:
	}
	return at < len(e.caches) && e.caches[at] == dir && !e.jail.Process.Ended()
}

// enter makes the engine busy with one more invocation, unless it is being ended.
func (e *Engine) enter() (*Call, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.retired || e.reason != "" {
		return nil, false
	}
	return e.call(), true
}

// call returns a new call, which makes the engine busy. e.mu is held, or nothing else uses the
// engine yet.
func (e *Engine) call() *Call {
	e.busy++
	e.next++
	return &Call{engine: e, id: e.next, done: make(chan struct{})}
}

func (e *Engine) leave() {
	e.mu.Lock()
	e.busy--
	end := e.retired && e.busy == 0
	e.mu.Unlock()
	if end {
		e.kill("nothing needs it any more")
	}
}

// retire ends the engine when no invocation is in it, and reports whether that is now.
func (e *Engine) retire() (idle bool) {
	e.mu.Lock()
	e.retired = true
	idle = e.busy == 0
	e.mu.Unlock()
	if idle {
		e.kill("nothing needs it any more")
	}
	return idle
}

// isIdle reports whether no invocation is in the engine.
func (e *Engine) isIdle() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.busy == 0
}

// watch looks now and then, while invocations run, whether the process has used more CPU time than
// all of them may. It relies on nothing that the inside says but, for those that have ended, on no
// more than the time that has passed.
func (e *Engine) watch() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.watching {
		return
	}
	e.watching = true
	time.AfterFunc(watchEvery, e.look)
}

func (e *Engine) look() {
	e.mu.Lock()
	e.watching = false
	may, limited := e.accounted, len(e.calls) > 0
	for _, c := range e.calls {
		may += c.limit
		limited = limited && c.limit > 0
	}
	e.mu.Unlock()
	if !limited {
		return
	}
	if u, err := e.leaf.Usage(); err == nil && u.CPU > may+ownCPU+u.CPU/ownShare {
		e.kill("it used more CPU time than its invocations may")
		return
	}
	e.watch()
}

// A Call is one invocation in an engine.
type Call struct {
	engine *Engine
	id     uint64
	begun  time.Time
	limit  time.Duration
	done   chan struct{}
	// after done
	answer runners.Answer
	lost   bool
	wall   time.Duration
	cpu    time.Duration

	cancelling sync.Once
	left       sync.Once
}

// Engine returns the engine of the call.
func (c *Call) Engine() *Engine { return c.engine }

// Start hands the invocation over, with its module, its streams and, last, its socket to the fetch
// proxy, if it has one. order is the invocation without its ID, which Start sets.
func (c *Call) Start(order runners.Call, files ...*os.File) error {
	e := c.engine
	e.mu.Lock()
	select {
	case <-e.ended:
		c.lost = true
		close(c.done)
		e.mu.Unlock()
		return nil
	default:
	}
	c.begun, c.limit = time.Now(), time.Duration(order.CPUNanos)
	e.calls[c.id] = c
	e.mu.Unlock()
	e.watch()
	order.ID = c.id
	return e.send(order, files...)
}

func (e *Engine) send(call runners.Call, files ...*os.File) error {
	e.sending.Lock()
	defer e.sending.Unlock()
	return e.jail.Process.Invoke(call, files...)
}

// Done returns a channel that is closed when the invocation has ended.
func (c *Call) Done() <-chan struct{} { return c.done }

// Ended reports whether the invocation has ended.
func (c *Call) Ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// Cancel has the engine stop the invocation, and kills the engine if it has not done so in time.
func (c *Call) Cancel() {
	c.cancelling.Do(func() {
		// The caller does not wait for an engine that reads nothing.
		go func() { _ = c.engine.send(runners.Call{ID: c.id, Cancel: true}) }()
		go func() {
			timer := time.NewTimer(grace)
			defer timer.Stop()
			select {
			case <-c.done:
			case <-timer.C:
				c.engine.kill("an invocation in it did not stop when it was to end")
			}
		}()
	})
}

// Answer returns what the engine said of the end, after Done. It comes from inside. lost says that
// the engine has ended before it said anything.
func (c *Call) Answer() (answer runners.Answer, lost bool) { return c.answer, c.lost }

// Wall returns how long the invocation took, and CPU what its thread used of that, as the engine
// says.
func (c *Call) Wall() time.Duration { return c.wall }

// CPU is documented at Wall.
func (c *Call) CPU() time.Duration { return c.cpu }

// End returns how the engine ended, of a call that was lost.
func (c *Call) End() End {
	<-c.engine.ended
	return c.engine.end
}

// Leave gives the engine back. It may be called more than once.
func (c *Call) Leave() { c.left.Do(c.engine.leave) }
