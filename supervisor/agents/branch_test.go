package agents

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/supervisor/agents/store"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// A branch begins with a copy of the database, and with events after those that it has committed. An
// agent that is awake is not copied, a link of its jail's is not followed, and a name that is taken
// stays whose it is.
func TestBranchOfAnAgent(t *testing.T) {
	w := newWorld(t)
	w.start()
	last := uint64(0)
	hold, held := make(chan struct{}), make(chan struct{}, 1)
	run := func(g *work) error {
		last = g.Seq
		if string(g.Data) == `"hold"` {
			held <- struct{}{}
			<-hold
		}
		return nil
	}
	from := w.install("a", "channels = [\"main\"]\n", run)
	for range 3 {
		w.tell("a", "x")
	}
	w.empty("a")
	if err := w.Pause(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	asleep := func() bool { return w.StateOf(w.instance("a")) == store.Dormant }
	w.until("it sleeps", asleep)
	state := w.stateDir(from.Name)
	if err := os.MkdirAll(state, 0o700); err != nil {
		t.Fatal(err)
	}
	file := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file(filepath.Join(state, "state.db"), "what it knows")
	secret := filepath.Join(w.dir, "secret")
	file(secret, "of somebody else")
	dir := filepath.Join(w.dir, "try")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	file(filepath.Join(dir, "agent.toml"), "agent = 1\ntype = \"agent\"\nname = \"try\"\n"+
		"module = \"python/python3\"\nargs = [\"main.py\"]\nchannels = [\"try\", \"more\"]\n")
	file(filepath.Join(dir, "main.py"), "print(1)\n")
	branch := func() error {
		_, err := w.AddBranch(t.Context(), dir, w.instance("a"))
		return err
	}
	for what, make := range map[string]func(string) error{
		"a link": func(name string) error { return os.Symlink(secret, name) },
		"a pipe": func(name string) error { return syscall.Mkfifo(name, 0o600) },
	} {
		log := filepath.Join(state, "state.db-wal")
		if err := make(log); err != nil {
			t.Fatal(err)
		}
		if branch() == nil {
			t.Errorf("%s is copied", what)
		}
		if err := os.Remove(log); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Resume(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	w.tell("a", "hold")
	<-held
	var busy *problem.Error
	if err := branch(); !errors.As(err, &busy) || busy.Code != problem.Busy {
		t.Errorf("an agent that is awake: %v", err)
	}
	close(hold)
	w.empty("a")
	if err := w.Pause(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	w.until("it sleeps", asleep)
	w.jails.mu.Lock()
	for _, name := range []string{"agent-try-try", "agent-try-more"} {
		w.jails.guest[name] = run
		w.jails.disks[name] = &disk{committed: last}
	}
	w.jails.mu.Unlock()
	if err := branch(); err != nil {
		t.Fatal(err)
	}
	for _, i := range w.instances("try") {
		text, err := os.ReadFile(filepath.Join(w.stateDir(i.Name), "state.db"))
		if err != nil || string(text) != "what it knows" || i.Settled != w.instance("a").Settled {
			t.Errorf("%+v has %q, %v", i, text, err)
		}
	}
	before := last
	w.tell("try", "x")
	w.empty("try")
	if last <= before {
		t.Errorf("the first event of the branch is %d, and it has committed %d", last, before)
	}
	if err := branch(); !errors.Is(err, store.ErrTaken) {
		t.Errorf("a name that is taken: %v", err)
	}
	if _, err := w.Send(from.ID, agent.Event{Source: "user", Type: agent.TypeMessage}); err != nil {
		t.Error(err)
	}
	left, err := filepath.Glob(filepath.Join(w.o.State, branchPrefix+"*"))
	if err != nil || len(left) > 0 {
		t.Errorf("%q, %v", left, err)
	}
}
