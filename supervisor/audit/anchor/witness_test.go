package anchor

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/audit/witnesstest"
)

// A cosigner is another host that cosigns.
type cosigner struct {
	*witnesstest.Witness
	server *httptest.Server
	key    string // file
}

func newCosigner(t *testing.T, logs ...string) cosigner {
	t.Helper()
	w := witnesstest.New("witness.example/1")
	n := cosigner{w, httptest.NewServer(w), filepath.Join(t.TempDir(), "witness.pub")}
	t.Cleanup(n.server.Close)
	for _, log := range logs {
		n.watch(t, log)
	}
	if err := os.WriteFile(n.key, []byte(w.Public()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return n
}

func (n cosigner) watch(t *testing.T, log string) {
	t.Helper()
	pub, err := audit.PublicKey(log)
	if err == nil {
		_, err = n.Trust(pub)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (n cosigner) keeper(t *testing.T, log string) Keeper {
	t.Helper()
	return keeperOf(t, log, "witness+"+n.server.URL, "key = \""+n.key+"\"\n")
}

// seen is the newest head of a log that the witness has cosigned.
func (n cosigner) seen(t *testing.T, log string) []byte {
	t.Helper()
	return n.Seen(origin(t, log))
}

// TestWitness: two hosts grow under one witness, also through a pause and with two processes that
// send; each has a note that verify and the witness's key hold for good.
func TestWitness(t *testing.T) {
	log, l := newLog(t)
	other, m := newLog(t)
	n := newCosigner(t, log, other)
	k, second := n.keeper(t, log), n.keeper(t, log)
	for range 3 {
		put(t, l)
		once(t, k)
		put(t, l)
		put(t, m)
		once(t, second)
		once(t, n.keeper(t, other))
	}
	for _, dir := range []string{log, other} {
		text := n.seen(t, dir)
		fits(t, dir, text, 1)
		anchors, err := audit.ParseAnchors("witness", text)
		if err != nil {
			t.Fatal(err)
		}
		if found, err := audit.CheckWitnesses(anchors, n.Public()); err != nil ||
			found[0].Size != anchors[0].Size {
			t.Errorf("%+v, %v", found, err)
		}
	}
	if kept, err := os.ReadFile(filepath.Join(second.State, "history.note")); err != nil ||
		string(kept) != string(n.seen(t, log)) {
		t.Errorf("%q, %v", kept, err)
	}
}

// copyOf is a log and its key as root of its host can put them back later.
func copyOf(t *testing.T, log string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Dir(log))); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(filepath.Join(dir, "keys"), 0o700),
		os.Chmod(filepath.Join(dir, "keys", "audit.key"), 0o600)); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "audit")
}

func reopen(t *testing.T, log string) *audit.Log {
	t.Helper()
	l, err := audit.Open(audit.Options{Dir: log, KeyDir: filepath.Join(filepath.Dir(log), "keys")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// TestWitnessFindsRoot: who has all of a host, the key, the state of its anchors too, takes the
// tail away or writes another. The log passes verify, which is the control; the witness refuses it,
// and what it has seen shows it.
func TestWitnessFindsRoot(t *testing.T) {
	log, l := newLog(t)
	n := newCosigner(t, log)
	k := n.keeper(t, log)
	put(t, l)
	once(t, k)
	before := copyOf(t, log)
	for range 3 {
		put(t, l)
	}
	once(t, k)
	evidence := n.seen(t, log)
	check := func(t *testing.T, dir, word string) {
		t.Helper()
		pub, err := audit.PublicKey(dir)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := audit.Verify(dir, pub); err != nil {
			t.Errorf("the control: %v", err)
		}
		anchors, err := audit.ParseAnchors("witness", evidence)
		if err != nil {
			t.Fatal(err)
		}
		var f *audit.Fault
		if _, err := audit.Verify(dir, pub, anchors...); !errors.As(err, &f) ||
			!strings.Contains(f.Why, word) {
			t.Errorf("verify said %v, want %q", err, word)
		}
	}
	cut, fork := copyOf(t, before), copyOf(t, before)
	check(t, cut, "the log ends with record")
	// With what it knew of the witness, and without.
	for _, state := range []string{k.State, filepath.Join(t.TempDir(), "none")} {
		refused(t, Keeper{Log: cut, State: state, Targets: k.Targets}, "cut or put back")
	}
	f := reopen(t, fork)
	size := func() uint64 { h, _ := audit.ReadHead(fork); return h.Size }
	was, _ := audit.ReadHead(log)
	for size() < was.Size {
		put(t, f)
	}
	check(t, fork, "another history")
	refused(t, Keeper{Log: fork, State: t.TempDir(), Targets: k.Targets}, "rewritten")
	put(t, f)
	check(t, fork, "another history")
	refused(t, Keeper{Log: fork, State: t.TempDir(), Targets: k.Targets}, "rewritten")
	if n.Refusals() < 4 {
		t.Errorf("the witness refused %d requests, want at least 4", n.Refusals())
	}
	// The control: the log itself goes on.
	once(t, Keeper{Log: log, State: t.TempDir(), Targets: k.Targets})
}

// refusing returns an address that refuses connections: the port is bound, and nobody listens.
func refusing(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", at.(*syscall.SockaddrInet4).Port)
}

// TestWitnessLost: while it is away, or says something else, that is a failure on record; it is not
// taken for one that has cosigned.
func TestWitnessLost(t *testing.T) {
	log, l := newLog(t)
	n := newCosigner(t)
	refused(t, n.keeper(t, log), "does not watch this log")
	n.watch(t, log)
	k := n.keeper(t, log)
	var said []audit.Anchored
	k.Record = func(e audit.Anchored) error { said = append(said, e); return nil }
	once(t, k)
	put(t, l)
	away := k
	away.Targets = []Target{k.Targets[0]}
	away.Targets[0].To = "witness+http://" + refusing(t)
	refused(t, away, "refused")
	// Of the same name, with its own key.
	another := newCosigner(t, log)
	away.Targets[0].To = "witness+" + another.server.URL
	refused(t, away, "no signature by the key")
	liar := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength%2 == 0 {
			w.WriteHeader(http.StatusConflict)
		}
		_, _ = io.WriteString(w, "\x1b[2Jyes\n")
	}))
	defer liar.Close()
	away.Targets[0].To = "witness+" + liar.URL
	if _, err := away.Once(t.Context()); err == nil || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("%v", err)
	}
	once(t, k)
	if len(said) == 0 || said[0].Error == "" {
		t.Errorf("on record is %+v", said)
	}
}

// TestWitnessSettings: what is no witness is refused when the settings are read.
func TestWitnessSettings(t *testing.T) {
	for _, bad := range []string{`to = "witness+https://h/"`, `to = "witness+ftp://h/"` +
		"\nkey = \"/k\"", `to = "witness+https://"` + "\nkey = \"/k\"",
		`to = "witness+https://h/"` + "\nkey = \"k\"",
		`to = "https://h/"` + "\nkey = \"/k\"", `to = "witness+https://u@h/"` + "\nkey = \"/k\"",
		`to = "witness+https://h/?a=b"` + "\nkey = \"/k\"", `to = "witness+https://h/"` +
			"\nkey = \"/k\"\ntoken = \"/t\""} {
		if s, err := settings(t, "[[anchor]]\nname = \"a\"\n"+bad+"\n"); err == nil ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %+v, %v", bad, s, err)
		}
	}
	if _, err := settings(t,
		"[[anchor]]\nname = \"a\"\nto = \"witness+https://h/w\"\nkey = \"/k\"\n"); err != nil {
		t.Error(err)
	}
}
