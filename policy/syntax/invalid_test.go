package syntax_test

import (
	"encoding/base64"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/policy/syntax"
)

// What is no TOML is no policy: each file of the conformance suite that must be refused is (T-522).
func TestInvalidTOML(t *testing.T) {
	text, err := os.ReadFile("testdata/toml-invalid.txt")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		name, encoded, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok && name == "" || name == "#" {
			continue
		}
		body, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			t.Fatal(err)
		}
		n++
		if v, err := syntax.Plain(name, body); err == nil {
			t.Errorf("%s is read as %v:\n%s", name, v, body)
		} else if !strings.HasPrefix(err.Error(), name+":") {
			t.Errorf("%s: an error without its place: %v", name, err)
		}
	}
	if n < 300 {
		t.Errorf("only %d files", n)
	}
}

// Files that are large, wide or deep are refused, or read, but never hang or exhaust anything.
func TestLargeFiles(t *testing.T) {
	ten := "policy = 1\n" + strings.Repeat("# comment\n", 1<<20)
	if _, err := syntax.Parse(syntax.Ceiling, "x.toml", []byte(ten), nil); err == nil ||
		!strings.Contains(err.Error(), "larger than 1 MiB") {
		t.Errorf("10 MB: %.200v", err)
	}
	var items []string
	for i := range 300 {
		items = append(items, fmt.Sprintf("%q", fmt.Sprintf("a/b%d", i)))
	}
	if _, err := syntax.Parse(syntax.Ceiling, "x.toml", []byte("policy = 1\n[tools]\nallow = ["+
		strings.Join(items, ",")+"]"), nil); err == nil || !strings.Contains(err.Error(),
		"at most") {
		t.Errorf("300 items: %.200v", err)
	}
	// Every file includes the next one twice: each is read once.
	find := func(name string) (string, []byte, error) {
		var i int
		if _, err := fmt.Sscanf(name, "f%d", &i); err != nil {
			return "", nil, err
		}
		text := "policy = 1\n[env]\nset = { A = \"" + name + "\" }\n"
		if i < 15 {
			text = fmt.Sprintf(
				"policy = 1\ninclude = [\"f%d\", \"f%d\"]\n[env]\nset = { A = %q }\n", i+1, i+1,
				name)
		}
		return name + ".toml", []byte(text), nil
	}
	f, err := syntax.Parse(syntax.Ceiling, "x.toml",
		[]byte("policy = 1\ninclude = [\"f0\", \"f1\"]"), find)
	if err != nil || f.Policy.Env.Set.Values["A"] != "f0" {
		t.Errorf("%v, %s: who included and overrode it counts", err, f.Policy.Env.Set)
	}
}

// Two items that differ only by case are two: names compare byte for byte, but for hosts.
func TestCaseOfItems(t *testing.T) {
	f := parse(t, syntax.Ceiling,
		"policy = 1\n[tools]\nallow = [\"a/b\", \"A/b\"]\n[[fetch.allow]]\n"+
			"host = \"EXAMPLE.com\"\n[[fetch.allow]]\nhost = \"example.COM\"\n")
	if len(f.Policy.Tools.Allow) != 2 || len(f.Policy.Fetch.Allow) != 1 {
		t.Errorf("%s, %s", f.Policy.Tools, f.Policy.Fetch)
	}
}
