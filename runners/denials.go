package runners

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Bounds of Denials: a tool that is refused a million different things costs
// the memory of MaxDenials records.
const (
	maxDenials     = 64
	maxDenialBytes = 512
)

// Denials collects refusals, each once with its count. Its zero value is ready; it is not safe for
// concurrent use.
type Denials struct {
	list []Denial
	// Count is zero in the keys
	index    map[Denial]int
	overflow int
}

// Add counts a refusal. what and rule may hold bytes that the tool chose: they
// are cut and made printable.
func (d *Denials) Add(layer, what, rule string) {
	d.AddCount(Denial{Layer: layer, What: Printable(what, maxDenialBytes),
		Rule: Printable(rule, maxDenialBytes), Count: 1})
}

// AddCount counts the refusals of a list that another has made.
func (d *Denials) AddCount(more Denial) {
	key := more
	key.Count = 0
	if i, ok := d.index[key]; ok {
		d.list[i].Count += more.Count
		return
	}
	if len(d.list) == maxDenials {
		d.overflow += more.Count
		return
	}
	if d.index == nil {
		d.index = make(map[Denial]int)
	}
	d.index[key] = len(d.list)
	d.list = append(d.list, more)
}

// List returns the refusals in the order of their first time. Those beyond
// maxDenials different ones are one last entry that counts them.
func (d *Denials) List() []Denial {
	out := append([]Denial(nil), d.list...)
	if d.overflow > 0 {
		out = append(out, Denial{Layer: "wasi", What: "further refusals, not listed one by one",
			Rule: "at most " + strconv.Itoa(maxDenials) + " are listed", Count: d.overflow})
	}
	return out
}

// Cut returns s, or if it is longer than most bytes, its first whole characters in most bytes and
// "…".
func Cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// Printable cuts s like Cut and escapes unprintable characters, so that text that a tool chose is
// safe in records and on terminals.
func Printable(s string, most int) string {
	s = Cut(s, most)
	if utf8.ValidString(s) && !strings.ContainsFunc(s,
		func(r rune) bool { return !strconv.IsGraphic(r) }) {
		// Escaped text stays as it is.
		return s
	}
	q := strconv.QuoteToGraphic(s)
	return strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
}

// LimitMet is a limit that made a call of the tool fail, which is not visible from outside. The
// report comes from inside, so the host takes the value of the limit from the policy.
type LimitMet struct {
	// As in the policy: open_files, file_size, workspace, workspace_files.
	Name string `json:"name"`
	// The highest use when the limit was reached.
	Peak  int64 `json:"peak"`
	Count int64 `json:"count"` // how often
}

// LimitsMet holds one LimitMet for each name. The zero value is ready to use; it is for one
// goroutine.
type LimitsMet []LimitMet

// Add adds m to the entry with its name.
func (l *LimitsMet) Add(m LimitMet) {
	for i := range *l {
		if known := &(*l)[i]; known.Name == m.Name {
			known.Peak, known.Count = max(known.Peak, m.Peak), known.Count+m.Count
			return
		}
	}
	*l = append(*l, m)
}
