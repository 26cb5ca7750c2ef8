package workspace

import (
	"errors"
	"strings"

	"github.com/aymanbagabas/go-udiff"
)

// merge turns a conflicting change into one with both sides' changes, if they do not overlap. why
// says why they cannot be merged.
func (d decision) merge(c Change) (merged Change, text, why string, err error) {
	if c.Kind != Modified || c.Before.Type != File || c.After.Type != File {
		return c, "", "only a file that both sides modified can be merged", nil
	}
	base, mode, ok, err := d.base(c)
	if err != nil {
		return c, "", "", err
	}
	if !ok {
		return c, "",
			"what it was when the run began was not saved, so there is nothing to merge from", nil
	}
	p := &patcher{w: d.w}
	before, after, err := p.sides(c)
	if errors.Is(err, errNoText) {
		return c, "", "it is no text, or too long to merge", nil
	}
	if err != nil {
		return c, "", "", err
	}
	text, ok = merge3(base, before.text, after.text)
	if !ok {
		return c, "", "both sides changed the same lines, or lines next to each other", nil
	}
	perm := c.After.Mode
	// The tool left it alone.
	if perm&0o777 == mode&0o777 {
		perm = c.Before.Mode
	}
	c.After, c.Conflict, c.Merged = textNode(text, perm), "", true
	return c, text, "", nil
}

// base returns the content that both sides of a change went on from.
func (d decision) base(c Change) (text string, mode uint32, ok bool, err error) {
	if d.into != nil {
		return d.into.baseText(c)
	}
	return d.w.home.base(c.Path, d.taken)
}

// merge3 applies the edits from base to each of two texts, if no line of base is in or beside edits
// of both. An edit that both make is made once.
func merge3(base, a, b string) (string, bool) {
	if a == b {
		return a, true
	}
	ea, eb := lineEdits(base, a), lineEdits(base, b)
	var all []udiff.Edit
	for len(ea) > 0 || len(eb) > 0 {
		switch {
		case len(eb) == 0:
			all, ea = append(all, ea[0]), ea[1:]
		case len(ea) == 0:
			all, eb = append(all, eb[0]), eb[1:]
		case ea[0] == eb[0]:
			all, ea, eb = append(all, ea[0]), ea[1:], eb[1:]
		case ea[0].End < eb[0].Start:
			all, ea = append(all, ea[0]), ea[1:]
		case eb[0].End < ea[0].Start:
			all, eb = append(all, eb[0]), eb[1:]
		default:
			return "", false
		}
	}
	text, err := udiff.Apply(base, all)
	return text, err == nil
}

// lineEdits returns the edits from one text to another in whole lines, with adjacent ones joined.
func lineEdits(from, to string) []udiff.Edit {
	hunks, err := udiff.ToUnifiedDiff("", "", from, udiff.Lines(from, to), 0)
	if err != nil {
		// The edits are the library's own.
		panic(err)
	}
	starts := []int{0}
	for _, l := range strings.SplitAfter(from, "\n") {
		starts = append(starts, starts[len(starts)-1]+len(l))
	}
	var out []udiff.Edit
	for _, h := range hunks.Hunks {
		froms, _ := lineCounts(h)
		first := min(max(h.FromLine-1, 0), len(starts)-1)
		e := udiff.Edit{Start: starts[first], End: starts[min(first+froms, len(starts)-1)]}
		var b strings.Builder
		for _, l := range h.Lines {
			if l.Kind == udiff.Insert {
				b.WriteString(l.Content)
			}
		}
		e.New = b.String()
		if n := len(out); n > 0 && out[n-1].End == e.Start {
			out[n-1].End = e.End
			out[n-1].New += e.New
			continue
		}
		out = append(out, e)
	}
	return out
}
