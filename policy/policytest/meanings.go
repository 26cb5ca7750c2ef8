package policytest

import (
	"fmt"
	"testing"
)

// Meaning is a line in a table of meanings: of two parts, which one a person would say
// grants less, and what they grant together.
type Meaning[T Part[T]] struct {
	Name string
	// Less grants strictly less than More. Where neither does, Apart is set.
	Less, More T
	Apart      bool
	// Both is what the two grant together; for two that are not apart, it is Less.
	Both T
	// Same is set where the two are written in two ways and grant the same.
	Same bool
}

// Meanings checks a table.
func Meanings[T Part[T]](t *testing.T, table []Meaning[T]) {
	t.Helper()
	for _, m := range table {
		for _, why := range m.Faults() {
			t.Errorf("%s: %s", m.Name, why)
		}
	}
}

// Faults returns each way in which the part does not mean what the line says.
func (m Meaning[T]) Faults() (out []string) {
	fault := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	both := m.Less
	if m.Apart {
		both = m.Both
	}
	if got := m.Less.LessEq(m.More); got == m.Apart {
		fault("%s ≤ %s is %v", m.Less, m.More, got)
	}
	if got := m.More.LessEq(m.Less); got != m.Same {
		fault("%s ≤ %s is %v", m.More, m.Less, got)
	}
	if got := m.Less.Meet(m.More); !Same(got, both) {
		fault("%s ∧ %s = %s, not %s", m.Less, m.More, got, both)
	}
	if got := m.More.Meet(m.Less); !Same(got, both) {
		fault("%s ∧ %s = %s, not %s", m.More, m.Less, got, both)
	}
	return out
}
