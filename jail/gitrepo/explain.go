package gitrepo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Explain reports the changes of refs and HEAD in a repository. The caller sets Path, Index, Files
// and Bytes. For a repository that is not understood, it sets NotUnderstood and returns no error.
func Explain(ctx context.Context, files Files) (Report, error) {
	r, err := openRepository(ctx, files)
	var report Report
	if err == nil {
		defer r.Close()
		report, err = r.explain()
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = unknown("it takes too long to read")
	}
	if errors.Is(err, errUnknown) {
		return Report{NotUnderstood: strings.TrimPrefix(clean(err.Error(), 300),
			errUnknown.Error()+": ")}, nil
	}
	return report, err
}

func (r *repository) explain() (report Report, err error) {
	var heads [2]string
	var refs [2]map[string]string
	for _, side := range []Side{Real, Shadow} {
		if heads[side], err = r.head(side); err != nil {
			return report, err
		}
		if refs[side], err = r.refs(side); err != nil {
			return report, err
		}
	}
	if heads[Real] != heads[Shadow] {
		report.Head = &HeadChange{shortHead(heads[Real]), shortHead(heads[Shadow])}
	}
	was := r.tips(refs[Real])
	names := slices.Sorted(maps.Keys(refs[Real]))
	for name := range refs[Shadow] {
		if _, ok := refs[Real][name]; !ok {
			names = append(names, name)
		}
	}
	slices.SortStableFunc(names, func(a, b string) int {
		return cmp.Or(refOrder(a)-refOrder(b), strings.Compare(a, b))
	})
	for _, name := range names {
		before, after := refs[Real][name], refs[Shadow][name]
		if before == after {
			continue
		}
		if len(report.Refs) == maxShown {
			report.MoreRefs++
			continue
		}
		c, err := r.refChange(name, before, after, was)
		if err != nil {
			return report, err
		}
		report.Refs = append(report.Refs, c)
	}
	return report, nil
}

// tips returns the ids of the commits to which refs lead. It leaves out those that cannot be read.
func (r *repository) tips(refs map[string]string) (tips []oid) {
	for _, value := range refs {
		if name, ok := parseOID(value); ok {
			if at, ok, err := r.peel(name); ok && err == nil {
				tips = append(tips, at)
			}
		}
	}
	return tips
}

// refOrder returns the position of a ref in a report: branches first, then tags, stash and others.
func refOrder(name string) int {
	for i, prefix := range []string{"refs/heads/", "refs/tags/", "refs/stash"} {
		if strings.HasPrefix(name, prefix) {
			return i
		}
	}
	return 9
}

// shortHead returns the short name of the branch that HEAD names, or the commit id.
func shortHead(head string) string {
	if ref, ok := symbolic(head); ok {
		return clean(strings.TrimPrefix(ref, "refs/heads/"), maxTitle)
	}
	if name, ok := parseOID(head); ok {
		return name.String()
	}
	return clean(head, 40)
}

// refChange describes the change of a ref from before to after. was are the commits of all refs of
// the real side, against which a new ref is compared.
func (r *repository) refChange(name, before, after string, was []oid) (c RefChange, err error) {
	c = RefChange{Ref: clean(name, 200), Before: refValue(before), After: refValue(after)}
	if !ValidRef(name) {
		c.Problem = "git takes no ref of this name"
		return c, nil
	}
	new, isObject := parseOID(after)
	if !isObject {
		if _, ok := symbolic(after); !ok && after != "" {
			c.Problem = "it names no object"
		}
		return c, nil
	}
	old, hasOld := parseOID(before)
	problem := func(err error) (RefChange, error) {
		if r.ctx.Err() != nil {
			return c, err
		}
		c.Problem = clean(err.Error(), 300)
		return c, nil
	}
	tip, ok, err := r.peel(new)
	if err != nil {
		return problem(err)
	}
	if !ok {
		return c, nil
	}
	from := was
	if hasOld {
		base, ok, err := r.peel(old)
		if err != nil {
			return problem(err)
		}
		if !ok {
			return c, nil
		}
		from = []oid{base}
	}
	both, err := r.compare([]oid{tip}, from, hasOld)
	if err != nil {
		return problem(err)
	}
	c.Commits, c.More = len(both.in), both.more
	if hasOld {
		c.Lost, c.Rewritten = len(both.out), both.marks[from[0]]&fromNew == 0
	}
	if name == "refs/stash" || len(both.in) == 0 {
		both.in = []oid{tip}
	}
	slices.SortStableFunc(both.in, func(a, b oid) int {
		return int(min(max(r.commits[b].date-r.commits[a].date, -1), 1))
	})
	for _, in := range both.in[:min(maxTitles, len(both.in))] {
		c.Titles = append(c.Titles, r.commits[in].title)
	}
	return c, nil
}

// refValue returns the value of a ref for a RefChange.
func refValue(value string) string {
	if name, ok := parseOID(value); ok {
		return name.String()
	}
	if ref, ok := symbolic(value); ok {
		return "ref: " + clean(ref, 200)
	}
	return clean(value, 40)
}

// Write sets Lines from the other fields.
func (p *Report) Write() {
	p.Lines = []string{}
	if p.NotUnderstood != "" {
		p.Lines = append(p.Lines, "not understood: "+p.NotUnderstood)
	}
	if p.Head != nil {
		p.Lines = append(p.Lines, fmt.Sprintf("HEAD: %s -> %s", shownHead(p.Head.Before),
			shownHead(p.Head.After)))
	}
	for _, c := range p.Refs {
		p.Lines = append(p.Lines, c.line())
	}
	if p.MoreRefs > 0 {
		p.Lines = append(p.Lines, fmt.Sprintf("%d more refs changed", p.MoreRefs))
	}
	if p.Index {
		p.Lines = append(p.Lines, "index changed")
	}
}

func shownHead(head string) string {
	if head == "" {
		return "nothing"
	}
	if name, ok := parseOID(head); ok {
		return name.String()[:7] + " (no branch)"
	}
	return head
}

// line describes the change in one line for people.
func (c RefChange) line() string {
	what, name := refKind(c.Ref)
	if name == "" {
		name, what = what, ""
	}
	label := strings.TrimSpace(what + " " + name)
	text := ""
	switch {
	case c.After == "":
		return withProblem(fmt.Sprintf("%s deleted, was %s", label, shortValue(c.Before)), c)
	case c.Before == "":
		text = fmt.Sprintf("new %s at %s", label, shortValue(c.After))
	default:
		dots := ".."
		if c.Rewritten {
			dots = "..."
		}
		if what == "branch" {
			label = name
		}
		text = label + " " + shortValue(c.Before) + dots + shortValue(c.After)
	}
	if c.Rewritten {
		text += fmt.Sprintf(", rewritten: %s gone", commits(c.Lost, c.More))
		if c.Commits > 0 {
			text += ", " + commits(c.Commits, c.More) + " new"
		}
	} else if c.Commits > 0 && what != "stash" && name != "stash" {
		text += ", " + commits(c.Commits, c.More)
	}
	var titles []string
	for _, t := range c.Titles {
		titles = append(titles, `"`+t+`"`)
	}
	if len(titles) > 0 {
		text += ": " + strings.Join(titles, ", ")
		if rest := c.Commits - len(titles); rest > 0 && name != "stash" {
			text += fmt.Sprintf(" and %d more", rest)
		}
	}
	return withProblem(text, c)
}

func withProblem(text string, c RefChange) string {
	if c.Problem != "" {
		text += " (broken: " + c.Problem + ")"
	}
	return text
}

func commits(n int, more bool) string {
	switch {
	case more:
		return fmt.Sprintf("more than %d commits", n)
	case n == 1:
		return "1 commit"
	}
	return fmt.Sprintf("%d commits", n)
}

func shortValue(value string) string {
	if name, ok := parseOID(value); ok {
		return name.String()[:7]
	}
	return value
}

// refKind returns the kind and short name of a ref. name is "" for the stash and unknown kinds.
func refKind(ref string) (kind, name string) {
	for prefix, kind := range map[string]string{"refs/heads/": "branch", "refs/tags/": "tag",
		"refs/remotes/": "remote branch"} {
		if name, ok := strings.CutPrefix(ref, prefix); ok {
			return kind, name
		}
	}
	if ref == "refs/stash" {
		return "stash", ""
	}
	return ref, ""
}

// Bounded returns a report from another process without Path and Lines, and with all texts and
// lists cleaned and cut off as Explain does.
func (p Report) Bounded() Report {
	p.NotUnderstood = clean(p.NotUnderstood, 300)
	p.Path, p.Lines = "", nil
	if p.Head != nil {
		p.Head = &HeadChange{clean(p.Head.Before, maxTitle), clean(p.Head.After, maxTitle)}
	}
	p.Refs = p.Refs[:min(len(p.Refs), maxShown)]
	for i := range p.Refs {
		c := &p.Refs[i]
		c.Ref, c.Before, c.After = clean(c.Ref, 200), clean(c.Before, 205), clean(c.After, 205)
		c.Problem = clean(c.Problem, 300)
		c.Titles = c.Titles[:min(len(c.Titles), maxTitles)]
		for j := range c.Titles {
			c.Titles[j] = clean(c.Titles[j], maxTitle+1)
		}
	}
	return p
}
