package profiles_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/profiles"
)

const plainProfile = "policy = 1\ninclude = [\"base\"]\n[tools]\nallow = [\"core-utils/*\"]\n"

// a world has a ceiling and a directory of profiles, and what a source said of them.
type world struct {
	t            *testing.T
	dir, ceiling string
	source       *profiles.Source

	mu      sync.Mutex
	changes []profiles.Change
	full    bool // nothing can be recorded
}

func newWorld(t *testing.T, files map[string]string) *world {
	t.Helper()
	base := t.TempDir()
	w := &world{t: t, dir: filepath.Join(base, "profiles"),
		ceiling: filepath.Join(base, "ceiling.toml")}
	if err := os.Mkdir(w.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		w.write(name, text)
	}
	var err error
	w.source, err = profiles.Open(profiles.Options{Dir: w.dir, Ceiling: w.ceiling,
		Record: func(c profiles.Change) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.full {
				return syscall.ENOSPC
			}
			w.changes = append(w.changes, c)
			return nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.source.Close)
	return w
}

func (w *world) path(name string) string {
	if name == "ceiling" {
		return w.ceiling
	}
	return filepath.Join(w.dir, name+".toml")
}

// write replaces a file in one step.
func (w *world) write(name, text string) {
	w.t.Helper()
	path := w.path(name)
	err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
		os.WriteFile(path+".new", []byte(text), 0o644), os.Rename(path+".new", path))
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) memory() int64 {
	w.t.Helper()
	file, ok, err := w.source.Current().Ceiling(syntax.Places{})
	if err != nil {
		w.t.Fatal(err)
	}
	if !ok {
		return policy.Unlimited
	}
	return file.Policy.Limits.Memory
}

func ceilingOf(memory string) string {
	return "policy = 1\n[limits]\nmemory = \"" + memory + "\"\n"
}

// A change is in the next state that is taken, and is recorded with both digests. A state that was
// taken before stays as it was.
func TestChangesAreTaken(t *testing.T) {
	w := newWorld(t, map[string]string{"ceiling": ceilingOf("64MiB"), "own": plainProfile})
	before := w.source.Current()
	w.write("ceiling", ceilingOf("32MiB"))
	w.write("more", plainProfile)
	if got := w.memory(); got != 32<<20 {
		t.Errorf("the ceiling's memory is %d", got)
	}
	if _, err := w.source.Current().Set.Get("more"); err != nil {
		t.Error(err)
	}
	if file, _, err := before.Ceiling(syntax.Places{}); err != nil ||
		file.Policy.Limits.Memory != 64<<20 {
		t.Errorf("the state of before is %d now, %v", file.Policy.Limits.Memory, err)
	}
	if _, err := before.Set.Get("more"); !errors.Is(err, profiles.ErrNotFound) {
		t.Errorf("the set of before has what came later: %v", err)
	}
	status := w.source.Status()
	if len(w.changes) != 1 || w.changes[0].Old != before.Digest ||
		w.changes[0].New != status.Digest || w.changes[0].Err != nil || status.Reloads != 1 ||
		status.Err != nil {
		t.Errorf("changes %+v, status %+v", w.changes, status)
	}
	if got := strings.Join(w.changes[0].Names, " "); got != "ceiling profile more" {
		t.Errorf("files that changed: %s", got)
	}
	// As it was, in new clothes.
	if err := os.Chtimes(w.ceiling, time.Now(), time.Now()); err != nil {
		t.Fatal(err)
	}
	if w.source.Current(); len(w.changes) != 1 {
		t.Errorf("a file that says the same is a change: %+v", w.changes)
	}
}

// A broken file leaves all of the old state in force, also what was changed beside it, and says so
// until it is mended.
func TestBrokenFilesAreNotTaken(t *testing.T) {
	for name, broken := range map[string]string{"ceiling": "policy = 1\n[limits]\nmemory = 5\n",
		"own": plainProfile + "[limits]\nmemroy = \"1MiB\"\n", "empty": ""} {
		w := newWorld(t, map[string]string{"ceiling": ceilingOf("64MiB"), "own": plainProfile,
			"empty": plainProfile})
		w.write(name, broken)
		w.write("beside", plainProfile)
		for range 3 {
			if w.memory() != 64<<20 {
				t.Errorf("%s: the ceiling is another", name)
			}
		}
		set := w.source.Current().Set
		if _, err := set.Get("own"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := set.Get("beside"); !errors.Is(err, profiles.ErrNotFound) {
			t.Errorf("%s: half of a state was taken: %v", name, err)
		}
		status := w.source.Status()
		if status.Failures != 1 || status.Reloads != 0 || status.Err == nil ||
			!strings.Contains(status.Err.Error(), w.path(name)) {
			t.Errorf("%s: %+v", name, status)
		}
		if len(w.changes) != 1 || w.changes[0].Err == nil {
			t.Errorf("%s: on record is %+v", name, w.changes)
		}
		w.write(name,
			map[bool]string{true: ceilingOf("32MiB"), false: plainProfile}[name == "ceiling"])
		if _, err := w.source.Current().Set.Get("beside"); err != nil {
			t.Errorf("%s, mended: %v", name, err)
		}
		if status := w.source.Status(); status.Err != nil || status.Reloads != 1 {
			t.Errorf("%s, mended: %+v", name, status)
		}
	}
}

// A file that others could have written is as broken as one that cannot be understood.
func TestUntrustedFilesAreNotTaken(t *testing.T) {
	w := newWorld(t, map[string]string{"ceiling": ceilingOf("64MiB")})
	w.write("ceiling", ceilingOf("1GiB"))
	if err := os.Chmod(w.ceiling, 0o666); err != nil {
		t.Fatal(err)
	}
	// Whether the look came between the two or not, what anyone can write is not in force in the
	// end.
	if w.memory() != 64<<20 {
		t.Error("a ceiling that everyone can write to is in force")
	}
	if err := w.source.Status().Err; err == nil || !strings.Contains(err.Error(),
		"everyone can write") {
		t.Errorf("status: %v", err)
	}
}

// A profile that was broken from the start keeps nothing else back.
func TestBrokenFromTheStart(t *testing.T) {
	w := newWorld(t, map[string]string{"bad": "policy = 1\nx = 1\n"})
	if w.source.Status().Err == nil {
		t.Error("nothing is said of it")
	}
	w.write("good", plainProfile)
	if _, err := w.source.Current().Set.Get("good"); err != nil {
		t.Error(err)
	}
	if err := w.source.Status().Err; err == nil || !strings.Contains(err.Error(), "bad.toml") {
		t.Errorf("status: %v", err)
	}
}

// With a ceiling that is broken from the start nothing runs, until it is mended, and nobody but
// root decides on what ran.
func TestBrokenCeilingFromTheStart(t *testing.T) {
	w := newWorld(t, map[string]string{"ceiling": "policy = 1\nx = 1\n"})
	if _, ok, err := w.source.Current().Ceiling(syntax.Places{}); ok || err == nil {
		t.Errorf("%v, %v", ok, err)
	}
	if run := w.source.Current().Rules().Run; run == nil || len(run.Users)+len(run.Groups) > 0 {
		t.Errorf("it lets run %v", run)
	}
	w.write("ceiling", ceilingOf("32MiB"))
	if w.memory() != 32<<20 || w.source.Current().Rules().Run != nil {
		t.Error("the mended ceiling is not in force")
	}
}

// A ceiling does not go by being taken away, unless that is said.
func TestCeilingThatIsGone(t *testing.T) {
	w := newWorld(t, map[string]string{"ceiling": ceilingOf("64MiB")})
	if err := os.Remove(w.ceiling); err != nil {
		t.Fatal(err)
	}
	if w.memory() != 64<<20 {
		t.Error("the ceiling went with its file")
	}
	if w.source.Status().Err == nil {
		t.Error("nothing is said of it")
	}
	if err := w.source.Reload(); err != nil {
		t.Error(err)
	}
	if w.memory() != policy.Unlimited {
		t.Error("the ceiling is there after a reload without it")
	}
}

// What cannot be recorded is not taken, and is tried again.
func TestRecordComesFirst(t *testing.T) {
	w := newWorld(t, map[string]string{"ceiling": ceilingOf("64MiB")})
	w.full = true
	w.write("ceiling", ceilingOf("1GiB"))
	if w.memory() != 64<<20 || !errors.Is(w.source.Status().Err, syscall.ENOSPC) {
		t.Errorf("it is taken without a record: %v", w.source.Status())
	}
	w.full = false
	if w.memory() != 1<<30 {
		t.Error("it is not tried again")
	}
}

// Nobody has to ask: the kernel's events, or the periodic look where there are none, bring a change
// in.
func TestWatch(t *testing.T) {
	for name, every := range map[string]time.Duration{"by events": time.Hour,
		"by looking": 10 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, map[string]string{"ceiling": ceilingOf("64MiB")})
			if err := w.source.Watch(every); err != nil {
				t.Fatal(err)
			}
			for i, name := range []string{"own", "own", "ceiling"} {
				before := w.source.Status().Reloads
				w.write(name, map[bool]string{true: plainProfile + strings.Repeat("#", i+1) + "\n",
					false: ceilingOf("32MiB")}[name == "own"])
				for end := time.Now().Add(
					time.Minute); w.source.Status().Reloads == before; time.Sleep(
					time.Millisecond) {
					if time.Now().After(end) {
						t.Fatalf("%s is not taken: %+v", name, w.source.Status())
					}
				}
			}
		})
	}
}

// With concurrent readers and a writer each reader gets one whole state, never a mixture of two.
func TestStatesAreWhole(t *testing.T) {
	both := func(n string) (string, string) {
		return "policy = 1\n[limits]\npids = " + n + "\n", strings.Replace(plainProfile, "[tools]",
			"about = \""+n+"\"\n[tools]", 1)
	}
	c, p := both("1")
	w := newWorld(t, map[string]string{"ceiling": c, "own": p})
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				state := w.source.Current()
				file, ok, err := state.Ceiling(syntax.Places{})
				if !ok || err != nil {
					t.Errorf("%v, %v", ok, err)
					return
				}
				if again, _, _ := state.Ceiling(
					syntax.Places{}); again.Policy.Limits.PIDs != file.Policy.Limits.PIDs {
					t.Error("a state changed while it was held")
				}
			}
		})
	}
	for i := range 40 {
		c, p := both(string(rune('1' + i%9)))
		w.write("ceiling", c)
		w.write("own", p)
	}
	close(done)
	readers.Wait()
}

// T-525: a file that another writes to, and a directory of profiles, can be exchanged while they
// are read; what is taken is one of the two or nothing.
func TestSwappedWhileRead(t *testing.T) {
	w := newWorld(t, map[string]string{"ceiling": ceilingOf("64MiB")})
	evil := filepath.Join(t.TempDir(), "evil.toml")
	if err := os.WriteFile(evil, []byte(ceilingOf("8GiB")), 0o644); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var swapper sync.WaitGroup
	swapper.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			_ = os.Remove(w.ceiling)
			_ = os.Symlink(evil, w.ceiling)
			_ = os.WriteFile(w.ceiling+".new", []byte(ceilingOf("64MiB")), 0o644)
			_ = os.Rename(w.ceiling+".new", w.ceiling)
		}
	})
	for range 30 {
		if got := w.memory(); got != 64<<20 {
			t.Errorf("the ceiling's memory is %d", got)
		}
	}
	close(stop)
	swapper.Wait()
}
