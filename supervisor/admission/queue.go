// Package admission decides when a run may start: a queue lets in as many runs as the bounds of the
// daemon allow, holds a place for users who have nothing in, takes the users in turn, and the
// sessions of each user in turn.
package admission

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/jail-sandbox/jail/supervisor/config"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// One user may take at most share/shareOf of a bound, so that another user gets in at once.
const (
	shareOf = 8
	share   = 7
)

// most returns how much of a bound one user may take.
func most[N int | int64](bound N) N { return bound/shareOf*share + bound%shareOf*share/shareOf }

// A Queue admits runs: as many as its bounds allow, the users in turn, the sessions of a user in
// turn, and the runs of a session in the order in which they came. The runs of a user outside of
// sessions are in turn as if they were one session.
type Queue struct {
	bounds config.Bounds

	mu     sync.Mutex
	runs   int
	memory int64
	held   map[uint32]holding // by user
	lines  map[uint32]*line
	// The users with a line, the next one first.
	turn    []uint32
	waiting int
	// refused counts the runs that were refused because the daemon is busy.
	refused int64

	// claim is the run that has waited for memory longest, nil while none waits for memory.
	claim *ticket
	// beside is the memory of the runs that were admitted since claim was set.
	beside int64
}

// A holding is how many runs of a user are admitted, and the memory promised to them.
type holding struct {
	runs   int
	memory int64
}

// A line has the waiting runs of a user, in the order of their rounds. Each session has at most one
// run in a round.
type line struct {
	waiting []*ticket
	// round is the round of the run that was admitted last.
	round int
	// admitted maps sessions to the round of their last admitted run, since the line was empty.
	admitted map[string]int
}

// add inserts a run into the first open round without a run of its session, but not before claim.
// claim may be nil.
func (l *line) add(t, claim *ticket) {
	t.round = l.round
	if last, ok := l.admitted[t.session]; ok {
		t.round = max(t.round, last+1)
	}
	place := 0
	for i, other := range l.waiting {
		if other.session == t.session {
			t.round = max(t.round, other.round+1)
		}
		if other.round <= t.round || other == claim {
			place = i + 1
		}
	}
	l.waiting = slices.Insert(l.waiting, place, t)
}

// of returns how many runs of a session wait.
func (l *line) of(session string) (n int) {
	for _, t := range l.waiting {
		if t.session == session {
			n++
		}
	}
	return n
}

// A ticket is a run that is admitted or waits.
type ticket struct {
	uid uint32
	// session is the id of the session, or "".
	session string
	round   int
	runs    int
	memory  int64
	// in is closed when the run is admitted.
	in    chan struct{}
	admit bool
	// passed is the claim that waited when the run was admitted; nil if none did.
	passed *ticket
}

// New returns an empty queue.
func New(b config.Bounds) *Queue {
	return &Queue{bounds: b, held: map[uint32]holding{}, lines: map[uint32]*line{}}
}

// Enter waits until a run is admitted. leave must be called when the run has ended; further calls
// do nothing. session is the id of the session of the run, or "". runs is how many runs it counts
// as; memory is in bytes, and is cut to what one user may have, so that a larger run is admitted
// when its user has nothing else running. Errors have the code busy.
func (q *Queue) Enter(ctx context.Context, uid uint32, session string, runs int,
	memory int64) (leave func(), err error) {
	t := &ticket{uid: uid, session: session, runs: runs,
		memory: min(max(memory, 0), most(q.bounds.Memory)), in: make(chan struct{})}
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

func (q *Queue) join(t *ticket) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lines[t.uid]
	if l == nil {
		l = &line{admitted: map[string]int{}}
	}
	// A user may fill the queue up to its share, so that there is a place for the next one, and a
	// session the share of its user.
	may := most(q.bounds.Waiting)
	if q.waiting >= q.bounds.Waiting || len(l.waiting) >= max(may, 1) ||
		t.session != "" && l.of(t.session) >= max(most(may), 1) {
		if q.lacks(t) != wantNothing || len(l.waiting) > 0 {
			return q.busy(fmt.Sprintf("%d wait already, and no more may", q.waiting))
		}
	}
	if len(l.waiting) == 0 {
		q.turn, q.lines[t.uid] = append(q.turn, t.uid), l
	}
	l.add(t, q.claim)
	q.waiting++
	q.next()
	return nil
}

// A want is why a run is not admitted yet.
type want int

const (
	wantNothing want = iota
	// wantShare: the user has as much as one user may have.
	wantShare
	// wantPlace: as many runs are admitted as the bounds allow.
	wantPlace
	// wantMemory: too little memory is left to promise.
	wantMemory
)

// lacks returns what a run still waits for. While a claim waits for memory, other runs get only the
// memory that the claim leaves, so that it is admitted once the runs before it have ended.
func (q *Queue) lacks(t *ticket) want {
	has := q.held[t.uid]
	switch {
	case t.uid != 0 && (t.runs > 0 && has.runs >= max(most(q.bounds.Runs), 1) ||
		t.memory > most(q.bounds.Memory)-has.memory):
		return wantShare
	case t.runs > 0 && q.runs >= q.bounds.Runs:
		return wantPlace
	case t.memory > q.bounds.Memory-q.memory, q.claim != nil && t != q.claim &&
		t.memory > q.bounds.Memory-q.claim.memory-q.beside:
		return wantMemory
	}
	return wantNothing
}

// next admits every run that may start. A run that lacks a place stops all runs after it, else they
// would pass it for ever. Runs that lack their user's share or memory may be passed.
func (q *Queue) next() {
	for i := 0; i < len(q.turn); {
		t, lacks := q.first(q.lines[q.turn[i]])
		switch lacks {
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

// first returns the run of a line to admit next, and what it waits for. If the head waits for
// memory or its user's share, that is a run of another session that needs no memory and may start:
// an invocation, whose session's jail has its memory already.
func (q *Queue) first(l *line) (*ticket, want) {
	head := l.waiting[0]
	lacks := q.lacks(head)
	if head.memory == 0 || lacks != wantShare && lacks != wantMemory {
		return head, lacks
	}
	seen := map[string]bool{}
	for _, t := range l.waiting {
		if t.memory == 0 && !seen[t.session] && q.lacks(t) == wantNothing {
			return t, wantNothing
		}
		seen[t.session] = true
	}
	return head, lacks
}

// take admits a run of a line and ends the turn of its user.
func (q *Queue) take(t *ticket) {
	l := q.lines[t.uid]
	l.waiting = slices.DeleteFunc(l.waiting, func(other *ticket) bool { return other == t })
	l.round, l.admitted[t.session] = t.round, t.round
	q.endTurn(t.uid)
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

func (q *Queue) unclaim() { q.claim, q.beside = nil, 0 }

// endTurn moves a user to the end of the turn, or out of the turn if the line is empty.
func (q *Queue) endTurn(uid uint32) {
	q.turn = slices.DeleteFunc(q.turn, func(other uint32) bool { return other == uid })
	if len(q.lines[uid].waiting) == 0 {
		delete(q.lines, uid)
		return
	}
	q.turn = append(q.turn, uid)
}

func (q *Queue) leave(t *ticket) {
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

// giveUp takes a waiting run out of its line and returns the error with the code busy. It returns
// nil if the run was admitted meanwhile.
func (q *Queue) giveUp(t *ticket, why string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.admit {
		return nil
	}
	if q.lacks(t) == wantShare {
		why = "you have as much in as one user may have; " + why
	}
	l := q.lines[t.uid]
	l.waiting = slices.DeleteFunc(l.waiting, func(other *ticket) bool { return other == t })
	// After a claim, the next run of the same user takes its turn with the other users.
	if len(l.waiting) == 0 || q.claim == t {
		q.endTurn(t.uid)
	}
	if q.claim == t {
		q.unclaim()
	}
	q.waiting--
	// The others may have waited for this run.
	q.next()
	return q.busy(why)
}

func (q *Queue) busy(why string) error {
	q.refused++
	return problem.New(problem.Busy,
		"jaild is busy: %d of %d runs are active, with %d of %d MiB promised to them; %s", q.runs,
		q.bounds.Runs, q.memory>>20, q.bounds.Memory>>20, why).
		WithHint("try again when other runs have ended: jail ps lists yours; [admission] in " +
			"jaild.toml has the bounds")
}

// A Load is how full a queue is. Memory is in bytes.
type Load struct {
	Runs, Waiting   int
	Memory, Refused int64
}

// Load returns how full the queue is, and how many runs it has refused.
func (q *Queue) Load() Load {
	q.mu.Lock()
	defer q.mu.Unlock()
	return Load{q.runs, q.waiting, q.memory, q.refused}
}

// Bounds returns the bounds of the queue.
func (q *Queue) Bounds() config.Bounds { return q.bounds }

// CompileBounds returns the bounds for jails that compile modules: each of them takes a processor.
func CompileBounds(b config.Bounds) config.Bounds {
	return config.Bounds{
		Runs:    min(runtime.NumCPU(), max(b.Runs, 1)),
		Memory:  b.Memory,
		Waiting: b.Waiting + b.Runs,
		Wait:    max(b.Wait, 2*time.Minute),
	}
}
