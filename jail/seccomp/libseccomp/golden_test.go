package libseccomp_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/jail/seccomp"
	"github.com/jail-sandbox/jail/jail/seccomp/libseccomp"
)

var update = flag.Bool("update", false, "write the golden files as they are now")

// most calls that a filter may allow.
var most = map[string]int{"wasi": 60, "init": 80, "native": 191}

// TestGolden compares what each filter answers to every number with its golden file, so that a
// change of a filter is a change that is read.
func TestGolden(t *testing.T) {
	for name, f := range filters() {
		if len(f.Allow) > most[name] {
			t.Errorf("filter %s allows %d calls, more than %d", name, len(f.Allow), most[name])
		}
		golden(t, name, readable(t, f))
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	wanted := strings.Split(string(want), "\n")
	for i, line := range strings.Split(got, "\n") {
		if i >= len(wanted) || line != wanted[i] {
			t.Fatalf("%s: line %d is now %q; go test -update writes it", path, i+1, line)
		}
	}
	if string(want) != got {
		t.Fatalf("%s is longer than what there is now; go test -update writes it", path)
	}
}

// readable asks the compiled program about every number.
func readable(t *testing.T, f seccomp.Filter) string {
	t.Helper()
	program := compile(t, f)
	var b strings.Builder
	fmt.Fprintf(&b,
		"# %s: %d system calls are allowed; the others that have a name are refused, and numbers "+
			"without one are not there\n",
		strings.Join(f.Groups, " "), len(f.Allow))
	unknown := 0
	for nr := range uint32(numbers) {
		// And only a newer libseccomp has a name for them.
		if unfiltered[int(nr)] {
			continue
		}
		name, known := libseccomp.NameOf(int(nr))
		if !known {
			unknown++
			if answer := run(t, program, data(x64, nr)); answer != retNotify {
				t.Errorf("number %d, which nobody knows: %#x", nr, answer)
			}
			continue
		}
		fmt.Fprintf(&b, "%d %s %s\n", nr, name, answerOf(t, f, program, nr, name))
	}
	fmt.Fprintf(&b, "and %d numbers below %d: refused ENOSYS\n", unknown, numbers)
	return b.String()
}

func answerOf(t *testing.T, f seccomp.Filter, program []byte, nr uint32, name string) string {
	t.Helper()
	if i := slices.IndexFunc(f.Only,
		func(c seccomp.Condition) bool { return c.Call == name }); i >= 0 {
		text := "allowed where"
		for _, c := range f.Only[i:] {
			if c.Call == name {
				text += " " + strings.TrimPrefix(c.String(), name)
			}
		}
		return text
	}
	switch answer := run(t, program, data(x64, nr)); answer {
	case retAllow:
		return "allowed"
	case retNotify:
		return "refused " + f.Errno
	case retErrno | 38:
		return "not there"
	case retErrno | 95:
		return "not supported"
	case retErrno | 22:
		return "invalid"
	default:
		return fmt.Sprintf("%#x", answer)
	}
}
