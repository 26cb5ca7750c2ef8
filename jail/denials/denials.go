// Package denials tells what Landlock refused in jails. The kernel says so to its audit subsystem,
// of domains whose makers ask for it (Linux 6.15, version 7 of Landlock) and as long as the host's
// audit is on; it says so to any number of readers, of which this is one more. Nothing of the host
// is changed, and nothing inside a jail is asked or able to keep silent.
//
// A domain is known by who made it: the record of its first refusal names the process, by its
// number on the host, and its user, and both are the jail's own while it lives. Each refusal is a
// record; what the host's audit drops under a flood is in the total that the kernel tells when the
// domain has ended.
package denials

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// Bounds of what is kept: whatever is refused anywhere on the host, it costs the memory of so many
// domains and entries.
const (
	// That refused something and have not ended.
	maxDomains = 2048
	// Of them those that are no jail's; of each there is a number.
	maxStranger = 8192
	// Different refusals of a domain before its maker is known.
	maxEarly = 4
	// Different refusals of a jail's domain.
	maxListed = 64
	maxWhat   = 512 // bytes
)

// A source is where records come from.
type source interface {
	Next(f func(kind uint16, text []byte)) error
	Rest(f func(kind uint16, text []byte)) error
	Close() error
}

// A Watcher reads the kernel's records for all jails of a daemon. Its methods may be called from
// several goroutines.
type Watcher struct {
	src source
	// Waits until the kernel has written what it had to write, or reports that it has not.
	idle func(time.Duration) bool
	done chan struct{}

	mu        sync.Mutex
	domains   map[uint64]*domain
	order     []*domain // of domains, oldest first
	strangers map[uint64]bool
	seen      []uint64 // the strangers, oldest first
	jails     map[*Jail]bool
	// How many times records were lost.
	lost int64
}

// A domain refused something and has not ended, as far as is known.
type domain struct {
	id uint64
	// nil as long as its maker is not known
	jail *Jail
	// Of its maker; 0 as above.
	pid   int
	uid   uint32
	tally tally
	ended bool
	total uint64
}

// A Jail is one whose refusals are collected.
type Jail struct {
	w       *Watcher
	pid     int
	base    uint32
	size    uint32
	expects int
	since   int64 // of the watcher's losses
	domains []*domain
	// Has one token where a domain has ended.
	wake chan struct{}
}

// A Refusal is one thing that was refused.
type Refusal struct {
	// What are the rights that were missing, as the kernel calls them, and after a blank the path
	// in the jail; where there is no path what it was is in brackets. Names in it are as a tool
	// chose them. It is "" in the last entry, which counts those that there was no room or record
	// for.
	What        string
	Count       int64
	First, Last time.Time // zero where nobody knows
}

// errPlace says that the records are not for this place: in another process namespace than the
// host's first, numbers of processes mean others.
var errPlace = errors.New("audit: this is not the first process namespace of the host")

// Start begins to read. It needs CAP_AUDIT_READ of the host. Whether the host's audit is on is
// another matter: where it is off, nothing comes.
func Start() (*Watcher, error) {
	abi, err := sys.LandlockABI()
	if err == nil && abi < jail.LandlockTells {
		err = fmt.Errorf("landlock version %d: reports of refusals need %d", abi,
			jail.LandlockTells)
	}
	if err != nil {
		return nil, err
	}
	idle, err := writer()
	if err != nil {
		return nil, err
	}
	src, err := sys.NewAuditReader(typeAccess, typeDomain)
	if err != nil {
		return nil, err
	}
	return start(src, idle), nil
}

// ErrOff says that the kernel makes no records.
var ErrOff = errors.New("the host's audit is off")

// Available returns why the kernel tells nothing of refusals here, or nil. Asking needs root.
func Available() error {
	w, err := Start()
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("only root may read the host's audit: %w", err)
	}
	if err != nil {
		return err
	}
	on, err := sys.AuditOn()
	if err == nil && !on {
		err = ErrOff
	}
	return errors.Join(err, w.Close())
}

func start(src source, idle func(time.Duration) bool) *Watcher {
	w := &Watcher{src: src, idle: idle, done: make(chan struct{}), domains: map[uint64]*domain{},
		strangers: map[uint64]bool{}, jails: map[*Jail]bool{}}
	go w.read()
	return w
}

// Close ends the reading.
func (w *Watcher) Close() error {
	err := w.src.Close()
	<-w.done
	return err
}

func (w *Watcher) read() {
	defer close(w.done)
	for {
		err := w.src.Next(w.take)
		switch {
		case err == nil:
		case errors.Is(err, os.ErrClosed):
			return
		default:
			w.take(sys.AuditLost, nil)
			// An error that does not go away must not cost a processor.
			time.Sleep(time.Millisecond)
		}
	}
}

// Follow collects what is refused by the domains that the process of that number on the host puts
// on itself, as a user of the size ids from base on; expects is how many it puts on. It begins
// before anything of a tool runs there.
func (w *Watcher) Follow(pid int, base, size uint32, expects int) *Jail {
	j := &Jail{w: w, pid: pid, base: base, size: size, expects: expects,
		wake: make(chan struct{}, 1)}
	w.mu.Lock()
	defer w.mu.Unlock()
	j.since = w.lost
	w.jails[j] = true
	for _, d := range w.order {
		j.claim(d)
	}
	return j
}

// claim takes a domain that is the jail's.
func (j *Jail) claim(d *domain) bool {
	if d.jail != nil || d.pid != j.pid || d.uid < j.base || d.uid-j.base >= j.size {
		return false
	}
	d.jail = j
	j.domains = append(j.domains, d)
	return true
}

// take reads one record.
func (w *Watcher) take(kind uint16, text []byte) {
	r, err := parse(kind, string(text))
	w.mu.Lock()
	defer w.mu.Unlock()
	// A record that says that others were lost (AuditLost) is an error, too.
	if err != nil {
		w.lost++
		return
	}
	if w.strangers[r.domain] {
		if r.ended {
			delete(w.strangers, r.domain)
		}
		return
	}
	if r.ended {
		if d := w.domains[r.domain]; d != nil {
			w.end(d, r.total)
		}
		return
	}
	d := w.domain(r.domain)
	switch {
	case d == nil:
		// There is no room for one more domain.
		w.lost++
	case r.made && d.pid == 0:
		w.made(d, r)
	case !r.made:
		most := maxListed
		if d.pid == 0 {
			most = maxEarly
		}
		d.tally.add(r.what, r.at, most)
	}
}

// domain returns what is kept of a domain, of which there is something to keep from now on.
func (w *Watcher) domain(id uint64) *domain {
	if d := w.domains[id]; d != nil {
		return d
	}
	if len(w.order) == maxDomains {
		i := slices.IndexFunc(w.order, func(d *domain) bool { return d.jail == nil })
		if i < 0 {
			return nil
		}
		if w.order[i].pid == 0 {
			// Whose it was is not known.
			w.lost++
		}
		w.forget(w.order[i])
	}
	d := &domain{id: id}
	w.domains[id] = d
	w.order = append(w.order, d)
	return d
}

func (w *Watcher) forget(d *domain) {
	delete(w.domains, d.id)
	if i := slices.Index(w.order, d); i >= 0 {
		w.order = slices.Delete(w.order, i, i+1)
	}
}

// made notes who made a domain.
func (w *Watcher) made(d *domain, r record) {
	d.pid, d.uid = r.pid, r.uid
	for j := range w.jails {
		if j.claim(d) {
			return
		}
	}
	if isJails(d.uid) {
		// It may be followed later.
		return
	}
	w.forget(d)
	if len(w.seen) == maxStranger {
		delete(w.strangers, w.seen[0])
		w.seen = append(w.seen[:0], w.seen[1:]...)
	}
	w.strangers[d.id] = true
	w.seen = append(w.seen, d.id)
}

func (w *Watcher) end(d *domain, total uint64) {
	w.forget(d)
	d.ended, d.total = true, total
	if d.jail == nil {
		return
	}
	select {
	case d.jail.wake <- struct{}{}:
	default:
	}
}

// settle is how long the kernel may take to write the records of past refusals.
const settle = time.Second

// End says what was refused. Its processes must have ended. Where something was, it waits for the
// kernel's totals, bound at most. The counts are exact unless atLeast is set: then records were
// lost, or the kernel was not done with them in time.
func (j *Jail) End(bound time.Duration) (list []Refusal, atLeast bool) {
	w := j.w
	settled := w.idle(settle)
	w.rest()
	timer := time.NewTimer(bound)
	defer timer.Stop()
	for waiting := true; waiting && !j.told(); {
		select {
		case <-j.wake:
		case <-w.done:
			waiting = false
		case <-timer.C:
			waiting = false
		}
	}
	all := j.told()
	j.Drop()
	w.mu.Lock()
	defer w.mu.Unlock()
	return j.list(), !all || (!settled || w.lost > j.since) && len(j.domains) < j.expects
}

// Drop is End where nobody wants to know.
func (j *Jail) Drop() {
	j.w.mu.Lock()
	defer j.w.mu.Unlock()
	delete(j.w.jails, j)
	for _, d := range j.domains {
		if !d.ended {
			j.w.forget(d)
		}
	}
}

// rest takes what the kernel has written and nobody has read.
func (w *Watcher) rest() {
	if w.src.Rest(w.take) != nil {
		w.take(sys.AuditLost, nil)
	}
}

// told reports whether every domain that refused something has ended.
func (j *Jail) told() bool {
	j.w.mu.Lock()
	defer j.w.mu.Unlock()
	return !slices.ContainsFunc(j.domains, func(d *domain) bool { return !d.ended })
}

// list is what all domains of the jail refused.
func (j *Jail) list() []Refusal {
	var sum tally
	for _, d := range j.domains {
		for _, e := range d.tally.entries {
			sum.more(*e, maxListed)
		}
		sum.others += d.tally.others
		if known := d.tally.count(); d.ended && int64(d.total) > known {
			sum.others += int64(d.total) - known
		}
	}
	return sum.list()
}

// A tally counts refusals: by what was refused as long as there is room, then together. Nothing is
// left uncounted. Its zero value is ready.
type tally struct {
	entries map[string]*Refusal
	others  int64
}

func (t *tally) add(what string, at time.Time, most int) {
	if len(what) > maxWhat {
		what = strings.ToValidUTF8(what[:maxWhat], "") + "…"
	}
	t.more(Refusal{what, 1, at, at}, most)
}

func (t *tally) more(r Refusal, most int) {
	e := t.entries[r.What]
	switch {
	case e != nil:
		e.Count += r.Count
		if r.First.Before(e.First) {
			e.First = r.First
		}
		if r.Last.After(e.Last) {
			e.Last = r.Last
		}
	case len(t.entries) < most:
		if t.entries == nil {
			t.entries = map[string]*Refusal{}
		}
		t.entries[r.What] = &r
	default:
		t.others += r.Count
	}
}

func (t *tally) count() int64 {
	n := t.others
	for _, e := range t.entries {
		n += e.Count
	}
	return n
}

// list returns the entries, those with the highest counts first, and after them one for all others.
func (t *tally) list() []Refusal {
	var all []Refusal
	for _, e := range t.entries {
		all = append(all, *e)
	}
	slices.SortFunc(all, func(a, b Refusal) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.What, b.What))
	})
	if t.others > 0 {
		all = append(all, Refusal{Count: t.others})
	}
	return all
}

// isJails reports whether an id of the host is one that jails have.
func isJails(uid uint32) bool {
	return uid >= jail.FirstBase && uid-jail.FirstBase < jail.Bases*jail.BaseSize
}

// writer finds the kernel's thread that writes audit records, and returns how to wait until it has
// nothing to write: who was refused something has woken it before that call returned, so once a
// jail's processes have ended and it sleeps, all of their records are with their readers. A thread
// that waits for a slow auditd sleeps, too, a tenth of a second at most: what is behind that is in
// the totals.
func writer() (idle func(time.Duration) bool, err error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err != nil || pid <= 0 {
			continue
		}
		stat := "/proc/" + e.Name() + "/stat"
		if text, err := os.ReadFile(stat); err == nil && isWriter(text) {
			return func(most time.Duration) bool { return sleeps(stat, most) }, nil
		}
	}
	return nil, errPlace
}

// isWriter reports whether that is the state of the kernel's thread: any process can be called so,
// but only those of the kernel have its parent.
func isWriter(stat []byte) bool {
	// A name may have brackets.
	begin, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if begin < 0 || end < begin {
		return false
	}
	fields := bytes.Fields(stat[end+1:])
	return string(stat[begin+1:end]) == "kauditd" && len(fields) > 1 && string(fields[1]) == "2"
}

// sleeps waits until the thread has been seen asleep twice, but no longer than that.
func sleeps(stat string, most time.Duration) bool {
	seen := 0
	for end := time.Now().Add(most); seen < 2 && time.Now().Before(end); {
		text, err := os.ReadFile(stat)
		if err != nil {
			return false
		}
		if _, rest, ok := bytes.Cut(text, []byte(") ")); ok && len(rest) > 0 && (rest[0] == 'S' ||
			rest[0] == 'I') {
			seen++
		} else {
			seen = 0
		}
		if seen < 2 {
			time.Sleep(time.Millisecond)
		}
	}
	return seen == 2
}
