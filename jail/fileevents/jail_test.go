package fileevents_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jail-sandbox/jail/jail/fileevents"
	"github.com/jail-sandbox/jail/jail/guest"
	"github.com/jail-sandbox/jail/jail/jailtest"
	"github.com/jail-sandbox/jail/jail/jailtest/victim"
)

func TestMain(m *testing.M) { os.Exit(jailtest.Main(m)) }

// A heard is what a listener was told, as "kind path", and how often.
type heard struct {
	mu    sync.Mutex
	count map[string]int
	who   map[string]fileevents.Process
}

func (h *heard) tell(e fileevents.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	kind := "open "
	switch {
	case e.Executed:
		kind = "exec "
	case e.Written:
		kind = "write "
	}
	if h.count == nil {
		h.count, h.who = map[string]int{}, map[string]fileevents.Process{}
	}
	if h.count[kind+e.Path]++; h.count[kind+e.Path] == 1 {
		h.who[kind+e.Path] = fileevents.ProcessOf(e.PID)
	}
}

var all = fileevents.What{Opens: true, Writes: true, Memory: true}

func start(t *testing.T, j *jailtest.Jail, what fileevents.What) (*heard, *fileevents.Watcher) {
	t.Helper()
	h := &heard{}
	w, err := fileevents.Start(j.PID, what, h.tell)
	if err != nil {
		t.Fatal(err)
	}
	return h, w
}

// end ends the jail, and then the watching: nothing may be lost.
func end(t *testing.T, j *jailtest.Jail, w *fileevents.Watcher) {
	t.Helper()
	j.End()
	if lost, err := w.Close(); err != nil || lost != 0 {
		t.Errorf("lost %d: %v", lost, err)
	}
}

func open(path string, flags int64) []victim.Call {
	return []victim.Call{victim.Do("openat", victim.Int(unix.AT_FDCWD), victim.Text(path),
		victim.Int(flags), victim.Int(0o600))}
}

// openAll opens and closes all of the paths in one go.
func openAll(t *testing.T, j *jailtest.Jail, flags int64, paths ...string) {
	t.Helper()
	var calls []victim.Call
	for _, path := range paths {
		calls = append(calls, open(path, flags)...)
		calls = append(calls, victim.Do("close", victim.Ref(len(calls))))
	}
	for n, r := range j.Do(calls...) {
		if r.Errno != "" {
			t.Fatalf("%s: %v", paths[n/2], r)
		}
	}
}

// TestEveryMount: what is opened and written on each of the jail's mounts is told, with its path
// inside and the process; what is refused is not.
func TestEveryMount(t *testing.T) {
	s := jailtest.New(t)
	j := s.Start(t)
	h, w := start(t, j, all)
	openAll(t, j, unix.O_RDONLY, "/data/f", "/data/f", "/data/../data/./f", "/proc/self/status")
	openAll(t, j, unix.O_WRONLY, "/store/f")
	openAll(t, j, unix.O_CREAT|unix.O_RDWR, "/tmp/new")
	for _, path := range []string{"/data/none", "/etc/shadow"} {
		if r := j.Do(open(path, unix.O_RDONLY)...)[0]; r.Errno == "" {
			t.Errorf("%s was opened", path)
		}
	}
	if r := j.Do(open("/data/f", unix.O_WRONLY)...)[0]; r.Errno == "" {
		t.Error("/data/f was opened for writing")
	}
	// The host's own, by another mount.
	if _, err := os.ReadFile(s.Data + "/f"); err != nil {
		t.Error(err)
	}
	end(t, j, w)
	want := map[string]int{"open /data/f": 3, "open /store/f": 1, "write /store/f": 1,
		"open /tmp/new": 1, "write /tmp/new": 1}
	for key, n := range want {
		if h.count[key] != n {
			t.Errorf("%s: told %d times, want %d", key, h.count[key], n)
		}
	}
	status := 0
	for key, n := range h.count {
		if strings.HasPrefix(key, "open /proc/") && strings.HasSuffix(key, "/status") {
			status += n
			continue
		}
		_, path, _ := strings.Cut(key, " ")
		// Its own start may still be going on.
		if own := path == guest.Self || strings.HasPrefix(path, "/proc/1/"); want[key] == 0 &&
			!own {
			t.Errorf("%s: told %d times, was never done", key, n)
		}
	}
	if status != 1 {
		t.Errorf("/proc/self/status was told %d times; all: %v", status,
			slices.Sorted(maps.Keys(h.count)))
	}
	if p := h.who["open /data/f"]; p.PID < 1 || !strings.HasPrefix(p.Program, "/") {
		t.Errorf("/data/f was opened by %+v", p)
	}
}

// TestOnlyWhatIsWanted is the control: without opens there are none, and nobody waits.
func TestOnlyWhatIsWanted(t *testing.T) {
	j := jailtest.New(t).Start(t)
	h, w := start(t, j, fileevents.What{Writes: true})
	openAll(t, j, unix.O_RDONLY, "/data/f")
	openAll(t, j, unix.O_WRONLY, "/store/f")
	openAll(t, j, unix.O_CREAT|unix.O_WRONLY, "/tmp/f")
	end(t, j, w)
	if len(h.count) != 1 || h.count["write /store/f"] != 1 {
		t.Errorf("told %v", h.count)
	}
}

// TestFlood opens a file more often than the kernel's queue is long: each time is told.
func TestFlood(t *testing.T) {
	const batches, each = 200, 100
	j := jailtest.New(t).Start(t)
	h, w := start(t, j, all)
	for range batches {
		openAll(t, j, unix.O_RDONLY, slices.Repeat([]string{"/data/f"}, each)...)
	}
	end(t, j, w)
	if got := h.count["open /data/f"]; got != batches*each {
		t.Errorf("told %d of %d opens", got, batches*each)
	}
}

// TestListenerGoesAway: a jail whose listener has ended goes on, and one that is killed while it
// waits does not hold up Close.
func TestListenerGoesAway(t *testing.T) {
	j := jailtest.New(t).Start(t)
	_, w := start(t, j, fileevents.What{Opens: true})
	if _, err := w.Close(); err != nil {
		t.Fatal(err)
	}
	openAll(t, j, unix.O_RDONLY, "/data/f")

	waits, killed := make(chan struct{}), make(chan struct{})
	w, err := fileevents.Start(j.PID, fileevents.What{Opens: true}, func(e fileevents.Event) {
		if e.Path == "/data/f" {
			close(waits)
			<-killed
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		<-waits
		j.Kill()
		close(killed)
	}()
	if _, err := j.Try(open("/data/f", unix.O_RDONLY)...); err == nil {
		t.Error("the jail was killed and answers")
	}
	end(t, j, w)
}

// TestOverflow: what the kernel lets nobody wait for and had no room for counts as lost.
func TestOverflow(t *testing.T) {
	s := jailtest.New(t)
	s.Plan.Cgroup.Memory = 512 << 20
	for n := range s.Plan.Mounts {
		if s.Plan.Mounts[n].Target == "/tmp" {
			s.Plan.Mounts[n].Size, s.Plan.Mounts[n].Files = 256<<20, 40000
		}
	}
	j := s.Start(t)
	first := make(chan struct{})
	free := sync.OnceFunc(func() { close(first) })
	defer free()
	var once sync.Once
	h := &heard{}
	w, err := fileevents.Start(j.PID, fileevents.What{Writes: true, Memory: true},
		func(e fileevents.Event) {
			once.Do(func() { <-first })
			h.tell(e)
		})
	if err != nil {
		t.Fatal(err)
	}
	// The queue has room for 16,384.
	const files, each = 18000, 100
	for n := 0; n < files; n += each {
		var paths []string
		for k := range each {
			paths = append(paths, fmt.Sprintf("/tmp/f%d", n+k))
		}
		openAll(t, j, unix.O_CREAT|unix.O_WRONLY, paths...)
	}
	free()
	j.End()
	if lost, err := w.Close(); err != nil || lost == 0 {
		t.Errorf("%d of %d files were told, and %d losses: %v", len(h.count), files, lost, err)
	}
}
