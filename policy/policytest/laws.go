package policytest

import (
	"encoding/json"
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// Part is what a part of a policy is, and a whole one too.
type Part[T any] interface {
	Meet(T) T
	LessEq(T) bool
	Normal() T
	String() string
}

// Same reports whether two parts have one normal form.
func Same[T Part[T]](a, b T) bool { return form(a) == form(b) }

func form[T Part[T]](a T) string {
	text, err := json.Marshal(a.Normal())
	if err != nil {
		return "no form: " + err.Error()
	}
	return string(text)
}

// Laws checks the laws of a bounded lattice on generated parts. bottom must lie below
// each of them, and top above.
func Laws[T Part[T]](t *testing.T, gen *rapid.Generator[T], bottom, top T) {
	t.Helper()
	for name, law := range laws(bottom, top) {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				a, b, c := gen.Draw(rt, "a"), gen.Draw(rt, "b"), gen.Draw(rt, "c")
				if why := law(a, b, c); why != "" {
					rt.Fatalf("%s\na = %s\nb = %s\nc = %s", why, a, b, c)
				}
			})
		})
	}
}

func laws[T Part[T]](bottom, top T) map[string]func(a, b, c T) string {
	same := func(what string, x, y T) string {
		if Same(x, y) {
			return ""
		}
		return fmt.Sprintf("%s: %s is not %s", what, form(x), form(y))
	}
	return map[string]func(a, b, c T) string{
		"Idempotent":  func(a, _, _ T) string { return same("a∧a = a", a.Meet(a), a) },
		"Commutative": func(a, b, _ T) string { return same("a∧b = b∧a", a.Meet(b), b.Meet(a)) },
		"Associative": func(a, b, c T) string {
			return same("(a∧b)∧c = a∧(b∧c)", a.Meet(b).Meet(c), a.Meet(b.Meet(c)))
		},
		"Absorbing": func(a, _, _ T) string { return same("a∧⊥ = ⊥", a.Meet(bottom), bottom) },
		"Identity":  func(a, _, _ T) string { return same("a∧⊤ = a", a.Meet(top), a) },
		"NormalTwice": func(a, _, _ T) string {
			return same("normal form of a normal form", a.Normal().Normal(), a)
		},
		"OrderAgreesWithMeet": func(a, b, _ T) string {
			if le := a.LessEq(b); le != Same(a.Meet(b), a) {
				return fmt.Sprintf("a≤b is %v, but a∧b = %s", le, form(a.Meet(b)))
			}
			return ""
		},
		"MeetIsBelow": func(a, b, c T) string {
			m := a.Meet(b)
			if !m.LessEq(a) || !m.LessEq(b) {
				return "a∧b does not lie below both"
			}
			if c.LessEq(a) && c.LessEq(b) && !c.LessEq(m) {
				return "c lies below both, but not below a∧b"
			}
			return ""
		},
		"OrderIsPartial": func(a, b, c T) string {
			switch {
			case !a.LessEq(a):
				return "a does not lie below itself"
			case !bottom.LessEq(a) || !a.LessEq(top):
				return "a does not lie between bottom and top"
			case a.LessEq(b) && b.LessEq(a) && !Same(a, b):
				return "a and b lie below each other, and are not one"
			case a.LessEq(b) && b.LessEq(c) && !a.LessEq(c):
				return "order is not transitive"
			}
			return ""
		},
		"Monotone": func(a, b, c T) string {
			if a.LessEq(b) && !a.Meet(c).LessEq(b.Meet(c)) {
				return "a≤b, but a∧c does not lie below b∧c"
			}
			return ""
		},
		"Pure": func(a, b, _ T) string {
			beforeA, beforeB := form(a), form(b)
			a.Meet(b)
			a.LessEq(b)
			if form(a) != beforeA || form(b) != beforeB {
				return "an operator changed its operands"
			}
			return ""
		},
	}
}
