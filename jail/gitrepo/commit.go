package gitrepo

import (
	"bytes"
	"container/heap"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// commit has the fields of a commit object that a walk of the history needs.
type commit struct {
	tree    oid
	parents []oid
	// date of the committer, in seconds since 1970.
	date  int64
	title string
}

// maxParents bounds the parents of one commit.
const maxParents = 1000

// readCommit reads a commit into r.commits. The error is errMany beyond maxCommits.
func (r *repository) readCommit(name oid) error {
	if r.commits[name] != nil {
		return nil
	}
	if len(r.commits) >= maxCommits {
		return errMany
	}
	o, err := r.load(name)
	if err != nil {
		return err
	}
	if o.kind != commitKind {
		return fmt.Errorf("object %s is a %s, not a commit", name, o.kind)
	}
	c, err := parseCommit(o.data)
	if err != nil {
		return fmt.Errorf("commit %s: %w", name, err)
	}
	if r.shallow[name] {
		c.parents = nil
	}
	r.commits[name] = c
	return nil
}

// errMany means that a history is longer than maxCommits.
var errMany = fmt.Errorf("more than %d commits", maxCommits)

func parseCommit(data []byte) (*commit, error) {
	c := &commit{}
	head, message, _ := bytes.Cut(data, []byte("\n\n"))
	for i, line := range strings.Split(string(head), "\n") {
		field, value, _ := strings.Cut(line, " ")
		switch {
		case i == 0:
			tree, ok := parseOID(value)
			if field != "tree" || !ok {
				return nil, errors.New("it has no tree")
			}
			c.tree = tree
		case field == "parent" && i == len(c.parents)+1:
			parent, ok := parseOID(value)
			if !ok || len(c.parents) == maxParents {
				return nil, errors.New("it has a bad parent")
			}
			c.parents = append(c.parents, parent)
		case field == "committer" && c.date == 0:
			if i := strings.LastIndex(value, "> "); i >= 0 {
				stamp, _, _ := strings.Cut(value[i+2:], " ")
				// An invalid date only makes the walk longer.
				c.date, _ = strconv.ParseInt(stamp, 10, 64)
			}
		}
	}
	for line := range bytes.Lines(message) {
		if c.title = strings.TrimSpace(clean(string(line), maxTitle)); c.title != "" {
			break
		}
	}
	return c, nil
}

// peel follows tags from an object to a commit and returns its id. ok is false if there is none.
func (r *repository) peel(name oid) (at oid, ok bool, err error) {
	for range 10 {
		if r.commits[name] != nil {
			return name, true, nil
		}
		o, err := r.load(name)
		if err != nil {
			return name, false, err
		}
		switch o.kind {
		case commitKind:
			err := r.readCommit(name)
			return name, err == nil, err
		case tagKind:
			line, _, _ := strings.Cut(string(o.data), "\n")
			if name, ok = parseOID(strings.TrimPrefix(line, "object ")); !ok {
				return name, false, errors.New("a tag names no object")
			}
		default:
			return name, false, nil
		}
	}
	return name, false, errors.New("tags of tags")
}

// Marks of commits in compare: reachable from the new side, from the old side.
const (
	// reachable from the new ones, from the old ones.
	fromNew = 1 << iota
	fromOld
)

// compared is the result of compare.
type compared struct {
	// in are the commits that only the new side has, out those that only the old side has.
	in, out []oid
	marks   map[oid]int
	// more: the walk was cut off at maxCommits.
	more bool
}

// compare walks two histories from their tips, fresh and old, down to common commits, as git does
// to find merge bases. With both it also finds all commits that only the old side has.
func (r *repository) compare(fresh, old []oid, both bool) (c compared, err error) {
	c.marks = map[oid]int{}
	q := &dateQueue{r: r, holds: map[oid]bool{}, came: map[oid]int{}}
	var order []oid
	push := func(name oid, mark int) error {
		was := c.marks[name]
		if was|mark == was {
			return nil
		}
		if err := r.readCommit(name); err != nil {
			return err
		}
		if was == 0 {
			order = append(order, name)
		}
		if q.holds[name] {
			q.count(was, -1)
			q.count(was|mark, 1)
		}
		c.marks[name] = was | mark
		if !q.holds[name] {
			q.count(was|mark, 1)
			heap.Push(q, name)
		}
		return nil
	}
	for _, side := range []struct {
		mark  int
		names []oid
	}{{fromNew, fresh}, {fromOld, old}} {
		for _, name := range side.names {
			if err := push(name, side.mark); err != nil {
				return c, err
			}
		}
	}
	for steps := 0; q.fresh > 0 || both && q.old > 0; steps++ {
		if steps == maxCommits {
			c.more = true
			break
		}
		if err := r.ctx.Err(); err != nil {
			return c, err
		}
		name := heap.Pop(q).(oid)
		mark := c.marks[name]
		q.count(mark, -1)
		for _, parent := range r.commits[name].parents {
			switch err := push(parent, mark); {
			case errors.Is(err, errMany):
				c.more = true
			case err != nil:
				return c, err
			}
		}
	}
	for _, name := range order {
		switch c.marks[name] {
		case fromNew:
			c.in = append(c.in, name)
		case fromOld:
			c.out = append(c.out, name)
		}
	}
	return c, nil
}

// dateQueue is a heap of commits, the newest first. Commits of the same second are in the order in
// which they were first pushed.
type dateQueue struct {
	r     *repository
	names []oid
	holds map[oid]bool
	came  map[oid]int
	// fresh and old count the queued commits that are marked by one side only.
	fresh, old int
}

func (q *dateQueue) count(mark, n int) {
	switch mark {
	case fromNew:
		q.fresh += n
	case fromOld:
		q.old += n
	}
}

func (q *dateQueue) Len() int { return len(q.names) }

func (q *dateQueue) Less(i, j int) bool {
	a, b := q.names[i], q.names[j]
	if x, y := q.r.commits[a].date, q.r.commits[b].date; x != y {
		return x > y
	}
	return q.came[a] < q.came[b]
}

func (q *dateQueue) Swap(i, j int) { q.names[i], q.names[j] = q.names[j], q.names[i] }

func (q *dateQueue) Push(x any) {
	name := x.(oid)
	q.names = append(q.names, name)
	q.holds[name] = true
	if _, ok := q.came[name]; !ok {
		q.came[name] = len(q.came)
	}
}

func (q *dateQueue) Pop() any {
	last := q.names[len(q.names)-1]
	q.names = q.names[:len(q.names)-1]
	delete(q.holds, last)
	return last
}
