package workspace

import (
	"slices"
	"strings"
	"testing"
)

// A note of Begin is for Recover when its process has ended, until Told. It says that nothing was
// changed only if no commit is over.
func TestBegun(t *testing.T) {
	f := newFixture(t)
	f.write("a")
	w := f.shadow("w", "echo x >>a")
	settles := func(what string, want ...Settled) {
		t.Helper()
		// It is the same for the next daemon.
		for range 2 {
			got, err := f.store.Recover(t.Context())
			must(t, err)
			ok := len(got) == len(want)
			for i := range want {
				ok = ok && got[i].ID == "w" && got[i].Nothing == want[i].Nothing &&
					got[i].Done == want[i].Done && got[i].Revert == want[i].Revert &&
					got[i].Commit == want[i].Commit && slices.Equal(got[i].Paths, want[i].Paths)
			}
			if !ok {
				t.Errorf("%s: settled %+v, want %+v", what, got, want)
			}
		}
	}
	begin := func(b Begun) *Begun {
		t.Helper()
		note, err := Begin(w, b)
		must(t, err)
		return note
	}
	dead := begin(Begun{Revert: true, Commit: "c", Paths: []Name{"a"}})
	settles("its process lives")
	must(t, dead.Drop())
	settles("its process has ended",
		Settled{Nothing: true, Revert: true, Commit: "c", Paths: []Name{"a"}})
	live := begin(Begun{})
	must(t, w.Told())
	settles("the end is on record, and another commit begins")
	must(t, live.Told())
	note := begin(Begun{})
	r, err := w.Commit(t.Context(), CommitOptions{})
	must(t, err)
	must(t, note.Drop())
	settles("the commit was made", Settled{Done: true, Commit: r.ID})
	must(t, w.Told())
	settles("nothing is left")
	names, err := namesIn(w.home.dir)
	must(t, err)
	if i := slices.IndexFunc(names,
		func(n string) bool { return strings.Contains(n, beginning) }); i >= 0 {
		t.Errorf("%s is left", names[i])
	}
	must(t, (*Begun)(nil).Drop())
}
