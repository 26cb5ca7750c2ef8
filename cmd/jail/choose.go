package main

import (
	"context"
	"slices"

	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor"
	"github.com/jail-sandbox/jail/supervisor/api"
)

// A pick is one change with what was chosen of it.
type pick struct {
	change api.Change
	hunks  []workspace.Hunk
	taken  []bool // of its hunks, or one for a change without any
}

// A choice is a whole review, from which someone chooses.
type choice struct {
	info   supervisor.WorkspaceInfo
	picks  []pick
	digest string
}

// maxChoice is how many changes are chosen from by hand.
const maxChoice = 20000

// review reads a review with its hunks, what needs attention first.
func review(ctx context.Context, c *api.Client, id string) (ch choice, err error) {
	for line, err := range c.Changes(ctx, id, api.PatchHunks) {
		switch {
		case err != nil:
			return ch, err
		case line.Info != nil:
			ch.info = *line.Info
		case line.Change != nil:
			if len(ch.picks) == maxChoice {
				return ch, failed(nil, "name paths, patterns or classes instead", "there are more than %d changes to choose from by hand", maxChoice)
			}
			ch.picks = append(ch.picks, pick{change: *line.Change, taken: make([]bool, 1)})
		case line.Hunks != nil && len(ch.picks) > 0:
			p := &ch.picks[len(ch.picks)-1]
			p.hunks, p.taken = line.Hunks.Hunks, make([]bool, len(line.Hunks.Hunks))
		case line.Summary != nil:
			ch.digest = line.Summary.Digest
		}
	}
	slices.SortStableFunc(ch.picks, func(a, b pick) int {
		_, x := attention(a.change)
		_, y := attention(b.change)
		return x - y
	})
	return ch, nil
}

// open reports whether there is anything to choose about a change.
func (p pick) open() bool { return p.change.Refused == "" }

func (p pick) count() (taken int) {
	for _, t := range p.taken {
		if t {
			taken++
		}
	}
	return taken
}

func (p pick) set(take bool) {
	for i := range p.taken {
		p.taken[i] = take && p.open()
	}
}

// request asks for what was chosen, and for that alone; ok is false where that is nothing. Whoever took a protected name by hand has named it.
func (ch choice) request() (req supervisor.CommitRequest, ok bool) {
	req = supervisor.CommitRequest{Digest: ch.digest, Exact: true, IncludeProtected: true, Hunks: map[string][]int{}}
	for _, p := range ch.picks {
		path := p.change.Path.String()
		switch n := p.count(); {
		case n == 0 || !p.open():
		case n == len(p.taken):
			req.Paths = append(req.Paths, path)
		default:
			for i, t := range p.taken {
				if t {
					req.Hunks[path] = append(req.Hunks[path], i)
				}
			}
		}
	}
	return req, len(req.Paths) > 0 || len(req.Hunks) > 0
}

// chosen says what a request takes, for a last look.
func (ch choice) chosen() string {
	files, hunks := 0, 0
	for _, p := range ch.picks {
		if n := p.count(); n == len(p.taken) {
			files++
		} else {
			hunks += n
		}
	}
	text := count(files, "change", "changes")
	if hunks > 0 {
		text += " and " + count(hunks, "hunk of another file", "hunks of other files")
	}
	return text
}
