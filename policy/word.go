package policy

import (
	"fmt"
	"slices"
)

// A word is a value that policy files write as a word: the index of one of W's words, of which the
// first is the strictest.
type word[W interface{ words() []string }] uint8

// Choices returns all words, the strictest first.
func (word[W]) Choices() []string {
	var all W
	return all.words()
}

// A Word is a policy value that files write as a word.
type Word interface {
	fmt.Stringer
	Choices() []string
	UnmarshalText([]byte) error
	// defined reports whether the value is valid; take copies the value of a Word of the same type.
	defined() bool
	take(any)
}

func (v word[W]) defined() bool { return int(v) < len(v.Choices()) }

// orStrictest returns v, or the strictest value if v is not valid.
func (v word[W]) orStrictest() word[W] {
	if !v.defined() {
		return 0
	}
	return v
}

func (v *word[W]) take(other any) { *v = *other.(*word[W]) }

func (v word[W]) String() string {
	if all := v.Choices(); int(v) < len(all) {
		return all[v]
	}
	return fmt.Sprintf("invalid(%d)", uint8(v))
}

// MarshalText writes the word of a policy file.
func (v word[W]) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText reads the word of a policy file.
func (v *word[W]) UnmarshalText(text []byte) error {
	i := slices.Index(v.Choices(), string(text))
	if i < 0 {
		return fmt.Errorf("%q is none of %q", text, v.Choices())
	}
	*v = word[W](i)
	return nil
}
