package jail_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/jail"
)

// FuzzParseID: what is taken is one name of a file that hides nothing, is no option, and needs no
// quoting.
func FuzzParseID(f *testing.F) {
	for _, s := range []string{"", "a", ".", "..", "a/b", "-a", ".hidden", "a\x00", "a\n", "é",
		strings.Repeat("a", 65), string(jail.NewID())} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := jail.ParseID(s)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\x00\x1b") {
				t.Errorf("not one clean line: %q", err)
			}
			return
		}
		clean := filepath.Clean(s) == s && filepath.Base(s) == s && s != "." && s != ".."
		if string(id) != s || !clean || strings.ContainsAny(s,
			"/\\ \t\n\"'$*?:;&|<>(){}[]!~#%=\x00\x7f") || strings.IndexAny(s, ".-_") == 0 ||
			len(s) > 64 {
			t.Errorf("%q is taken as %q", s, id)
		}
	})
}
