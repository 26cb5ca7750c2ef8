package store

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
)

// Bounds of facets.
const (
	// MaxFacets is how many facets an instance may have.
	MaxFacets = 64
	// maxDepth is how deep facets may be nested.
	maxDepth = 4
)

// Children are the methods of a Store for facets, the child instances of other instances.
type Children struct{ s *Store }

// ChildrenOf returns the facets of a store.
func ChildrenOf(s *Store) Children { return Children{s} }

var (
	// ErrTooMany: an instance already has MaxFacets, or a facet would be nested deeper than
	// maxDepth.
	ErrTooMany = errors.New("no more facets")
	// ErrDeleting: the facet is being deleted.
	ErrDeleting = errors.New("it is being deleted")
)

// Get returns the facet of an instance with this name, and creates it if there is none. ask is the
// parent's request for the facet. changed reports whether an existing facet had another ask.
func (c Children) Get(of int64, name string, ask []byte) (i Instance, changed bool, err error) {
	err = c.s.write(func(w *writer) error {
		parent, err := scanOne(w, of)
		if err != nil {
			return err
		}
		facet := path.Join(parent.Facet, name)
		var id int64
		var deleting bool
		var before []byte
		err = w.row(`SELECT id, deleting, ask FROM instance WHERE parent = ? AND facet = ?`,
			[]any{of, facet}, &id, &deleting, &before)
		switch {
		case err == ErrNotFound:
			id, err = w.makeFacet(parent, facet, ask, millis(c.s.now()))
		case err == nil && deleting:
			err = fmt.Errorf("facet %q: %w", name, ErrDeleting)
		case err == nil && string(before) != string(ask):
			changed = true
			err = w.exec(`UPDATE instance SET ask = ? WHERE id = ?`, ask, id)
		}
		if err != nil {
			return err
		}
		i, err = scanOne(w, id)
		return err
	})
	return i, changed, err
}

func (w *writer) makeFacet(parent Instance, facet string, ask []byte, now int64) (id int64,
	err error) {
	if parent.State == Terminated {
		return 0, ErrNotFound
	}
	if strings.Count(facet, "/") >= maxDepth {
		return 0, fmt.Errorf("facet %q: %d facets may stand in one another: %w", facet, maxDepth,
			ErrTooMany)
	}
	var n int
	if err := w.row(`SELECT count(*) FROM instance WHERE parent = ?`, []any{parent.ID},
		&n); err != nil {
		return 0, err
	}
	if n >= MaxFacets {
		return 0, fmt.Errorf("facet %q: there are %d already: %w", facet, n, ErrTooMany)
	}
	// The name is unique, since channel names have no capital letters.
	if err := w.row(`INSERT INTO instance (name, agent, channel, handle, state, changed, parent,
		facet, ask) VALUES (hex(randomblob(16)), ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id`,
		[]any{parent.Agent, parent.Channel, parent.Handle, Created, now, parent.ID, facet, ask},
		&id); err != nil {
		return 0, err
	}
	return id, w.exec(`UPDATE instance SET name = ? WHERE id = ?`, fmt.Sprintf("%s.F%d",
		instanceName(parent.Agent, parent.Channel), id), id)
}

// Find returns the facet of an instance with this name, or ErrNotFound.
func (c Children) Find(ctx context.Context, of Instance, name string) (Instance, error) {
	return instance(c.s.reading(ctx), `parent = ? AND facet = ? AND deleting = 0`, of.ID,
		path.Join(of.Facet, name))
}

// Of returns the direct facets of an instance, sorted by name.
func (c Children) Of(ctx context.Context, of int64) ([]Instance, error) {
	return instances(c.s.reading(ctx), `parent = ? AND deleting = 0 ORDER BY facet`, of)
}

// below selects the ids of an instance and of all facets below it.
const below = `WITH RECURSIVE below (id) AS (SELECT id FROM instance WHERE id = ? UNION
	SELECT i.id FROM instance i JOIN below b ON i.parent = b.id) SELECT id FROM below`

// Abort makes all waiting events of an instance and of all facets below it dead letters, with the
// reason, and returns these instances.
func (c Children) Abort(of int64, reason string) (all []Instance, err error) {
	err = c.s.write(func(w *writer) (err error) {
		if all, err = instances(w.rows, `id IN (`+below+`)`, of); err != nil {
			return err
		}
		now := c.s.now()
		for _, i := range all {
			if _, err := w.bury(i.ID, 0, 1<<62, reason, now); err != nil {
				return err
			}
		}
		return nil
	})
	return all, err
}

// Lost returns the reason why the event with this id is a dead letter of an instance, or
// ErrNotFound.
func (c Children) Lost(ctx context.Context, of int64, id string) (reason string, err error) {
	return reason, c.s.readers.row(`SELECT reason FROM dead WHERE instance = ? AND id = ?`,
		[]any{of, id}, &reason)
}

// Condemn deletes the data of a facet and of all facets below it, and returns them. Their names
// stay in use until the caller has removed their files and calls Forget.
func (c Children) Condemn(facet int64) (all []Instance, err error) {
	err = c.s.write(func(w *writer) error {
		all, err = w.condemn(below, facet)
		return err
	})
	return all, err
}

func (w *writer) condemn(which string, arg any) ([]Instance, error) {
	for _, table := range []string{"inbox", "dead", "seen", "alarm", "publication"} {
		if err := w.exec(`DELETE FROM `+table+` WHERE instance IN (`+which+`)`, arg); err != nil {
			return nil, err
		}
	}
	if err := w.exec(`UPDATE instance SET deleting = 1, state = '`+Terminated+`', waiting = 0,
		bytes = 0 WHERE id IN (`+which+`)`, arg); err != nil {
		return nil, err
	}
	return instances(w.rows, `id IN (`+which+`)`, arg)
}

// Condemned returns the instances for which Forget was not called, for example after a crash.
func (c Children) Condemned(ctx context.Context) ([]Instance, error) {
	return instances(c.s.reading(ctx), `deleting = 1`)
}

// Forget deletes condemned instances from the database, after their files are removed.
func (c Children) Forget(all []Instance) error {
	return c.s.write(func(w *writer) error {
		for _, i := range all {
			if err := w.exec(`DELETE FROM instance WHERE id = ? AND deleting = 1`,
				i.ID); err != nil {
				return err
			}
		}
		return nil
	})
}
