package supervisor

import (
	"context"
	"fmt"
	"runtime"
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
	held    map[uint32]int // runs that are in, by user
	lines   map[uint32][]*ticket
	turn    []uint32 // the users with a line, the next one first
	waiting int
	told    int64 // that the daemon is busy
}

// A ticket is a run that is in, or waits.
type ticket struct {
	uid    uint32
	runs   int
	memory int64
	in     chan struct{} // closed when it is
	admit  bool
}

func newQueue(b Bounds) *queue {
	return &queue{bounds: b, held: map[uint32]int{}, lines: map[uint32][]*ticket{}}
}

// enter waits until a run is let in and returns what lets it out again. A run that asks for more memory than there is to promise gets in when it is
// alone.
func (q *queue) enter(ctx context.Context, uid uint32, runs int, memory int64) (leave func(), err error) {
	t := &ticket{uid: uid, runs: runs, memory: min(max(memory, 0), q.bounds.Memory), in: make(chan struct{})}
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
	if most := max(q.bounds.Waiting*share/shareOf, 1); q.waiting >= q.bounds.Waiting || len(line) >= most {
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

// lacks says what a run waits for.
func (q *queue) lacks(t *ticket) want {
	switch {
	case t.runs > 0 && t.uid != 0 && q.held[t.uid] >= max(q.bounds.Runs*share/shareOf, 1):
		return wantShare
	case t.runs > 0 && q.runs >= q.bounds.Runs:
		return wantPlace
	case q.memory+t.memory > q.bounds.Memory:
		return wantMemory
	}
	return wantNothing
}

// next lets in whoever can be. A run that there is no room for is waited for, else small ones would pass it for ever; one whose user has enough is
// passed.
func (q *queue) next() {
	for passed := 0; passed < len(q.turn); {
		uid := q.turn[0]
		t := q.lines[uid][0]
		switch q.lacks(t) {
		case wantNothing:
			q.take(t)
			t.admit = true
			close(t.in)
			passed = 0
		case wantShare:
			q.turn, passed = append(q.turn[1:], uid), passed+1
		default:
			return
		}
	}
}

// take moves the first of a line in, and its user to the end of the turn.
func (q *queue) take(t *ticket) {
	q.turn = q.turn[1:]
	if q.lines[t.uid] = q.lines[t.uid][1:]; len(q.lines[t.uid]) > 0 {
		q.turn = append(q.turn, t.uid)
	} else {
		delete(q.lines, t.uid)
	}
	q.waiting--
	q.runs += t.runs
	q.memory += t.memory
	q.held[t.uid] += t.runs
}

func (q *queue) leave(t *ticket) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.runs -= t.runs
	q.memory -= t.memory
	if q.held[t.uid] -= t.runs; q.held[t.uid] == 0 {
		delete(q.held, t.uid)
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
	line := q.lines[t.uid]
	for i, other := range line {
		if other == t {
			line = append(line[:i:i], line[i+1:]...)
		}
	}
	if q.lines[t.uid] = line; len(line) == 0 {
		delete(q.lines, t.uid)
		for i, uid := range q.turn {
			if uid == t.uid {
				q.turn = append(q.turn[:i:i], q.turn[i+1:]...)
				break
			}
		}
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
// session that stands idle keeps nobody out.
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
