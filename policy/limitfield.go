package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrUnknownLimit is returned by Set for a name that is no limit.
var ErrUnknownLimit = errors.New("no such limit")

// LimitField describes one limit of a struct of limits, so that names, units, parsing
// and the lattice are each written once.
type LimitField[T any] struct {
	Name  string
	Unit  Unit
	About string
	At    func(*T) *int64
}

func topLimits[T any](fields []LimitField[T]) (out T) {
	for _, f := range fields {
		*f.At(&out) = Unlimited
	}
	return out
}

func meetLimits[T any](fields []LimitField[T], a, b T) (out T) {
	for _, f := range fields {
		*f.At(&out) = max(0, min(*f.At(&a), *f.At(&b)))
	}
	return out
}

func lessEqLimits[T any](fields []LimitField[T], a, b T) bool {
	return !slices.ContainsFunc(fields,
		func(f LimitField[T]) bool { return max(0, *f.At(&a)) > max(0, *f.At(&b)) })
}

func normalLimits[T any](fields []LimitField[T], a T) T {
	for _, f := range fields {
		*f.At(&a) = max(0, *f.At(&a))
	}
	return a
}

func limitsString[T any](fields []LimitField[T], a T) string {
	texts := make([]string, len(fields))
	for i, f := range fields {
		texts[i] = f.Name + "=" + f.Unit.Format(max(0, *f.At(&a)))
	}
	return strings.Join(texts, " ")
}

func limitNames[T any](fields []LimitField[T]) []string {
	out := make([]string, len(fields))
	for i, f := range fields {
		out[i] = f.Name
	}
	return out
}

func setLimit[T any](fields []LimitField[T], l *T, name, value string) error {
	for _, f := range fields {
		if f.Name != name {
			continue
		}
		n, err := f.Unit.Parse(value)
		if err != nil {
			return fmt.Errorf("limit %s: %w", name, err)
		}
		*f.At(l) = n
		return nil
	}
	return fmt.Errorf("limit %q: %w: there are %s", name, ErrUnknownLimit,
		strings.Join(limitNames(fields), ", "))
}

func getLimit[T any](fields []LimitField[T], l T, name string) (int64, Unit, bool) {
	for _, f := range fields {
		if f.Name == name {
			return *f.At(&l), f.Unit, true
		}
	}
	return 0, Count, false
}

func putLimit[T any](fields []LimitField[T], l *T, name string, n int64) bool {
	for _, f := range fields {
		if f.Name == name {
			*f.At(l) = n
			return true
		}
	}
	return false
}
