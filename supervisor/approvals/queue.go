package approvals

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// Bounds of a queue.
const (
	// maxPending bounds the number of actions that are not over, and maxAll their total bytes.
	maxPending = 10_000
	maxAll     = 16 << 20
	// maxOwn and maxOwnBytes are the same bounds for one user, so that others have room. They do
	// not bound commits of root, or of the only user of a rootless daemon. See add.
	maxOwn      = 2_000
	maxOwnBytes = 4 << 20
	// maxStored bounds the size of one action, in bytes.
	maxStored = 64 << 10
	maxWords  = 2 << 10
	// maxGrants bounds the grants for the actions of one user.
	maxGrants = 100
	// lifetime is the time after which an action that was not applied expires.
	lifetime = 7 * 24 * time.Hour
	// The last maxOver finished actions of a user are kept, for at most keepOver.
	maxOver  = 500
	keepOver = 7 * 24 * time.Hour
	// maxListed bounds the finished actions in a result of List.
	maxListed = 1_000
	maxOwed   = 1_000
	// spareLines is by how many lines the journal may exceed twice the necessary lines.
	spareLines = 1_000
)

// A Queue holds the actions and grants of a host. Its methods may be called concurrently, and other
// daemons may use the same directory at the same time.
type Queue struct {
	o Options

	mu      sync.Mutex
	journal journal
	actions map[string]*stored
	grants  map[string]*Grant
	tally   tally
	// owed are the records that the audit log may not have yet, by key.
	owed map[string]record
	// tidyAt is the minimum of lines at which tidy compacts. It grows after a failure.
	tidyAt int
	// news is closed and replaced by a new channel when something changes.
	news chan struct{}
	// looked is when until last checked for changes by other daemons.
	looked time.Time
	// fresh are the new pending actions of the current step.
	fresh []Action
}

// Options are the dependencies and settings of a Queue.
type Options struct {
	// Dir is the directory of the journal. It need not exist.
	Dir string
	// Log appends a record and returns once the record is on disk.
	Log interface {
		Append(context.Context, audit.Entry) (uint64, error)
	}
	// Permissions returns the permissions of a caller under the current ceiling.
	Permissions func(caller.Caller) caller.Permissions
	// Commits applies and reverts commits.
	Commits Committer
	// NoMCP refuses decisions via mcp.
	NoMCP bool
	// Notify is called for each new pending action and must not block. It may be nil.
	Notify func(Action)
}

// A record is an entry for the audit log. Key identifies it within the journal.
type record struct {
	Key    string         `json:"key"`
	Run    string         `json:"run,omitempty"`
	Policy string         `json:"policy,omitempty"`
	Actor  audit.Actor    `json:"actor"`
	Event  audit.Approval `json:"event"`
}

// rank sorts the records of an action by state. It is 0 for final states except Reverted.
func (r record) rank() int {
	return map[State]int{Pending: -3, Approved: -2, Applying: -1, Reverting: 1,
		Reverted: 2}[State(r.Event.State)]
}

// New returns the queue in the directory o.Dir. It does not read the journal yet.
func New(o Options) *Queue {
	q := &Queue{o: o, journal: journal{dir: o.Dir}, news: make(chan struct{})}
	q.forget()
	return q
}

func (q *Queue) forget() {
	q.actions, q.grants, q.owed = map[string]*stored{}, map[string]*Grant{}, map[string]record{}
	q.tally, q.tidyAt = tally{own: map[uint32]share{}, over: map[uint32]int{}}, 0
}

// A tally holds counts of the actions of a queue, so that a step need not iterate over them.
type tally struct {
	// all counts the actions that are not over, and own those of each user.
	all share
	own map[uint32]share
	// approved counts the approved commits that the queue has to apply.
	approved int
	// over counts the finished actions of each user.
	over map[uint32]int
	// soonest is a lower bound of the time at which the next action expires.
	soonest time.Time
}

// A share is a number of actions and their total size in bytes.
type share struct{ n, bytes int }

func (s share) plus(n, bytes int) share { return share{s.n + n, s.bytes + bytes} }

// add adds an action to the counts if n is 1, and removes it if n is -1.
func (t *tally) add(a *stored, n int) {
	if a.State.Over() {
		t.over[a.UID] += n
		return
	}
	bytes := n * a.size()
	t.all, t.own[a.UID] = t.all.plus(n, bytes), t.own[a.UID].plus(n, bytes)
	if a.State == Approved && a.Commit != nil {
		t.approved += n
	}
	if t.soonest.IsZero() || a.Expires.Before(t.soonest) {
		t.soonest = a.Expires
	}
}

// take updates the queue with a line of the journal, and wakes those who wait for changes.
func (q *Queue) take(l line) {
	for _, a := range l.Actions {
		if old := q.actions[a.ID]; old != nil {
			q.tally.add(old, -1)
		}
		q.tally.add(a, 1)
		q.actions[a.ID] = a
	}
	for _, g := range l.Grants {
		q.grants[g.ID] = g
	}
	for _, id := range l.Ended {
		delete(q.grants, id)
	}
	for _, r := range l.Records {
		q.owed[r.Key] = r
	}
	for _, key := range l.Recorded {
		delete(q.owed, key)
	}
	close(q.news)
	q.news = make(chan struct{})
}

// step performs one step of the queue under its locks. f reads the current state and returns the
// changes, or an error for none. When step returns nil, the changes are durable and in the audit
// log. If only the audit log failed, the changes are valid, and the next step writes the records
// first.
func (q *Queue) step(f func(now time.Time) (line, error)) (err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	unlock, err := q.journal.lock()
	if err != nil {
		return broken(err)
	}
	defer func() { err = errors.Join(err, unlock()) }()
	err = q.locked(f)
	for _, a := range q.fresh {
		q.o.Notify(a)
	}
	q.fresh = nil
	return err
}

// one performs a step that concerns one action, and returns the action that f returns.
func one(q *Queue, f func(l *line, now time.Time) (*stored, error)) (Action, error) {
	var s *stored
	err := q.step(func(now time.Time) (l line, err error) {
		s, err = f(&l, now)
		return l, err
	})
	return actionOf(s), err
}

// An owedError is the error for a step that is durable, but not yet in the audit log.
type owedError struct{ error }

func (e owedError) Unwrap() error { return e.error }

// unused reports whether no daemon has ever used the queue.
func (q *Queue) unused() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, err := os.Stat(q.journal.path())
	return q.journal.file == nil && errors.Is(err, fs.ErrNotExist)
}

func (q *Queue) locked(f func(now time.Time) (line, error)) error {
	if err := q.journal.catchUp(q.forget, q.take); err != nil {
		return broken(err)
	}
	if err := q.pay(); err != nil {
		return err
	}
	now := time.Now().UTC()
	if err := q.change(q.expired(now)); err != nil {
		return err
	}
	l, err := f(now)
	if err != nil {
		return err
	}
	if err := q.write(l); err != nil {
		return err
	}
	if err := q.pay(); err != nil {
		return owedError{err}
	}
	q.tidy(now)
	return nil
}

// change writes a line to the journal and its records to the audit log.
func (q *Queue) change(l line) error {
	if err := q.write(l); err != nil {
		return err
	}
	return q.pay()
}

// write writes a line to the journal, waits until it is on disk, and applies it to q.
func (q *Queue) write(l line) error {
	if len(l.Actions)+len(l.Grants)+len(l.Ended)+len(l.Records) == 0 {
		return nil
	}
	if err := q.journal.append(l, true); err != nil {
		return broken(err)
	}
	for _, a := range l.Actions {
		if q.o.Notify != nil && a.State == Pending && q.actions[a.ID] == nil {
			q.fresh = append(q.fresh, a.Action)
		}
	}
	q.take(l)
	return nil
}

// pay writes the owed records to the audit log.
func (q *Queue) pay() error {
	if len(q.owed) == 0 {
		return nil
	}
	var paid []string
	var failed error
	for _, key := range slices.SortedFunc(maps.Keys(q.owed), func(a, b string) int {
		return cmp.Or(q.owed[a].rank()-q.owed[b].rank(), strings.Compare(a, b))
	}) {
		r := q.owed[key]
		if _, err := q.o.Log.Append(context.Background(), audit.Entry{Run: r.Run, Policy: r.Policy,
			Actor: r.Actor, Event: r.Event}); err != nil {
			failed = problem.New(problem.Failed, "audit log: %w", err).
				WithHint("make room for the log; nothing is decided without it")
			break
		}
		paid = append(paid, key)
	}
	if len(paid) == 0 {
		return failed
	}
	// If this line is lost, the records are written twice.
	l := line{Recorded: paid}
	if err := q.journal.append(l, false); err != nil {
		return broken(err)
	}
	q.take(l)
	return failed
}

// expired returns a line that moves the actions whose time is over to Expired.
func (q *Queue) expired(now time.Time) (l line) {
	if q.tally.all.n == 0 || now.Before(q.tally.soonest) {
		return l
	}
	q.tally.soonest = time.Time{}
	for _, a := range q.actions {
		switch {
		case a.State.Over() || a.Applying || a.State.claimable():
		case !now.Before(a.Expires) && len(l.Actions) < maxOwed:
			l.move(a, Expired, now, audit.Actor{})
		case q.tally.soonest.IsZero() || a.Expires.Before(q.tally.soonest):
			q.tally.soonest = a.Expires
		}
	}
	if q.tally.soonest.IsZero() {
		// No action can expire now.
		q.tally.soonest = now.Add(lifetime)
	}
	return l
}

// move adds a copy of an action in state to, with its audit record, and returns the copy.
func (l *line) move(a *stored, to State, now time.Time, by audit.Actor) *stored {
	next := *a
	next.State = to
	if to.Over() && to != Reverted {
		next.Ended, next.Applying, next.Before = now, false, ""
		next.Connection, next.Others = "", nil
		next.trim()
	}
	l.Actions = append(l.Actions, &next)
	l.record(&next, by)
	return &next
}

// record adds the audit record for the current state of an action.
func (l *line) record(a *stored, by audit.Actor) {
	e := audit.Approval{ID: a.ID, Action: a.Type, State: string(a.State), SHA256: a.SHA256,
		Summary: a.onRecord(), Outcome: a.Outcome, Error: a.Error}
	if a.State == Pending {
		e.Words = a.Words
	}
	if d := a.Decision; d != nil {
		e.Via, e.Scope, e.Grant = d.Via, d.Scope, d.Grant
	}
	l.Records = append(l.Records, record{Key: a.ID + " " + string(a.State), Run: a.Run,
		Policy: a.Policy, Actor: by, Event: e})
}

// tidy compacts the journal if most lines are obsolete. After a failure it stays as it is.
func (q *Queue) tidy(now time.Time) {
	// need is the number of lines after the compaction.
	need := q.tally.all.n + len(q.grants) + len(q.owed)
	for _, n := range q.tally.over {
		need += min(n, maxOver)
	}
	if q.journal.lines < max(q.tidyAt, spareLines+2*need) {
		return
	}
	var lines []line
	kept, left := map[string]*stored{}, map[uint32]int{}
	for _, a := range slices.SortedFunc(maps.Values(q.actions),
		func(a, b *stored) int { return b.Ended.Compare(a.Ended) }) {
		if a.State.Over() {
			if now.Sub(a.Ended) >= keepOver || left[a.UID] == maxOver {
				continue
			}
			left[a.UID]++
		}
		kept[a.ID] = a
		lines = append(lines, line{Actions: []*stored{a}})
	}
	grants := map[string]*Grant{}
	for id, g := range q.grants {
		if !g.over(now) {
			grants[id] = g
			lines = append(lines, line{Grants: []*Grant{g}})
		}
	}
	for _, r := range q.owed {
		lines = append(lines, line{Records: []record{r}})
	}
	if q.journal.replace(lines) != nil {
		q.tidyAt = q.journal.lines + spareLines
		return
	}
	q.actions, q.grants, q.tally.over, q.tidyAt = kept, grants, left, 0
}

// broken returns the error for a journal that cannot be read or written.
func broken(err error) error {
	hint := "look at the disk of jail's state directory; nothing is decided or applied meanwhile"
	if errors.Is(err, errDamaged) {
		hint = "restore approvals/journal of the state directory from a backup, or move it away to begin with no actions and no grants"
	}
	return problem.New(problem.Failed, "approvals: %w", err).WithHint(hint)
}

// find returns the action with this id, or NotFound if there is none that the caller may see.
func (q *Queue) find(c caller.Caller, id string) (*stored, error) {
	a := q.actions[id]
	if a == nil || !q.o.Permissions(c).SeesAction(a.UID) {
		return nil, problem.New(problem.NotFound, "no action %q waits for an approval, or did", id).
			WithHint("jail approvals lists them")
	}
	return a, nil
}

// add adds a new action to the line and returns it. It is Pending, or Approved if a grant covers
// it. The error says that it is too large or that too many actions are pending.
func (q *Queue) add(l *line, a stored, c caller.Caller, now time.Time) (*stored, error) {
	all, own := q.tally.all, q.tally.own[a.UID]
	s := &a
	s.Connection = c.Connection
	s.ID, s.State, s.Proposed, s.Expires = string(jail.NewID()), Pending, now, now.Add(lifetime)
	s.Summary = s.summarize()
	s.SHA256 = s.digest()
	switch {
	case len(s.Words) > maxWords:
		return nil, problem.New(problem.Usage, "the words of a proposal have %d bytes, at most %d",
			len(s.Words), maxWords)
	case s.size() > maxStored:
		return nil, problem.New(problem.Usage, "the proposal is larger than %d bytes", maxStored).
			WithHint("name directories or patterns in place of single paths")
	case all.n >= maxPending || all.bytes+s.size() > maxAll, a.UID != 0 && !q.o.alone() &&
		(own.n >= maxOwn || own.bytes+s.size() > maxOwnBytes),
		// Other actions than commits may use half of a user's share, even root's: any jail can make
		// them, and what people propose must have room.
		a.Commit == nil && (own.n >= maxOwn/2 || own.bytes+s.size() > maxOwnBytes/2):
		return nil, problem.New(problem.Busy, "too many actions wait for an approval: %d, %d of them of uid %d",
			all.n, own.n, a.UID).WithHint("jail approvals lists them; decide on some")
	}
	l.Actions = append(l.Actions, s)
	l.record(s, c.Actor())
	if g := grantOf(q, s.Action, now); g != nil {
		return l.granted(s, g, now), nil
	}
	return s, nil
}

// grantOf returns a grant that covers the action and whose giver may still approve it, or nil.
func grantOf(q *Queue, a Action, now time.Time) *Grant {
	for _, g := range q.grants {
		if !g.covers(a, now) {
			continue
		}
		giver, _ := caller.Of(g.By)
		if q.o.Permissions(giver).Approve(g.UID) == nil {
			return g
		}
	}
	return nil
}

// granted approves an action with a grant, and uses the grant up once.
func (l *line) granted(s *stored, g *Grant, now time.Time) *stored {
	l.Actions = nil
	next := l.approve(s, Decision{UID: g.By, Via: "grant", Scope: g.Scope, Grant: g.ID, Time: now})
	if g.Uses == 1 {
		l.Ended = append(l.Ended, g.ID)
	} else if g.Uses > 1 {
		left := *g
		left.Uses--
		l.Grants = append(l.Grants, &left)
	}
	return next
}

func (l *line) approve(s *stored, d Decision) *stored {
	approved := *s
	approved.Decision = &d
	return l.move(&approved, Approved, d.Time, d.actor())
}

// size estimates the size of an action in bytes.
func (a *stored) size() int {
	n := 600 + len(a.Summary) + len(a.Words) + sizeOf(a.Others)
	if f := a.Fetch; f != nil {
		n += 200 + len(f.Kind) + len(f.Method) + len(f.URL) + len(f.Body) + len(f.Credential)
	}
	if t := a.Tool; t != nil {
		n += 200 + len(t.Name) + len(t.Directory) + sizeOf(t.Args)
	}
	if t := a.task(); t != nil {
		n += 600 + t.size() + len(a.Outcome) + len(a.Error)
	}
	if c := a.Commit; c != nil {
		n += len(c.Directory) + 64*len(c.Request.Hunks) + sizeOf(c.Protected) +
			sizeOf(c.Request.Paths) + sizeOf(c.Request.Classes)
		for path, hunks := range c.Request.Hunks {
			n += len(path) + 8*len(hunks)
		}
	}
	return n
}

func sizeOf(texts []string) (n int) {
	for _, t := range texts {
		n += 24 + len(t)
	}
	return n
}

// List returns the actions that the caller may see, the eldest first. If all is true, it includes
// the last maxListed finished actions.
func (q *Queue) List(c caller.Caller, all bool) ([]Action, error) {
	out := []Action{}
	may := q.o.Permissions(c)
	var over []Action
	err := q.look(func() error {
		for _, a := range q.actions {
			switch {
			case !may.SeesAction(a.UID):
			case !a.State.Over():
				out = append(out, a.shown())
			case all:
				over = append(over, a.shown())
			}
		}
		return nil
	})
	slices.SortFunc(over, func(a, b Action) int { return b.Ended.Compare(a.Ended) })
	out = append(out, over[:min(len(over), maxListed)]...)
	slices.SortFunc(out, func(a, b Action) int {
		return cmp.Or(a.Proposed.Compare(b.Proposed), strings.Compare(a.ID, b.ID))
	})
	return out, err
}

// look calls f, with the locks held, after reading what other daemons have written. It also writes
// owed audit records and expires actions, as each step does. It applies nothing.
func (q *Queue) look(f func() error) error {
	return q.step(func(time.Time) (line, error) { return line{}, f() })
}

// Get returns the action with this id.
func (q *Queue) Get(c caller.Caller, id string) (a Action, err error) {
	err = q.look(func() error {
		s, err := q.find(c, id)
		a = actionOf(s)
		return err
	})
	return a, err
}

// pollEvery is the interval at which until checks for changes by other daemons. After pollOften
// checks the interval is pollLater.
const (
	pollEvery = 20 * time.Millisecond
	pollOften = 50
	pollLater = 250 * time.Millisecond
)

// Wait waits until the action is neither pending nor about to be applied by the daemon, or ctx
// ends. Then it returns the action, as Get does.
func (q *Queue) Wait(ctx context.Context, c caller.Caller, id string) (Action, error) {
	return until(ctx, q, Action.settled, func() (Action, error) { return q.Get(c, id) })
}

// Changed waits until the Mark of the actions that are not over differs from seen, or ctx ends.
// Then it returns these actions, as List does.
func Changed(ctx context.Context, q *Queue, c caller.Caller, seen string) ([]Action, error) {
	return until(ctx, q, func(all []Action) bool { return Mark(all) != seen },
		func() ([]Action, error) { return q.List(c, false) })
}

// Mark returns a digest of the ids and states of actions. It is never empty.
func Mark(all []Action) string {
	h := sha256.New()
	for _, a := range all {
		fmt.Fprintln(h, a.ID, a.State)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// until calls get after each change, until enough is true or ctx ends, and returns the result.
func until[T any](ctx context.Context, q *Queue, enough func(T) bool,
	get func() (T, error)) (T, error) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for looks := 0; ; {
		q.mu.Lock()
		news := q.news
		q.mu.Unlock()
		a, err := get()
		if err != nil || enough(a) {
			return a, err
		}
		for changed := false; !changed; {
			select {
			case <-ctx.Done():
				return a, nil
			case <-news:
				changed = true
			case <-tick.C:
				if looks++; looks == pollOften {
					tick.Reset(pollLater)
				}
				q.mu.Lock()
				// One waiting call checks for all of them.
				if now := time.Now(); now.Sub(q.looked) >= pollEvery {
					changed, q.looked = q.journal.changed(), now
				}
				q.mu.Unlock()
			}
		}
	}
}

// Grants returns the grants that the caller may see, the eldest first.
func (q *Queue) Grants(c caller.Caller) ([]Grant, error) {
	out := []Grant{}
	may, now := q.o.Permissions(c), time.Now()
	err := q.look(func() error {
		for _, g := range q.grants {
			if may.SeesAction(g.UID) && !g.over(now) {
				out = append(out, *g)
			}
		}
		return nil
	})
	slices.SortFunc(out, func(a, b Grant) int {
		return cmp.Or(a.Given.Compare(b.Given), strings.Compare(a.ID, b.ID))
	})
	return out, err
}

// Revoke revokes the grant with this id. If a policy grant made it, its action becomes Reverted.
func (q *Queue) Revoke(c caller.Caller, id string) (Grant, error) {
	var gone Grant
	err := q.step(func(now time.Time) (line, error) {
		may, g := q.o.Permissions(c), q.grants[id]
		if g == nil || !may.SeesAction(g.UID) {
			return line{}, problem.New(problem.NotFound, "there is no grant %q", id).
				WithHint("jail approvals grants lists them")
		}
		if err := errors.Join(outside(c), may.Approve(g.UID)); err != nil {
			return line{}, err
		}
		gone = *g
		var l line
		l.revoke(g, c.Actor())
		if s := q.actions[g.Action]; s != nil && s.PolicyGrant != nil && s.State == Applied {
			q.Programs().takeGrant(&l, s, now, c.Actor())
		}
		return l, nil
	})
	return gone, err
}

// revoke adds the end of a grant and its audit record to the line.
func (l *line) revoke(g *Grant, by audit.Actor) {
	l.Ended = append(l.Ended, g.ID)
	l.Records = append(l.Records, record{Key: g.ID + " revoked", Run: g.Run, Actor: by,
		Event: audit.Approval{ID: g.Action, Action: g.Type, State: "revoked", Scope: g.Scope,
			Grant: g.ID}})
}

// EndRun revokes the grants for a run or session. Call it when a session has ended for good or a
// shadow has been removed.
func (q *Queue) EndRun(run string) error {
	return endGrants(q, run, func(g *Grant) bool { return true })
}

// endGrants revokes the grants for a run for which ends is true. It sets RunEnded for the run's
// actions, except commits, that are not over or were rejected: no new grant is made for the run,
// and a rejection no longer counts.
func endGrants(q *Queue, run string, ends func(*Grant) bool) error {
	if q.unused() {
		return nil
	}
	return q.step(func(time.Time) (l line, err error) {
		for _, g := range q.grants {
			if g.Run == run && ends(g) {
				l.revoke(g, audit.Actor{})
			}
		}
		for _, a := range q.actions {
			if a.Run == run && a.Commit == nil && !a.RunEnded &&
				(!a.State.Over() || a.State == Rejected) {
				next := *a
				next.RunEnded = true
				l.Actions = append(l.Actions, &next)
			}
		}
		return l, nil
	})
}

// Applies reports whether an approved commit of a run has not been applied yet. It returns true if
// the queue cannot be read.
func (q *Queue) Applies(run string) bool {
	if q.unused() {
		return false
	}
	applies := false
	err := q.look(func() error {
		for _, a := range q.actions {
			applies = applies || a.State == Approved && a.Commit != nil && a.Run == run
		}
		return nil
	})
	return applies || err != nil
}

// roomForGrant removes the expired grants of a user, and returns an error if maxGrants remain.
func (q *Queue) roomForGrant(l *line, uid uint32, now time.Time) error {
	n := 0
	for id, g := range q.grants {
		switch {
		case g.UID != uid:
		case g.over(now):
			l.Ended = append(l.Ended, id)
		default:
			n++
		}
	}
	if n >= maxGrants {
		return problem.New(problem.Busy,
			"there are %d grants for actions of uid %d, the most there may be", n, uid).WithHint("jail approvals revoke ends one")
	}
	return nil
}
