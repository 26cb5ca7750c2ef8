package supervisor

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"
)

// Bounds say how much runs at one time, and how much may wait for that.
type Bounds struct {
	Runs    int           // at one time
	Memory  int64         // bytes promised to them: their limits, all together
	Waiting int           // runs that wait; one more is told that the daemon is busy
	Wait    time.Duration // how long one may wait
	Warm    int           // jails that stand and wait for runs; 0: none

	Connections int // of clients, at one time
	Compile     int // how many times the usual time a module may take to compile; 0 is 1

	Cache int64 // bytes of compiled modules that are kept; 0 is 4 GiB
}

// A user that is not alone may take so much of a bound, and no more: the rest is where everybody else gets in at once.
const (
	shareOf = 8 // parts
	share   = 7 // of them
)

// most is what one user may take of a bound.
func most[N int | int64](bound N) N {
	return bound/shareOf*share + bound%shareOf*share/shareOf
}

// DefaultBounds are those for a host with so many bytes of memory and a daemon with so many descriptors. Limits of memory are upper bounds that few
// runs come near to, and each is held by the kernel: so four times what the host has may be promised.
func DefaultBounds(memory int64, descriptors uint64) Bounds {
	const (
		perRun = 32 // descriptors of the daemon
		own    = 48 // of them, for itself and what it turns away
	)
	connections := min(max(descriptors/8, 16), 4096)
	runs := int(min(max((max(descriptors, own+connections)-own-connections)/perRun, 1), 1024))
	return Bounds{Runs: runs, Memory: max(memory, 1<<30) * 4, Waiting: min(1024, runs*4), Wait: 30 * time.Second,
		Warm: int(min(int64(runtime.NumCPU())*4, memory/perWarm, int64(runs/2), maxWarm)), Connections: int(connections)}
}

// Of jails that wait there are four for each processor, if the host has a gibibyte for each: one takes some hundredths of that.
const (
	perWarm = 1 << 30
	maxWarm = 64
)

// A queue lets runs in: as many as its bounds allow, those of each user in the order in which they came, and the users in turn.
type queue struct {
	bounds Bounds

	mu      sync.Mutex
	runs    int
	memory  int64
	held    map[uint32]holding // by user
	lines   map[uint32][]*ticket
	turn    []uint32 // the users with a line, the next one first
	waiting int
	told    int64 // that the daemon is busy

	claim  *ticket // the run whose turn it was first of those that wait for memory, nil while none does
	beside int64   // memory of those that were let in since then
}

// A holding is what a user has in.
type holding struct {
	runs   int
	memory int64
}

// A ticket is a run that is in, or waits.
type ticket struct {
	uid    uint32
	runs   int
	memory int64
	in     chan struct{} // closed when it is
	admit  bool
	passed *ticket // the claim that it was let in beside
}

func newQueue(b Bounds) *queue {
	return &queue{bounds: b, held: map[uint32]holding{}, lines: map[uint32][]*ticket{}}
}

// enter waits until a run is let in and returns what lets it out again. A run that asks for more memory than one user may have promised counts as all
// of that, and so gets in when its user has nothing else in.
func (q *queue) enter(ctx context.Context, uid uint32, runs int, memory int64) (leave func(), err error) {
	t := &ticket{uid: uid, runs: runs, memory: min(max(memory, 0), most(q.bounds.Memory)), in: make(chan struct{})}
	if err := q.join(t); err != nil {
		return nil, err
	}
	timer := time.NewTimer(q.bounds.Wait)
	defer timer.Stop()
	select {
	case <-t.in:
	case <-timer.C:
		err = q.giveUp(t, fmt.Sprintf("nothing became free within %v", q.bounds.Wait))
	case <-ctx.Done():
		err = q.giveUp(t, context.Cause(ctx).Error())
	}
	if err != nil {
		return nil, err
	}
	return sync.OnceFunc(func() { q.leave(t) }), nil
}

func (q *queue) join(t *ticket) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	line := q.lines[t.uid]
	// A user may fill the queue up to its share, so that there is a place for the next one.
	if q.waiting >= q.bounds.Waiting || len(line) >= max(most(q.bounds.Waiting), 1) {
		if q.lacks(t) != wantNothing || len(line) > 0 {
			return q.busy(fmt.Sprintf("%d wait already, and no more may", q.waiting))
		}
	}
	if len(line) == 0 {
		q.turn = append(q.turn, t.uid)
	}
	q.lines[t.uid] = append(line, t)
	q.waiting++
	q.next()
	return nil
}

// Why a run is not let in yet.
type want int

const (
	wantNothing want = iota
	wantShare        // its user has as much as one may
	wantPlace        // as many runs as may are in
	wantMemory       // there is too little to promise
)

// lacks says what a run waits for. Beside a run that waits for memory there is only what that one leaves: so it is let in when those have left that
// were in before it, whatever comes after it.
func (q *queue) lacks(t *ticket) want {
	has := q.held[t.uid]
	switch {
	case t.uid != 0 && (t.runs > 0 && has.runs >= max(most(q.bounds.Runs), 1) || t.memory > most(q.bounds.Memory)-has.memory):
		return wantShare
	case t.runs > 0 && q.runs >= q.bounds.Runs:
		return wantPlace
	case t.memory > q.bounds.Memory-q.memory, q.claim != nil && t != q.claim && t.memory > q.bounds.Memory-q.claim.memory-q.beside:
		return wantMemory
	}
	return wantNothing
}

// next lets in whoever can be. A run that there is no place for is waited for, else others would pass it for ever; one whose user has enough is passed,
// and so is one that waits for memory, by those that there is room for beside it.
func (q *queue) next() {
	for i := 0; i < len(q.turn); {
		t := q.lines[q.turn[i]][0]
		switch q.lacks(t) {
		case wantNothing:
			q.take(t)
			i = 0
			continue
		case wantPlace:
			return
		case wantMemory:
			if q.claim == nil {
				q.claim = t
			}
		}
		i++
	}
}

// take lets in the first of a line, and its user's turn is over.
func (q *queue) take(t *ticket) {
	q.endTurn(t.uid, q.lines[t.uid][1:])
	if q.claim == t {
		q.unclaim()
	} else if q.claim != nil {
		t.passed = q.claim
		q.beside += t.memory
	}
	has := q.held[t.uid]
	q.held[t.uid] = holding{has.runs + t.runs, has.memory + t.memory}
	q.waiting--
	q.runs += t.runs
	q.memory += t.memory
	t.admit = true
	close(t.in)
}

func (q *queue) unclaim() { q.claim, q.beside = nil, 0 }

// endTurn moves a user to the end of the turn with what is left of its line, or out of it.
func (q *queue) endTurn(uid uint32, line []*ticket) {
	q.turn = slices.DeleteFunc(q.turn, func(other uint32) bool { return other == uid })
	if len(line) == 0 {
		delete(q.lines, uid)
		return
	}
	q.turn = append(q.turn, uid)
	q.lines[uid] = line
}

func (q *queue) leave(t *ticket) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.runs -= t.runs
	q.memory -= t.memory
	has := q.held[t.uid]
	if has = (holding{has.runs - t.runs, has.memory - t.memory}); has == (holding{}) {
		delete(q.held, t.uid)
	} else {
		q.held[t.uid] = has
	}
	if t.passed != nil && t.passed == q.claim {
		q.beside -= t.memory
	}
	q.next()
}

// giveUp takes a run out of its line, or nothing where it was let in meanwhile: then it may as well run.
func (q *queue) giveUp(t *ticket, why string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.admit {
		return nil
	}
	if q.lacks(t) == wantShare {
		why = "you have as much in as one user may have; " + why
	}
	line := slices.DeleteFunc(q.lines[t.uid], func(other *ticket) bool { return other == t })
	if len(line) == 0 || q.claim == t { // nor is its user's next one waited for at once
		q.endTurn(t.uid, line)
	} else {
		q.lines[t.uid] = line
	}
	if q.claim == t {
		q.unclaim()
	}
	q.waiting--
	q.next() // it may have been what others waited for
	return q.busy(why)
}

func (q *queue) busy(why string) error {
	q.told++
	return &Error{Code: CodeBusy, Message: fmt.Sprintf("jaild is busy: %d of %d runs are active, with %d of %d MiB promised to them; %s",
		q.runs, q.bounds.Runs, q.memory>>20, q.bounds.Memory>>20, why), Hint: "try again when other runs have ended: jail ps lists yours; [admission] in jaild.toml has the bounds"}
}

// load is how full the queue is.
type load struct {
	runs, waiting int
	memory, told  int64
}

func (q *queue) load() load {
	q.mu.Lock()
	defer q.mu.Unlock()
	return load{q.runs, q.waiting, q.memory, q.told}
}

// admit waits until the run may start. The jail that holds a session only promises memory, and what runs in a session has its memory of that: so a
// session that stands idle takes no place.
func (r *run) admit(ctx context.Context) (leave func(), err error) {
	runs, memory := 1, r.job.eff.Policy().Limits.Memory
	switch {
	case r.job.hold != nil:
		runs = 0
	case r.job.in != nil:
		memory = 0
	}
	return r.s.queue.enter(ctx, r.job.caller.UID, runs, memory)
}
