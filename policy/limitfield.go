package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrUnknownLimit is what Set returns for a name that is no limit.
var ErrUnknownLimit = errors.New("no such limit")

// limitField describes one limit of a struct of limits, so that names, units, parsing
// and the lattice are each written once.
type limitField[T any] struct {
	name  string
	unit  Unit
	about string
	at    func(*T) *int64
}

// LimitInfo describes a limit for those who list them.
type LimitInfo struct {
	Name  string
	Unit  Unit
	About string
}

// LimitInfos describes all limits, those of fetch last and with the prefix "fetch.".
func LimitInfos() []LimitInfo {
	var out []LimitInfo
	for _, f := range limitFields {
		out = append(out, LimitInfo{f.name, f.unit, f.about})
	}
	for _, f := range fetchLimitFields {
		out = append(out, LimitInfo{"fetch." + f.name, f.unit, f.about})
	}
	return out
}

func topLimits[T any](fields []limitField[T]) (out T) {
	for _, f := range fields {
		*f.at(&out) = Unlimited
	}
	return out
}

func meetLimits[T any](fields []limitField[T], a, b T) (out T) {
	for _, f := range fields {
		*f.at(&out) = max(0, min(*f.at(&a), *f.at(&b)))
	}
	return out
}

func lessEqLimits[T any](fields []limitField[T], a, b T) bool {
	return !slices.ContainsFunc(fields,
		func(f limitField[T]) bool { return max(0, *f.at(&a)) > max(0, *f.at(&b)) })
}

func normalLimits[T any](fields []limitField[T], a T) T {
	for _, f := range fields {
		*f.at(&a) = max(0, *f.at(&a))
	}
	return a
}

func limitsString[T any](fields []limitField[T], a T) string {
	texts := make([]string, len(fields))
	for i, f := range fields {
		texts[i] = f.name + "=" + f.unit.Format(max(0, *f.at(&a)))
	}
	return strings.Join(texts, " ")
}

func limitNames[T any](fields []limitField[T]) []string {
	out := make([]string, len(fields))
	for i, f := range fields {
		out[i] = f.name
	}
	return out
}

func setLimit[T any](fields []limitField[T], l *T, name, value string) error {
	for _, f := range fields {
		if f.name != name {
			continue
		}
		n, err := f.unit.Parse(value)
		if err != nil {
			return fmt.Errorf("limit %s: %w", name, err)
		}
		*f.at(l) = n
		return nil
	}
	return fmt.Errorf("limit %q: %w: there are %s", name, ErrUnknownLimit,
		strings.Join(limitNames(fields), ", "))
}

func getLimit[T any](fields []limitField[T], l T, name string) (int64, Unit, bool) {
	for _, f := range fields {
		if f.name == name {
			return *f.at(&l), f.unit, true
		}
	}
	return 0, Count, false
}

func putLimit[T any](fields []limitField[T], l *T, name string, n int64) bool {
	for _, f := range fields {
		if f.name == name {
			*f.at(l) = n
			return true
		}
	}
	return false
}
