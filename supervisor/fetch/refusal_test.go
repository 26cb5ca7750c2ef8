package fetch

import (
	"errors"
	"testing"
)

// What the tool reads of an error says each thing once, and nothing of this host's own addresses.
func TestPublicError(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{errors.Join(&answerError{"the name does not exist"},
			&answerError{"the name does not exist"}), "the name does not exist"},
		{errors.Join(errors.New("a"), errors.New("b")), "a; b"},
		{errors.New("read tcp 10.0.0.1:5->203.0.113.1:443: reset"), "203.0.113.1:443: reset"},
	} {
		if got := publicError(c.err); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
