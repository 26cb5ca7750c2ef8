package workspace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A mover takes a directory away from where a commit expects it, and brings it back.
type mover struct {
	name       string
	away, back func(f *fixture) error
	// What has to be put back is below a mount until it is brought back.
	covers bool
	// The real directory itself is at another path meanwhile.
	outside bool
}

func (f *fixture) at(path string) string { return filepath.Join(f.real, path) }

func renamer(from, to string) mover {
	return mover{name: from + " to " + to,
		away: func(f *fixture) error { return os.Rename(f.at(from), f.at(to)) },
		back: func(f *fixture) error { return os.Rename(f.at(to), f.at(from)) }}
}

// movers are the ways in which one is hostile to a commit.
func movers() []mover {
	root := renamer(".", "../elsewhere")
	root.name, root.outside = "the real directory", true
	replaced := renamer("d", "dd")
	replaced.name = "another directory in its place"
	away, back := replaced.away, replaced.back
	replaced.away = func(f *fixture) error {
		return errors.Join(away(f), os.Mkdir(f.at("d"), 0o755),
			os.WriteFile(f.at("d/a"), []byte("host\n"), 0o644))
	}
	replaced.back = func(f *fixture) error { return errors.Join(os.RemoveAll(f.at("d")), back(f)) }
	return []mover{
		renamer("d", "dd"), renamer("d", "../out"), renamer("p", "p2"), renamer("p/q", "q"),
		renamer("d/sub", "sub"), root, replaced,
		{name: "a directory that comes with the commit",
			away: func(f *fixture) error {
				return ifThere(os.Rename(f.at("d/new"), f.at("newer")))
			},
			back: func(f *fixture) error {
				return ifThere(os.Rename(f.at("newer"), f.at("d/new")))
			}},
		{name: "a mount on a directory", covers: true,
			away: func(f *fixture) error {
				return syscall.Mount("none", f.at("d"), "tmpfs", 0, "")
			},
			back: func(f *fixture) error { return syscall.Unmount(f.at("d"), syscall.MNT_DETACH) }},
		{name: "a mount on a file", covers: true,
			away: func(f *fixture) error {
				return ifThere(syscall.Mount(f.at("other"), f.at("d/b"), "", syscall.MS_BIND, ""))
			},
			back: func(f *fixture) error {
				if err := syscall.Unmount(f.at("d/b"), syscall.MNT_DETACH); err != syscall.EINVAL {
					return ifThere(err)
				}
				return nil
			}},
	}
}

func ifThere(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

const moverScript = `for f in d/a d/b d/sub/c e/x p/q/y p/q/in/f top; do echo tool >>$f; done; rm d/gone p/q/gone; rm -r d/old; chmod 700 p/q/in
	mkdir -p d/new/in; echo n >d/new/f; echo n >d/new/in/f; ln -sfn top d/link; chmod 755 e/mode; mkdir .git/hooks; echo h >.git/hooks/post-commit`

// A moverBed is a workspace that is committed and reverted while somebody moves directories.
type moverBed struct {
	f             *fixture
	w             *Workspace
	before, after string
}

func newMoverBed(t *testing.T) *moverBed {
	k := fileSystems[0]
	d := &disk{t: t, kind: k.kind, mkfs: k.mkfs, size: 3 * k.size}
	d.make()
	f := d.fixture()
	f.write("d/a", "d/b", "d/sub/c", "d/gone", "d/old/x", "d/old/y/z", "d/link -> other", "e/x",
		"e/mode", "p/q/y", "p/q/gone", "p/q/in/f", "top", "other", ".git/HEAD")
	b := &moverBed{f: f, before: snapshotText(f.real)}
	b.w = f.shadow("w", moverScript)
	b.plain(t, "commit")
	b.after = snapshotText(f.real)
	b.plain(t, "revert")
	b.is(t, "the first revert", b.before)
	return b
}

func (b *moverBed) act(t *testing.T, do string) error {
	var err error
	if do == "revert" {
		_, err = b.w.Revert(t.Context(), RevertOptions{})
	} else {
		_, err = b.w.Commit(t.Context(), CommitOptions{Keep: keepAll})
	}
	return err
}

func (b *moverBed) plain(t *testing.T, do string) {
	t.Helper()
	must(t, b.act(t, do))
}

func (b *moverBed) is(t *testing.T, when, want string) {
	t.Helper()
	if now := snapshotText(b.f.real); now != want {
		t.Fatalf("%s: %s", when, cmp.Diff(want, now))
	}
}

// sides are the trees before and after an act.
func (b *moverBed) sides(do string) (from, to string) {
	if do == "revert" {
		return b.after, b.before
	}
	return b.before, b.after
}

// points counts the actions of an act that nobody disturbs, and brings the tree back.
func (b *moverBed) points(t *testing.T, do string) (n int) {
	t.Helper()
	b.f.store.fault = func(string) error { n++; return nil }
	b.plain(t, do)
	b.f.store.fault = nil
	b.plain(t, map[string]string{"commit": "revert", "revert": "commit"}[do])
	return n
}

// disturbed acts while somebody moves a directory away before action move, the disk fails at action
// fail, and the directory comes back before action back, or at the end.
func (b *moverBed) disturbed(t *testing.T, m mover, do string, move, fail, back int) {
	t.Helper()
	what := fmt.Sprintf("%s: %s moves at %d, the disk fails at %d, back at %d", do, m.name, move,
		fail, back)
	from, to := b.sides(do)
	n, away := 0, false
	bring := func() {
		if away {
			away = false
			must(t, m.back(b.f))
		}
	}
	b.f.store.fault = func(point string) error {
		defer func() { n++ }()
		if n == move {
			must(t, m.away(b.f))
			away = true
		}
		if n == back {
			bring()
		}
		// Without what is kept there is no way back, and a disk that fails a second time has a test
		// of its own.
		if n >= fail && fail >= 0 && !strings.HasPrefix(point, "keep") && !strings.HasPrefix(point,
			"undo") {
			fail = -1
			return syscall.EIO
		}
		return nil
	}
	err := b.act(t, do)
	b.f.store.fault = nil
	bring()
	// All is in place, and something is left to tidy up.
	if err == nil && b.w.Info().State == Committing {
		b.recover(t)
	}
	failed := (*commitError)(nil)
	switch {
	case err == nil:
		b.is(t, what+": it said that all went well", to)
	case errors.As(err, &failed) && failed.undo != nil:
		if !m.covers {
			t.Fatalf("%s: %v", what, err)
		}
		b.recover(t)
		b.is(t, what+": after a recovery", from)
	default:
		b.is(t, fmt.Sprintf("%s: it said that nothing was changed (%v)", what, err), from)
	}
	now := snapshotText(b.f.real)
	if strings.Contains(now, ".jail-") {
		t.Fatalf("%s: names of ours are left:\n%s", what, now)
	}
	if now == to {
		b.plain(t, map[string]string{"commit": "revert", "revert": "commit"}[do])
	}
	b.is(t, what+": the way back", from)
}

// T-321, T-324: a directory, one above it, the real one, or what is mounted moves at every action
// of a commit or revert, which then fails or not. What says that nothing was changed has changed
// nothing, wherever the directory was meanwhile.
func TestMovedWhileCommitted(t *testing.T) {
	if !inPrivateMounts(t) {
		return
	}
	step := stepOfPoints(23)
	for n, m := range movers() {
		t.Run(m.name, func(t *testing.T) {
			b := newMoverBed(t)
			tried := 0
			for _, do := range []string{"commit", "revert"} {
				if do == "revert" {
					b.plain(t, "commit")
				}
				points := b.points(t, do)
				for at := (n*5 + tried) % step; at < points; at += step {
					// It comes back at once.
					b.disturbed(t, m, do, at, -1, at+2)
					// It is away while all is undone.
					b.disturbed(t, m, do, at, at+1, -1)
					// It comes back while all is undone.
					b.disturbed(t, m, do, at, at+1, at+4)
					b.disturbed(t, m, do, at, points-1, -1) // all is in place
					// it goes while all is undone
					b.disturbed(t, m, do, at+points/2, at+2, at+9)
					tried += 5
				}
			}
			t.Logf("%d tried", tried)
		})
	}
}

func (b *moverBed) recover(t *testing.T) {
	t.Helper()
	_, err := b.f.store.Recover(t.Context())
	must(t, errors.Join(err, b.w.load()))
}

func stepOfPoints(short int) int {
	if os.Getenv("JAIL_TEST_LONG") != "" {
		return 1
	}
	return short
}

// T-324: the same after a crash: a recovery finds each directory by its path or by its handle. What
// is below a mount waits until it is not.
func TestMovedWhileCutOff(t *testing.T) {
	if !inPrivateMounts(t) {
		return
	}
	step := stepOfPoints(23)
	for n, m := range movers() {
		t.Run(m.name, func(t *testing.T) {
			b := newMoverBed(t)
			first := n * 5
			for _, do := range []string{"commit", "revert"} {
				if do == "revert" {
					b.plain(t, "commit")
				}
				points := b.points(t, do)
				for at := first % step; at < points; at += step {
					b.cutOff(t, m, do, at)
				}
				first += 11
			}
		})
	}
}

func (b *moverBed) cutOff(t *testing.T, m mover, do string, at int) {
	t.Helper()
	what := fmt.Sprintf("%s is cut off at %d: %s", do, at, m.name)
	from, to := b.sides(do)
	b.crash(t, do, at)
	must(t, m.away(b.f))
	settled, err := b.f.store.Recover(t.Context())
	if err != nil && !m.covers {
		t.Fatalf("%s: recover: %v", what, err)
	}
	must(t, m.back(b.f))
	// It is not settled, and says so.
	if err != nil {
		if len(settled) > 0 {
			t.Fatalf("%s: settled %+v, and %v", what, settled, err)
		}
		settled, err = b.f.store.Recover(t.Context())
		must(t, err)
	}
	must(t, b.w.load())
	now := snapshotText(b.f.real)
	if now != from && now != to {
		t.Fatalf("%s: the tree is mixed: %s", what, cmp.Diff(to, now))
	}
	if len(settled) != 1 || settled[0].Done != (now == to) {
		t.Fatalf("%s: done: %v, settled %+v", what, now == to, settled)
	}
	if now == to {
		b.plain(t, map[string]string{"commit": "revert", "revert": "commit"}[do])
	}
	b.is(t, what+": the way back", from)
}

// crash ends an act at one of its actions without a word.
func (b *moverBed) crash(t *testing.T, do string, at int) {
	n := 0
	b.f.store.fault = func(string) error {
		if n == at {
			panic(errCrash)
		}
		n++
		return nil
	}
	defer func() {
		b.f.store.fault = nil
		if r := recover(); r != errCrash {
			t.Fatalf("%s has no action %d: %v", do, at, r)
		}
	}()
	must(t, b.act(t, do))
}

// A directory that has left its place does not get the commit's mode, not even until the commit is
// undone.
func TestMovedIsLeftAlone(t *testing.T) {
	f := newFixture(t)
	f.write("d/x")
	must(t, os.Chmod(f.at("d"), 0o555))
	w := f.shadow("w", "chmod 755 d")
	var mode os.FileMode
	f.store.fault = func(at string) error {
		switch {
		case strings.HasPrefix(at, "open up"):
			return os.Rename(f.at("d"), f.at("dd"))
		case strings.HasPrefix(at, "undo"):
			st, err := os.Stat(f.at("dd"))
			if err == nil {
				mode = st.Mode().Perm()
			}
			return err
		}
		return nil
	}
	_, err := w.Commit(t.Context(), CommitOptions{})
	if !errors.Is(err, ErrConflict) || mode != 0o555 {
		t.Errorf("commit: %v; the moved directory has mode %o before it is undone", err, mode)
	}
}
