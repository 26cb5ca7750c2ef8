package learn

import (
	"cmp"
	"context"
	"slices"

	"github.com/jail-sandbox/jail/policy"
)

// Try runs the tool under a draft and reports whether the run was as it was under the wide policy.
type Try func(context.Context, Draft) (same bool, err error)

// maxTrials bounds how often Least runs the tool.
const maxTrials = 200

// A search tries drafts.
type search struct {
	ctx     context.Context
	try     Try
	trials  int
	dropped []Item
}

func (s *search) same(d Draft) (bool, error) {
	if s.trials >= maxTrials {
		// Untried items stay.
		return false, nil
	}
	s.trials++
	return s.try(s.ctx, d)
}

// Tried is the result of a search for the least draft.
type Tried struct {
	Draft Draft
	// Dropped was observed, or marked as blind, and is not needed.
	Dropped []Item
	Trials  int
	// Whole: everything was tried.
	Whole bool
}

// Least takes out of a draft, under which the run is the same, all that the run is the same
// without. names gives the names by which the programs of a directory are also known.
func Least(ctx context.Context, d Draft, files []File, names map[string][]string, try Try) (Tried,
	error) {
	s := &search{ctx: ctx, try: try}
	var err error
	for _, step := range []func(Draft) (Draft, error){s.blind, s.workspace, func(d Draft) (Draft,
		error) {
		return s.narrow(d, files, names)
	}, s.each} {
		if d, err = step(d); err != nil {
			return Tried{Draft: d, Trials: s.trials}, err
		}
	}
	return Tried{Draft: d, Dropped: s.dropped, Trials: s.trials, Whole: s.trials < maxTrials}, nil
}

func without(d Draft, out []Item) Draft {
	return d.with(slices.DeleteFunc(slices.Clone(d.Items), func(i Item) bool {
		return slices.ContainsFunc(out, func(o Item) bool {
			return o.Kind == i.Kind && o.Name == i.Name
		})
	}))
}

// blind takes out what nothing observed asks for, by halves: most of it is not needed.
func (s *search) blind(d Draft) (Draft, error) {
	var maybe []Item
	for _, i := range d.Items {
		if i.Blind && !i.Fixed {
			maybe = append(maybe, i)
		}
	}
	return s.halve(d, maybe)
}

func (s *search) halve(d Draft, maybe []Item) (Draft, error) {
	if len(maybe) == 0 {
		return d, nil
	}
	less := without(d, maybe)
	same, err := s.same(less)
	switch {
	case err != nil:
		return d, err
	case same:
		s.dropped = append(s.dropped, maybe...)
		return less, nil
	case len(maybe) == 1:
		return d, nil
	}
	if d, err = s.halve(d, maybe[:len(maybe)/2]); err != nil {
		return d, err
	}
	return s.halve(d, maybe[len(maybe)/2:])
}

// workspace tries less of it.
func (s *search) workspace(d Draft) (Draft, error) {
	for _, access := range []policy.WorkspaceAccess{policy.WorkspaceNone, policy.WorkspaceRead} {
		less := d
		less.Access = access
		// Nothing hides a secret of the directory itself from a program of the host.
		if access >= d.Access || access == policy.WorkspaceRead && d.Native || d.Writes {
			continue
		}
		same, err := s.same(less)
		if err != nil {
			return d, err
		}
		if same {
			return less, nil
		}
	}
	return d, nil
}

// narrow tries single programs in place of the directories that they are in.
func (s *search) narrow(d Draft, files []File, names map[string][]string) (Draft, error) {
	for _, item := range d.Of(KindMount) {
		single, ok := narrow(item, d.Tool, files, names)
		if !ok || item.Blind {
			continue
		}
		less := without(d, []Item{item})
		less.Items = slices.Concat(single, less.Items)
		// And the same programs by those names.
		for _, i := range single {
			if !less.Has(KindNative, i.Name) {
				less.Items = append(less.Items, Item{Kind: KindNative, Name: i.Name, Why: i.Why})
			}
		}
		same, err := s.same(less)
		if err != nil {
			return d, err
		}
		if same {
			d = less
			s.dropped = append(s.dropped, Item{Kind: item.Kind, Name: item.Name, Mount: item.Mount,
				Why: "its programs alone do."})
		}
	}
	return d, nil
}

// each tries every item that is left once, mounts first: to what is not there nothing else can be
// needed. Once is enough otherwise: what a run cannot do without, it cannot do without when it has
// still less.
func (s *search) each(d Draft) (Draft, error) {
	items := slices.Clone(d.Items)
	slices.SortStableFunc(items, func(a, b Item) int {
		return cmp.Compare(mountsLast(a), mountsLast(b))
	})
	for _, i := range slices.Backward(items) {
		if i.Fixed {
			continue
		}
		less := without(d, []Item{i})
		same, err := s.same(less)
		// What a busy host made differ once is no need.
		if err == nil && !same {
			same, err = s.same(less)
		}
		if err != nil {
			return d, err
		}
		if same {
			d = less
			s.dropped = append(s.dropped, i)
		}
	}
	return s.access(d)
}

func mountsLast(i Item) int {
	if i.Kind == KindMount {
		return 1
	}
	return 0
}

// access tries to read where a mount may also be executed from.
func (s *search) access(d Draft) (Draft, error) {
	for n, i := range d.Items {
		if i.Kind != KindMount || i.Mount.Access != policy.Read|policy.Exec {
			continue
		}
		less := d.with(d.Items)
		less.Items[n].Mount.Access = policy.Read
		same, err := s.same(less)
		if err != nil {
			return d, err
		}
		if same {
			d = less
		}
	}
	return d, nil
}
