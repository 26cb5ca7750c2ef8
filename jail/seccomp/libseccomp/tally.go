package libseccomp

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/seccomp"
)

// Bounds of a tally, and so of its memory, whatever a tool asks for.
const (
	// maxNumbers is how many numbers are counted each by itself. No call has a greater one.
	maxNumbers = 1024
	// maxDetails is how many calls are told apart by their arguments.
	maxDetails = 64
	// maxListed is the number of entries in a list. One more entry counts the rest.
	maxListed = 64
)

// A tally counts refused calls by call and arguments up to maxDetails, then by number, and all
// numbers from maxNumbers on together. It counts every call.
type tally struct {
	details  map[string]*control.Refused
	byNumber map[int]*control.Refused
	others   control.Refused
}

func (t *tally) add(number int, name string, args []uint64, now time.Time) {
	e := t.entry(number, name, args)
	if e.Count == 0 {
		e.First = now
	}
	e.Count++
	e.Last = now
}

func (t *tally) entry(number int, name string, args []uint64) *control.Refused {
	if name != "" {
		if what := seccomp.Describe(name, args); what != name {
			if e := t.details[what]; e != nil {
				return e
			}
			if len(t.details) < maxDetails {
				if t.details == nil {
					t.details = map[string]*control.Refused{}
				}
				t.details[what] = &control.Refused{What: what}
				return t.details[what]
			}
		}
	}
	if number < 0 || number >= maxNumbers {
		t.others.What = "system calls of numbers that none has"
		return &t.others
	}
	if e := t.byNumber[number]; e != nil {
		return e
	}
	if t.byNumber == nil {
		t.byNumber = map[int]*control.Refused{}
	}
	t.byNumber[number] = &control.Refused{What: cmp.Or(name, fmt.Sprintf("system call %d", number))}
	return t.byNumber[number]
}

// list returns the entries, those with the highest counts first. The entries beyond maxListed are
// joined into one last entry.
func (t *tally) list() []control.Refused {
	var all []control.Refused
	for _, e := range t.details {
		all = append(all, *e)
	}
	for _, e := range t.byNumber {
		all = append(all, *e)
	}
	if t.others.Count > 0 {
		all = append(all, t.others)
	}
	slices.SortFunc(all, func(a, b control.Refused) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.What, b.What))
	})
	if len(all) <= maxListed {
		return all
	}
	rest := control.Refused{What: fmt.Sprintf("%d other system calls", len(all)-maxListed),
		First: all[maxListed].First}
	for _, e := range all[maxListed:] {
		rest.Count += e.Count
		if e.First.Before(rest.First) {
			rest.First = e.First
		}
		if e.Last.After(rest.Last) {
			rest.Last = e.Last
		}
	}
	return append(all[:maxListed:maxListed], rest)
}
