package policy

import (
	"fmt"
	"slices"
)

// A word is a value for which a policy file has a word. L has the words, each of which grants more
// than the one before.
type word[L wordList] uint8

type wordList interface{ words() []string }

func (word[L]) words() []string {
	var list L
	return list.words()
}

// Choices returns the words of a policy file, the strictest first.
func (w word[L]) Choices() []string { return w.words() }

func (w word[L]) String() string {
	if words := w.words(); int(w) < len(words) {
		return words[w]
	}
	return fmt.Sprintf("invalid(%d)", uint8(w))
}

// MarshalText writes the word of a policy file.
func (w word[L]) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// UnmarshalText reads the word of a policy file.
func (w *word[L]) UnmarshalText(text []byte) error {
	i := slices.Index(w.words(), string(text))
	if i < 0 {
		return fmt.Errorf("%q is none of %q", text, w.words())
	}
	*w = word[L](i)
	return nil
}
