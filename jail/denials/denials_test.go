package denials

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// kernel stands in for the kernel's side: what was put is read at the latest when Rest is called,
// as there.
type kernel struct {
	mu    sync.Mutex
	queue []message
	put   chan struct{}
	ended chan struct{}
	busy  bool // it writes and writes
}

type message struct {
	kind uint16
	text string
}

func (k *kernel) Next(f func(uint16, []byte)) error {
	for {
		k.mu.Lock()
		if len(k.queue) > 0 {
			defer k.mu.Unlock()
			return k.one(f)
		}
		k.mu.Unlock()
		select {
		case <-k.put:
		case <-k.ended:
			return os.ErrClosed
		}
	}
}

func (k *kernel) one(f func(uint16, []byte)) error {
	next := k.queue[0]
	k.queue = k.queue[1:]
	f(next.kind, []byte(next.text))
	return nil
}

func (k *kernel) Rest(f func(uint16, []byte)) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for len(k.queue) > 0 {
		_ = k.one(f) // it has no error
	}
	return nil
}

func (k *kernel) Close() error { close(k.ended); return nil }

func (k *kernel) say(all ...message) {
	k.mu.Lock()
	k.queue = append(k.queue, all...)
	k.mu.Unlock()
	select {
	case k.put <- struct{}{}:
	default:
	}
}

func watch(t *testing.T) (*kernel, *Watcher) {
	k := &kernel{put: make(chan struct{}, 1), ended: make(chan struct{})}
	w := start(k, func(time.Duration) bool { return !k.busy })
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		if len(w.jails) > 0 || len(w.order) != len(w.domains) {
			t.Errorf("left: %d jails, %d domains, %d in order", len(w.jails), len(w.domains),
				len(w.order))
		}
	})
	return k, w
}

func accessTo(domain int, path string) message {
	return message{typeAccess,
		fmt.Sprintf(`audit(5.000:1): domain=%x blockers=fs.read_file path="%s" dev="tmpfs" ino=1`,
			domain, path)}
}

func madeBy(domain, pid int, uid uint32) message {
	return message{typeDomain,
		fmt.Sprintf(
			`audit(5.000:1): domain=%x status=allocated mode=enforcing pid=%d uid=%d exe="/run/jail/init" comm="init"`, domain, pid, uid)}
}

func endOf(domain, total int) message {
	return message{typeDomain,
		fmt.Sprintf(`audit(6.000:1): domain=%x status=deallocated denials=%d`, domain, total)}
}

const (
	base = uint32(jail.FirstBase)
	size = uint32(jail.BaseSize)
	soon = time.Millisecond
	// Nobody waits so long: what is waited for has been said.
	long = time.Minute
)

var lost = message{sys.AuditLost, ""}

// counts are those of a list by what, with "" for the rest.
func counts(list []Refusal) map[string]int64 {
	all := map[string]int64{}
	for _, r := range list {
		all[r.What] += r.Count
	}
	return all
}

func TestJail(t *testing.T) {
	type jailed struct {
		pid     int
		base    uint32
		expects int
		bound   time.Duration
		want    map[string]int64
		atLeast bool
	}
	for _, c := range []struct {
		name string
		said []message
		jailed
	}{
		{"nothing", nil, jailed{7, base, 1, long, map[string]int64{}, false}},
		{"one", []message{accessTo(1, "/a"), madeBy(1, 7, base+1000), endOf(1, 1)},
			jailed{7, base, 1, long, map[string]int64{"read_file /a": 1}, false}},
		{"several", []message{accessTo(1, "/a"), madeBy(1, 7, base), accessTo(1, "/b"),
			accessTo(1, "/a"), endOf(1, 3)},
			jailed{7, base, 1, long, map[string]int64{"read_file /a": 2, "read_file /b": 1},
				false}},
		{"its maker comes late", []message{accessTo(1, "/a"), accessTo(1, "/b"), madeBy(1, 7, base),
			endOf(1, 2)},
			jailed{7, base, 1, long, map[string]int64{"read_file /a": 1, "read_file /b": 1},
				false}},
		{"later than there is room", []message{accessTo(1, "/1"), accessTo(1, "/2"),
			accessTo(1, "/3"), accessTo(1, "/4"), accessTo(1, "/5"), accessTo(1, "/1"),
			madeBy(1, 7, base), endOf(1, 6)},
			jailed{7, base, 1, long, map[string]int64{"read_file /1": 2, "read_file /2": 1,
				"read_file /3": 1, "read_file /4": 1, "": 1}, false}},
		{"dropped by the kernel", []message{accessTo(1, "/a"), madeBy(1, 7, base), endOf(1, 1000)},
			jailed{7, base, 1, long, map[string]int64{"read_file /a": 1, "": 999}, false}},
		{"two domains", []message{accessTo(1, "/a"), madeBy(1, 7, base), accessTo(2, "/a"),
			madeBy(2, 7, base), accessTo(2, "/c"), endOf(2, 2), endOf(1, 1)},
			jailed{7, base, 2, long, map[string]int64{"read_file /a": 2, "read_file /c": 1},
				false}},
		{"no total", []message{accessTo(1, "/a"), madeBy(1, 7, base)},
			jailed{7, base, 1, soon, map[string]int64{"read_file /a": 1}, true}},
		{"lost, and the total came", []message{accessTo(1, "/a"), madeBy(1, 7, base), lost,
			endOf(1, 5)}, jailed{7, base, 1, long, map[string]int64{"read_file /a": 1, "": 4},
			false}},
		{"lost, and perhaps a domain", []message{accessTo(1, "/a"), madeBy(1, 7, base), lost,
			endOf(1, 1)}, jailed{7, base, 2, long, map[string]int64{"read_file /a": 1}, true}},
		{"lost, and nothing came", []message{lost},
			jailed{7, base, 1, soon, map[string]int64{}, true}},
		{"not understood", []message{message{typeAccess, "audit(x): y"}},
			jailed{7, base, 1, soon, map[string]int64{}, true}},
		{"another process", []message{accessTo(1, "/a"), madeBy(1, 8, base), endOf(1, 1)},
			jailed{7, base, 1, soon, map[string]int64{}, false}},
		{"the same process of another user", []message{accessTo(1, "/a"), madeBy(1, 7, 1000),
			accessTo(1, "/b"), endOf(1, 2)}, jailed{7, base, 1, soon, map[string]int64{}, false}},
		{"the same process of the jail beside it", []message{accessTo(1, "/a"),
			madeBy(1, 7, base+size), endOf(1, 1)}, jailed{7, base, 1, soon, map[string]int64{},
			false}},
		{"a process below", []message{accessTo(1, "/a"), madeBy(1, 7, base-1), endOf(1, 1)},
			jailed{7, base, 1, soon, map[string]int64{}, false}},
		{"its name is another's later", []message{accessTo(1, "/a"), madeBy(1, 8, 1000),
			madeBy(1, 7, base), accessTo(1, "/a"), endOf(1, 2)}, jailed{7, base, 1, soon,
			map[string]int64{}, false}},
	} {
		t.Run(c.name, func(t *testing.T) {
			k, w := watch(t)
			j := w.Follow(c.pid, c.base, size, c.expects)
			k.say(c.said...)
			list, atLeast := j.End(c.bound)
			if got := counts(list); !reflect.DeepEqual(got, c.want) || atLeast != c.atLeast {
				t.Errorf("%v, at least: %v; want %v, %v", got, atLeast, c.want, c.atLeast)
			}
		})
	}
}

// TestAvailable: the reader of this kernel begins and ends, whether there is something to read or
// not.
func TestAvailable(t *testing.T) {
	abi, err := sys.LandlockABI()
	if err != nil || os.Geteuid() != 0 {
		t.Skipf("only root may read; landlock: %v", err)
	}
	err = Available()
	if want := fmt.Sprintf("landlock version %d: reports of refusals need %d", abi,
		jail.LandlockTells); abi < jail.LandlockTells {
		if err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
		return
	}
	if err != nil && !errors.Is(err, ErrOff) {
		t.Skipf("this host's audit is not for us: %v", err)
	}
	w, err := Start()
	if err != nil {
		t.Fatal(err)
	}
	list, atLeast := w.Follow(os.Getpid(), base, size, 1).End(long)
	if err := w.Close(); err != nil || len(list) > 0 || atLeast {
		t.Errorf("%v, %v, %v", list, atLeast, err)
	}
}

// TestFollowedLate: what was told before anybody asked is not lost.
func TestFollowedLate(t *testing.T) {
	k, w := watch(t)
	k.say(accessTo(1, "/a"), madeBy(1, 7, base), accessTo(2, "/a"), madeBy(2, 9, base))
	w.rest()
	j := w.Follow(7, base, size, 1)
	k.say(accessTo(1, "/b"), endOf(1, 2), endOf(2, 1))
	list, atLeast := j.End(long)
	if got := counts(list); !reflect.DeepEqual(got,
		map[string]int64{"read_file /a": 1, "read_file /b": 1}) || atLeast {
		t.Error(got, atLeast)
	}
}

// TestJailsBeside: each has its own.
func TestJailsBeside(t *testing.T) {
	k, w := watch(t)
	const n = 100
	var jails []*Jail
	for i := range n {
		jails = append(jails, w.Follow(10+i, base+uint32(i)*size, size, 1))
	}
	for i := range n {
		k.say(accessTo(1+i, fmt.Sprint("/", i)), madeBy(1+i, 10+i, base+uint32(i)*size))
	}
	for i := range n {
		k.say(endOf(1+i, i+1))
	}
	for i, j := range jails {
		list, atLeast := j.End(long)
		want := map[string]int64{fmt.Sprint("read_file /", i): 1}
		if i > 0 {
			want[""] = int64(i)
		}
		if got := counts(list); !reflect.DeepEqual(got, want) || atLeast {
			t.Errorf("%d: %v, %v", i, got, atLeast)
		}
	}
}

// TestBounds: a flood, in a jail and beside it, costs so much memory and no more, and no refusal of
// the jail goes uncounted.
func TestBounds(t *testing.T) {
	k, w := watch(t)
	j := w.Follow(7, base, size, 1)
	k.say(accessTo(1, "/first"), madeBy(1, 7, base))
	const flood = 20_000
	for i := range flood {
		k.say(accessTo(1, fmt.Sprint("/", i, strings.Repeat("x", 4000))))
		// The domains of other users, that never end.
		k.say(accessTo(2+i, "/elsewhere"), madeBy(2+i, 8, 1000))
		if i%1000 == 0 {
			w.rest()
		}
	}
	// Of makers that are never told.
	for i := range 2 * maxDomains {
		k.say(accessTo(1_000_000+i, "/elsewhere"))
	}
	w.rest()
	k.say(endOf(1, 1+flood))
	w.rest()
	w.mu.Lock()
	if len(w.domains) > maxDomains || len(w.strangers) > maxStranger || len(w.seen) > maxStranger {
		t.Errorf("%d domains, %d of strangers", len(w.domains), len(w.strangers))
	}
	w.mu.Unlock()
	list, _ := j.End(long)
	var sum int64
	for _, r := range list {
		sum += r.Count
		if len(r.What) > maxWhat+len("…") {
			t.Errorf("%d bytes", len(r.What))
		}
	}
	if sum != 1+flood || len(list) != maxListed+1 {
		t.Errorf("%d refusals as %d entries, want %d as %d", sum, len(list), 1+flood, maxListed+1)
	}
}

// TestFull: where every domain is a jail's, one more is not taken for nothing.
func TestFull(t *testing.T) {
	k, w := watch(t)
	j := w.Follow(7, base, size, maxDomains+2)
	for i := range maxDomains + 1 {
		k.say(accessTo(1+i, "/a"), madeBy(1+i, 7, base))
	}
	for i := range maxDomains {
		k.say(endOf(1+i, 1))
	}
	list, atLeast := j.End(long)
	if got := counts(list); got["read_file /a"] != maxDomains || !atLeast {
		t.Error(got, atLeast)
	}
}

// TestBusy: while the kernel still writes there may be more to come.
func TestBusy(t *testing.T) {
	k, w := watch(t)
	k.busy = true
	j := w.Follow(7, base, size, 1)
	if list, atLeast := j.End(long); len(list) > 0 || !atLeast {
		t.Error(list, atLeast)
	}
	j = w.Follow(7, base, size, 1)
	k.say(accessTo(1, "/a"), madeBy(1, 7, base), endOf(1, 2))
	// It ended: there is no more.
	if list, atLeast := j.End(long); counts(list)[""] != 1 || atLeast {
		t.Error(list, atLeast)
	}
}

func TestDrop(t *testing.T) {
	k, w := watch(t)
	j := w.Follow(7, base, size, 1)
	k.say(accessTo(1, "/a"), madeBy(1, 7, base))
	w.rest()
	j.Drop()
	k.say(endOf(1, 1))
	w.rest()
	if len(w.domains) > 0 {
		t.Error(w.domains)
	}
}

// TestWriter: no process of a user's passes for the kernel's thread.
func TestWriter(t *testing.T) {
	for stat, want := range map[string]bool{
		"30 (kauditd) S 2 0 0 0 -1": true, "30 (kauditd) R 2 0": true, "30 (kauditd) S 1 0": false,
		"30 (kauditdx) S 2 0":      false,
		"30 (kauditd) S 2 ) S 1 0": false, "30 ((kauditd) S 2) S 1": false, "": false,
		"30 (kauditd)": false, ") (": false,
	} {
		if got := isWriter([]byte(stat)); got != want {
			t.Errorf("%q: %v", stat, got)
		}
	}
}
