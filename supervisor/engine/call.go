package engine

import (
	"os"
	"sync"
	"time"

	"github.com/jail-sandbox/jail/jail/tick"
	"github.com/jail-sandbox/jail/runners"
)

// calls has the invocations of an engine. Its methods may be called from several goroutines.
type calls struct {
	mu sync.Mutex
	// running has the started invocations, by ID.
	running map[uint64]*Call
	lastID  uint64
	// busy counts the invocations that use the engine, started or not.
	busy int
	// retired says that no more may enter. The engine ends when it is no longer busy.
	retired bool
	// over says that the process has ended.
	over bool
	// accounted is the CPU time of the invocations that have ended.
	accounted time.Duration
}

// enter adds an invocation to the engine. It returns false if the engine is retired.
func (s *calls) enter(e *Engine) (*Call, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.retired {
		return nil, false
	}
	return s.add(e), true
}

// add returns a new call, which makes the engine busy. s.mu is held, or nothing else uses the
// engine yet.
func (s *calls) add(e *Engine) *Call {
	s.busy++
	s.lastID++
	return &Call{engine: e, id: s.lastID, done: make(chan struct{})}
}

// leave removes an invocation, and reports whether it was the last one of a retired engine.
func (s *calls) leave() (last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy--
	return s.retired && s.busy == 0
}

// retire lets no more invocations enter, and reports whether none is left.
func (s *calls) retire() (idle bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retired = true
	return s.busy == 0
}

// idle reports whether no invocation uses the engine.
func (s *calls) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.busy == 0
}

// start registers a call for its reply. If the process has ended, the call is lost, and start
// returns false.
func (s *calls) start(c *Call) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		c.lose()
		return false
	}
	s.running[c.id] = c
	return true
}

// finish ends the call with the ID of the reply. It ignores a reply to no running call.
func (s *calls) finish(said runners.Reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.running[said.ID]
	if c == nil {
		return
	}
	delete(s.running, said.ID)
	c.answer, c.wall = said.Answer, time.Since(c.begun)
	if r := said.Answer.Report; r != nil {
		// A thread cannot use more CPU time than wall time.
		c.cpu = min(max(time.Duration(r.Usage.CPUNanos), 0), c.wall)
	}
	s.accounted += c.cpu
	close(c.done)
}

// lose ends all running calls as lost, because the process has ended.
func (s *calls) lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	for id, c := range s.running {
		delete(s.running, id)
		c.lose()
	}
}

// cpu returns how much CPU time the invocations may have used so far, by their limits. limited is
// false if no invocation runs, or if a running one has no limit.
func (s *calls) cpu() (may time.Duration, limited bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	may, limited = s.accounted, len(s.running) > 0
	for _, c := range s.running {
		may += c.limit
		limited = limited && c.limit > 0
	}
	return may, limited
}

// A Call is one invocation in an engine.
type Call struct {
	engine *Engine
	id     uint64
	begun  time.Time
	limit  time.Duration
	done   chan struct{}
	// set before done is closed
	answer runners.Answer
	lost   bool
	wall   time.Duration
	cpu    time.Duration

	cancelling sync.Once
	left       sync.Once
}

// Engine returns the engine of the call.
func (c *Call) Engine() *Engine { return c.engine }

// Start sends the invocation to the engine with its descriptors: module, streams and, last, the
// proxy connection, if any. Start sets the ID of order.
func (c *Call) Start(order runners.Call, files ...*os.File) error {
	e := c.engine
	c.begun, c.limit = time.Now(), time.Duration(order.CPUNanos)
	if !e.calls.start(c) {
		return nil
	}
	e.watch()
	order.ID = c.id
	return e.send(order, files...)
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

// Cancel asks the engine to stop the invocation, and kills the engine if it does not within grace.
func (c *Call) Cancel() {
	c.cancelling.Do(func() {
		// The caller does not wait for an engine that reads nothing.
		go func() { _ = c.engine.send(runners.Call{ID: c.id, Cancel: true}) }()
		go func() {
			if tick.Wait(c.done, grace) {
				c.engine.kill("an invocation in it did not stop when it was to end")
			}
		}()
	})
}

// Answer returns the engine's answer, after Done. It comes from inside the jail and is not trusted.
// lost says that the engine ended without one.
func (c *Call) Answer() (answer runners.Answer, lost bool) { return c.answer, c.lost }

// Wall returns how long the invocation took. It is valid after Done.
func (c *Call) Wall() time.Duration { return c.wall }

// CPU returns the CPU time of the invocation's thread, as the engine reports it, at most Wall.
func (c *Call) CPU() time.Duration { return c.cpu }

// End waits for the end of the engine and returns it. It is used for a lost call.
func (c *Call) End() End {
	<-c.engine.ended
	return c.engine.end
}

// Leave releases the engine. It may be called more than once.
func (c *Call) Leave() { c.left.Do(c.engine.leave) }

// lose ends a call without a reply.
func (c *Call) lose() {
	c.lost, c.wall = true, time.Since(c.begun)
	close(c.done)
}
