package supervisor

import (
	"context"
	"sync"
	"time"

	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/supervisor/pool"
)

// A session's calls are the next ones of a kind as any run's are, and more of them is known: the shadow, /tmp, the limits and the policy. So what waits for
// one is whole: every mount and every wall of a call stands, its module is loaded, and all that is left is to hand over the invocation.
//
// What waits uses processes and memory of the session, which are its calls'. So nothing waits beside a call: it is made when none is there, and when one
// comes, what of it the call does not take has no process any more before the tool starts.

// spares are what a session has of jails of the pool. The session's mu guards them.
type spares struct {
	free int                // that may have processes and are no call's: they wait, are being made or on their way out
	all  int                // that are there at all, those of calls among them, until nothing is left of them
	stop context.CancelFunc // ends the making of the one that is being made; the pool makes one at a time
	less sync.Cond          // told when one is gone
}

// room says whether a jail of the kind may be made beside so many of it that wait.
func (k kindOf) room(waiting int) bool {
	if k.in == nil {
		return true
	}
	k.in.mu.Lock()
	defer k.in.mu.Unlock()
	return waiting == 0 && k.in.hasRoom()
}

// maxSpare is how many may wait for a session's calls, of a kind each: all of them end with each call, and are made again after it.
const maxSpare = 2

// hasRoom says whether one more may wait: no more than there could be calls, and while there are none. h.mu is held.
func (h *session) hasRoom() bool {
	return !h.closed && len(h.places) == 0 && h.spare.free < min(maxSpare, cap(h.places))
}

// reserve says that a jail is being made, and what ends that.
func (h *session) reserve(stop context.CancelFunc) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.hasRoom() {
		return pool.ErrNoRoom
	}
	h.spare.free++
	h.spare.all++
	h.spare.stop = stop
	return nil
}

// made says that none is being made any more.
func (h *session) made() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.spare.stop = nil
}

// halt ends the making of a jail, if one is being made.
func (h *session) halt() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.spare.stop != nil {
		h.spare.stop()
	}
}

// take says that a jail is no spare one any more: a call has it, or none of its processes is left. It is told of each once, and so more often is no harm.
func (h *session) take(w *warmJail) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !w.taken {
		w.taken = true
		h.spare.free--
	}
}

// gone says that nothing is left of a jail, or that none was made.
func (h *session) gone(w *warmJail) {
	h.take(w)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.spare.all--
	h.spare.less.Broadcast()
}

func (h *session) crowded() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.spare.free > 0
}

// enters gives a jail that waits to a call, if it waits for the session's.
func (w *warmJail) enters(h *session) bool {
	if w.in != h {
		return false
	}
	if h != nil {
		h.take(w)
	}
	return true
}

// vacate ends a jail's processes, and returns when they have ended.
func (w *warmJail) vacate() {
	leaf, err := cgroup.Open(w.plan.Cgroup.Path)
	if err == nil {
		err = leaf.Kill(killWait)
	}
	if err == nil {
		w.in.take(w)
	} // else it is none before it is gone
}

// alone ends what waits beside a call, and returns when nothing of it runs.
func (r *run) alone() {
	h, p := r.job.in, r.s.pool
	if h == nil || p == nil {
		return
	}
	for h.crowded() {
		if w, ok := p.Take(func(k kindOf) bool { return k.in == h }); ok {
			w.vacate()
			r.s.clear(w.Close)
			continue
		}
		h.halt()
		time.Sleep(time.Millisecond) // it is being made, or on its way out
	}
}

// besides is alone, begun and waited for by what it returns.
func (r *run) besides() (wait func()) {
	if r.job.in == nil || !r.job.in.crowded() {
		return func() {}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.alone()
	}()
	return func() { <-done }
}

// endSpares ends all that waits for calls of a session that lets none begin any more, and returns when nothing is left of it, and of those that
// calls had.
func (s *Supervisor) endSpares(h *session) {
	if s.pool == nil {
		return
	}
	s.pool.Forget(func(k kindOf) bool { return k.in == h })
	h.halt()
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.spare.all > 0 {
		h.spare.less.Wait()
	}
}

func (s *Supervisor) wakePool() {
	if s.pool != nil {
		s.pool.Wake()
	}
}
