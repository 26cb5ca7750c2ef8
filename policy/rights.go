package policy

import (
	"fmt"
	"strings"
)

// Rights is a set of what may be done with the files below a path.
type Rights uint8

// The rights. Tmpfs and Cache are no rights but kinds of mounts, which may be read and
// written: an empty file system in memory, and one of a bounded size that is kept for
// later runs.
const (
	Read Rights = 1 << iota
	Exec
	Write
	Tmpfs
	Cache
)

// AllRights is every right and kind.
const AllRights = Read | Exec | Write | Tmpfs | Cache

// SubsetOf reports whether s has each right of r.
func (r Rights) SubsetOf(s Rights) bool { return r&s == r }

var rightsWords = []struct {
	rights Rights
	word   string
}{
	{Read, "read"}, {Read | Exec, "read+exec"}, {Read | Write, "write"},
	{Read | Exec | Write, "write+exec"}, {Tmpfs, "tmpfs"}, {Cache, "cache"},
}

// Choices returns the words that a policy file has for rights.
func (Rights) Choices() []string {
	out := make([]string, len(rightsWords))
	for i, w := range rightsWords {
		out[i] = w.word
	}
	return out
}

// String returns the word of a policy file, or the single rights joined by a bar.
func (r Rights) String() string {
	if r == 0 {
		return "∅"
	}
	for _, w := range rightsWords {
		if w.rights == r {
			return w.word
		}
	}
	var out []string
	for i, name := range []string{"read", "exec", "write", "tmpfs", "cache"} {
		if r&(1<<i) != 0 {
			out = append(out, name)
		}
	}
	return strings.Join(out, "|")
}

// MarshalText writes the word of a policy file.
func (r Rights) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads the word of a policy file.
func (r *Rights) UnmarshalText(text []byte) error {
	for _, w := range rightsWords {
		if w.word == string(text) {
			*r = w.rights
			return nil
		}
	}
	return fmt.Errorf("%q is none of %q", text, r.Choices())
}
