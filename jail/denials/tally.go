package denials

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/jail-sandbox/jail/jail"
)

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
