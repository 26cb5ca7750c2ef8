// Package denials collects what Landlock refused in jails. The kernel writes audit records of
// refusals for domains that ask for it (Linux 6.15, Landlock ABI 7) while the host's audit is on.
// This package reads them as an additional multicast reader. It changes nothing on the host, and
// nothing inside a jail can suppress a record.
//
// A domain is matched to its jail by the process that created it: with the domain's first refusal
// the kernel reports the creator's host PID and user, which no other jail has. Each refusal is one
// record. If audit drops records, the total that the kernel reports at the end of the domain still
// counts them.
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

// Limits of the memory that records can take, whatever is refused anywhere on the host.
const (
	// Domains that refused something and have not ended.
	maxDomains = 2048
	// Domains that belong to no jail. Only their ids are kept.
	maxStranger = 8192
	// Different refusals of a domain before its creator is known.
	maxEarly = 4
	// Different refusals of a jail's domain.
	maxListed = 64
	maxWhat   = 512 // bytes
)

// A source delivers the kernel's audit records; see sys.AuditReader.
type source interface {
	Next(f func(kind uint16, text []byte)) error
	Rest(f func(kind uint16, text []byte)) error
	Close() error
}

// A Watcher reads the kernel's records for all jails of a daemon. Its methods may be called from
// several goroutines.
type Watcher struct {
	src source
	// idle waits until the kernel has written all pending records. It reports false after the
	// timeout.
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

// A domain is a Landlock domain that refused something.
type domain struct {
	id uint64
	// nil while the creator is unknown or has no followed jail
	jail *Jail
	// Host PID of the creator, 0 while unknown.
	pid   int
	uid   uint32
	tally tally
	ended bool
	total uint64
}

// A Jail collects the refusals of one jail, from Follow to End or Drop.
type Jail struct {
	w       *Watcher
	pid     int
	base    uint32
	size    uint32
	expects int
	since   int64 // of the watcher's losses
	domains []*domain
	// Receives one value when a domain of the jail has ended.
	wake chan struct{}
}

// A Refusal is one thing that was refused.
type Refusal struct {
	// What holds the kernel's names of the missing rights, then a blank and the path in the jail,
	// or the object in brackets if it has no path; see whatOf. Tools choose the names in it. It is
	// "" in an entry that counts all refusals that have no entry of their own.
	What        string
	Count       int64
	First, Last time.Time // zero if unknown
}

// errPlace is returned outside of the initial PID namespace, whose PIDs the records hold.
var errPlace = errors.New("audit: this is not the first process namespace of the host")

// Start returns a Watcher that reads the records from now on. It needs CAP_AUDIT_READ on the host
// and an ABI of Landlock that reports. If the host's audit is off there is no error, and no records
// come.
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

// ErrOff is returned by Available if the kernel makes no audit records.
var ErrOff = errors.New("the host's audit is off")

// Available returns nil if the kernel reports refusals here, and otherwise the reason why not. It
// needs root.
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

// Close stops the Watcher and waits for its goroutine.
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
			// Do not spin on a permanent error.
			time.Sleep(time.Millisecond)
		}
	}
}

// Follow collects the refusals of the domains that process pid of the host creates for itself while
// its uid is one of the size ids from base on. expects is the number of these domains. Call it
// before the tool runs.
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

// claim adds d to the jail if the jail's process created it, and reports whether it did.
func (j *Jail) claim(d *domain) bool {
	if d.jail != nil || d.pid != j.pid || d.uid < j.base || d.uid-j.base >= j.size {
		return false
	}
	d.jail = j
	j.domains = append(j.domains, d)
	return true
}

// take handles one record of the kernel.
func (w *Watcher) take(kind uint16, text []byte) {
	r, err := parse(kind, string(text))
	w.mu.Lock()
	defer w.mu.Unlock()
	// AuditLost, which says that records were lost, does not parse either.
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

// domain returns the entry of a domain and adds one if it is new. It returns nil if all entries
// belong to jails.
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
			// It may have been a jail's.
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

// made records the creator of a domain, and drops domains that belong to no jail.
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

// End returns what was refused and ends the collection. The jail's processes must have ended. If
// something was refused, End waits at most bound for the kernel's totals. The counts are exact
// unless atLeast is true: then records were lost or did not come in time.
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

// Drop ends the collection without a result.
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

// rest handles all records that are queued now.
func (w *Watcher) rest() {
	if w.src.Rest(w.take) != nil {
		w.take(sys.AuditLost, nil)
	}
}

// told reports whether the kernel has reported the end, and so the total, of every domain of the
// jail.
func (j *Jail) told() bool {
	j.w.mu.Lock()
	defer j.w.mu.Unlock()
	return !slices.ContainsFunc(j.domains, func(d *domain) bool { return !d.ended })
}

// list returns the refusals of all domains of the jail, joined by What.
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

// A tally counts refusals by What up to a number of entries, and all others together. The zero
// value is ready to use.
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

// isJails reports whether uid is in the range of host ids that jails use.
func isJails(uid uint32) bool {
	return uid >= jail.FirstBase && uid-jail.FirstBase < jail.Bases*jail.BaseSize
}

// writer finds kauditd, the kernel thread that writes audit records, and returns a function that
// waits until kauditd sleeps. A refused call wakes kauditd before it returns, so once a jail's
// processes have ended and kauditd sleeps, all their records are delivered. kauditd also sleeps up
// to 0.1 s for a slow auditd; the totals cover the records behind that. The error is errPlace if
// there is no kauditd.
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

// isWriter reports whether stat, the text of a /proc/PID/stat, is kauditd's. Any process can have
// this name, but only kernel threads have kthreadd (2) as their parent.
func isWriter(stat []byte) bool {
	// A name may have brackets.
	begin, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if begin < 0 || end < begin {
		return false
	}
	fields := bytes.Fields(stat[end+1:])
	return string(stat[begin+1:end]) == "kauditd" && len(fields) > 1 && string(fields[1]) == "2"
}

// sleeps reads a stat file until it has shown the thread asleep twice in a row. It reports false if
// that takes longer than most.
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
