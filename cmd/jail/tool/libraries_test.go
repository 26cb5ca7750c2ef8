package tool

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What is found is enough: a directory with these files, and nothing else, is one that the program
// starts in. ldd's word is the control.
func TestLibraries(t *testing.T) {
	sh, err := filepath.EvalSymlinks("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	script := write("script", "#!"+sh+"\n")
	env := write("env-script", "#!/usr/bin/env -S sh -e\n")

	found, err := findLibraries("/usr/bin:/bin", []string{script})
	if err != nil || !slices.Equal(found.Programs, []string{script, sh}) ||
		len(found.Missing) != 0 {
		t.Fatalf("%+v, %v", found, err)
	}
	libc := func(path string) bool { return strings.HasPrefix(filepath.Base(path), "libc.") }
	loader := func(path string) bool { return strings.HasPrefix(filepath.Base(path), "ld-") }
	if !slices.ContainsFunc(found.Files, libc) || !slices.ContainsFunc(found.Files, loader) ||
		!slices.Contains(found.Files, script) {
		t.Errorf("files: %q", found.Files)
	}
	for _, line := range []string{`native = ["` + script + `", "` + sh + `"]`, `source = "` + sh +
		`"`, `access = "read+exec"`} {
		if !strings.Contains(found.policy(), line) {
			t.Errorf("no %s in\n%s", line, found.policy())
		}
	}
	if found, err := findLibraries("/usr/bin:/bin", []string{env}); err != nil ||
		len(found.Programs) != 3 || filepath.Base(found.Programs[2]) != "sh" {
		t.Errorf("a script of env's: %+v, %v", found, err)
	}
	if found, err := findLibraries("",
		[]string{write("gone", "#!/nowhere/at-all\n")}); err != nil || len(found.Missing) != 1 ||
		found.Missing[0].Name != "/nowhere/at-all" {
		t.Errorf("an interpreter that is not there: %+v, %v", found, err)
	}
	for _, bad := range []string{write("text", "hello\n"), filepath.Join(dir, "none"),
		"no-such-program", write("loop", "#!"+filepath.Join(dir, "loop")+"\n") + "x"} {
		if found, err := findLibraries("/usr/bin", []string{bad}); err == nil {
			t.Errorf("%s: %+v", bad, found)
		}
	}
	if found, err := findLibraries("", []string{filepath.Join(dir, "loop")}); err != nil ||
		len(found.Files) != 1 {
		t.Errorf("a script that names itself: %+v, %v", found, err)
	}
}
