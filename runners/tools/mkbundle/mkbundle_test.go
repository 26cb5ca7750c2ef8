package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestImports(t *testing.T) {
	const head = "\x00asm\x01\x00\x00\x00"
	types := "\x01\x04\x01\x60\x00\x00"
	cases := []struct {
		name, code string
		want       []string
		ok         bool
	}{
		{"none", head, []string{}, true},
		{"none but a type", head + types, []string{}, true},
		{"two, sorted", head + types + "\x02\x0d\x02\x01b\x01x\x00\x00\x01a\x01y\x00\x00", []string{"a.y",
			"b.x"}, true},
		{"a memory", head + "\x02\x08\x01\x01m\x01m\x02\x00\x01", nil, false},
		{"cut in the section", head + "\x02\x0d\x02\x01b", nil, false},
		{"component", "\x00asm\x0d\x00\x01\x00", nil, false},
		{"short", "\x00as", nil, false},
		{"endless count", head + "\x02\x05\xff\xff\xff\xff\x0f", nil, false},
	}
	for _, c := range cases {
		got, err := imports([]byte(c.code))
		if (err == nil) != c.ok || !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, %v", c.name, got, err)
		}
	}
}

func TestToyboxCommands(t *testing.T) {
	dir := t.TempDir()
	help, names := filepath.Join(dir, "help.h"), filepath.Join(dir, "commands")
	put(t, help, `#define HELP_toybox "usage"

#define HELP_cat "usage: cat [-u]\n\nCopy files to\nstdout.  If none,	stdin.\n\n-u	slow"
#define HELP_md5sum "usage: md5sum\n\nCalculate \"hashes\""
#define HELP_sha1sum "See md5sum"
`)
	put(t, names, "cat md5sum\nsha1sum awk\n")
	got, err := toyboxCommands(names, help, []command{{Name: "awk"}})
	want := []command{
		{"cat", "toybox.wasm", "Copy files to stdout."},
		{"md5sum", "toybox.wasm", `Calculate "hashes".`},
		{"sha1sum", "toybox.wasm", `Calculate "hashes".`},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := toyboxCommands(names, help, nil); err == nil {
		t.Error("a command without help was accepted")
	}
}

func TestReadLock(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	put(t, name, "# about\n\nsource 1.0 source.tar.gz abc\n")
	if got, err := readLock(name); err != nil || !slices.Equal(got, []source{{"source", "1.0", "abc"}}) {
		t.Errorf("%+v, %v", got, err)
	}
	put(t, name, "source 1.0 abc\n")
	if got, err := readLock(name); err == nil {
		t.Errorf("%+v of three fields", got)
	}
}

func put(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestStrip(t *testing.T) {
	const head, types = "\x00asm\x01\x00\x00\x00", "\x01\x04\x01\x60\x00\x00"
	for _, c := range []struct {
		name, code, want string
		ok               bool
	}{
		{"nothing to take", head + types, head + types, true},
		{"names before and after", head + "\x00\x03\x01ab" + types + "\x00\x02\x01a", head + types, true},
		{"cut in a section", head + types + "\x00\x09\x01a", "", false},
		{"no module", "\x00as", "", false},
	} {
		got, err := strip([]byte(c.code))
		if (err == nil) != c.ok || string(got) != c.want {
			t.Errorf("%s: %q, %v", c.name, got, err)
		}
	}
}
