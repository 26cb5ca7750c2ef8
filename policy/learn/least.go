package learn

import (
	"cmp"
	"context"
	"slices"

	"github.com/jail-sandbox/jail/policy"
)

// Try runs the tool under a draft and reports whether it behaved as under the wide policy.
type Try func(context.Context, Draft) (same bool, err error)

// maxTrials bounds how often Least runs the tool.
const maxTrials = 200

// A search counts trials and collects the items that are not needed.
type search struct {
	ctx     context.Context
	try     Try
	trials  int
	dropped []Item
}

func (s *search) same(d Draft) (bool, error) {
	if s.trials >= maxTrials {
		// Items that are not tried stay.
		return false, nil
	}
	s.trials++
	return s.try(s.ctx, d)
}

// Tried is the result of a search for the least draft.
type Tried struct {
	Draft Draft
	// Dropped are the items that are not needed.
	Dropped []Item
	Trials  int
	// Whole is set if every item was tried.
	Whole bool
}

// Least removes all items of a draft without which the run stays the same. names has further names
// of programs, by path.
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

// blind removes blind items by bisection, since most are not needed.
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

// workspace tries less access to the workspace.
func (s *search) workspace(d Draft) (Draft, error) {
	for _, access := range []policy.WorkspaceAccess{policy.WorkspaceNone, policy.WorkspaceRead} {
		less := d
		less.Access = access
		// Secrets in the directory itself cannot be hidden from a program of the host.
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

// narrow tries mounts of single programs instead of their directories.
func (s *search) narrow(d Draft, files []File, names map[string][]string) (Draft, error) {
	for _, item := range d.Of(KindMount) {
		single, ok := narrow(item, d.Tool, files, names)
		if !ok || item.Blind {
			continue
		}
		less := without(d, []Item{item})
		less.Items = slices.Concat(single, less.Items)
		// Grant the same programs by those names.
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

// each tries to remove every remaining item once, mounts first, since without a mount nothing in it
// is needed. Once is enough: what a run needs now, it also needs with fewer grants.
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
		// Try again, since a busy host may have caused the difference.
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

// access tries mounts without the right to execute.
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
