package gitrepo

import (
	"strings"
	"testing"
)

// Names that some file system takes for git's own, and names that only look like them.
func TestNamesOfGit(t *testing.T) {
	for _, name := range []string{".git", ".GIT", ".git ", ".git.", ".git. .", "git~1", "GIT~1",
		".git:x", ".git::$INDEX_ALLOCATION", `x\.git`, `.git\x`, ".g\u200cit", "\ufeff.git",
		".git\u206f"} {
		if badName(name) == "" {
			t.Errorf("%q is taken", name)
		}
	}
	for _, name := range []string{".gitignore", "git", "git~2", ".gitx", "x.git", "..git", "a",
		".git-x"} {
		if why := badName(name); why != "" {
			t.Errorf("%q %s", name, why)
		}
	}
	for _, name := range []string{".gitmodules", ".GitModules", ".gitmodules .", ".gitmodules:x",
		"gitmod~1", "GITMOD~4", "gi7eba~1", "gi7eb~10", "g~1", ".git\u200cmodules"} {
		if !isDotFile(name, "gitmodules", "gi7eba") {
			t.Errorf("%q is no .gitmodules", name)
		}
	}
	for _, name := range []string{"gitmodules", ".gitmodule", "gitmod~5", "gitmod~12", "gi7ebb~1",
		"gi7eba~0"} {
		if isDotFile(name, "gitmodules", "gi7eba") {
			t.Errorf("%q is .gitmodules", name)
		}
	}
}

// Trees, commits and submodules that git fsck refuses, beside controls that it takes.
func TestChecks(t *testing.T) {
	id := strings.Repeat("a", 20)
	for name, tc := range map[string]struct {
		tree string
		ok   bool
	}{
		"control":     {"100644 a\x00" + id + "40000 b\x00" + id + "100755 b.c\x00" + id, false},
		"in order":    {"100644 a\x00" + id + "100755 b.c\x00" + id + "40000 b\x00" + id, true},
		"twice":       {"100644 a\x00" + id + "100644 a\x00" + id, false},
		"file, dir":   {"100644 a\x00" + id + "100644 a.b\x00" + id + "40000 a\x00" + id, false},
		"a zero":      {"0100644 a\x00" + id, false},
		"a mode":      {"100664 a\x00" + id, false},
		"cut off":     {"100644 a\x00" + id[:9], false},
		"slash":       {"100644 a/b\x00" + id, false},
		"dots":        {"40000 ..\x00" + id, false},
		"no object":   {"100644 a\x00" + strings.Repeat("\x00", 20), false},
		"link module": {"120000 .GITMODULES\x00" + id, false},
	} {
		if _, err := parseTree([]byte(tc.tree)); (err == nil) != tc.ok {
			t.Errorf("tree %s: %v", name, err)
		}
	}
	tree, who := "tree "+strings.Repeat("a", 40)+"\n", "x <x@x> 1 +0000\n"
	for name, tc := range map[string]struct {
		commit string
		ok     bool
	}{
		"control": {tree + "author " + who + "committer " + who + "\nx", true},
		"signed": {tree + "author " + who + "committer " + who +
			"gpgsig -----\n x\n\nx", true},
		"no name": {tree + "author  <x> 1 +0000\ncommitter " + who + "\nx", true},
		"two authors": {tree + "author " + who + "author " + who + "committer " + who +
			"\nx", false},
		"a date": {tree + "author x <x> 01 +0000\ncommitter " + who + "\nx", false},
		"a large one": {tree + "author x <x> 99999999999999999999 +0000\ncommitter " + who +
			"\nx", false},
		"a zone":   {tree + "author x <x> 1 UTC\ncommitter " + who + "\nx", false},
		"a NUL":    {tree + "author " + who + "committer " + who + "\nx\x00", false},
		"a parent": {tree + "parent x\nauthor " + who + "committer " + who + "\nx", false},
		"no end":   {tree + "author " + who + "committer " + strings.TrimSpace(who), false},
	} {
		if err := checkCommit([]byte(tc.commit)); (err == nil) != tc.ok {
			t.Errorf("commit %s: %v", name, err)
		}
	}
	for text, ok := range map[string]bool{
		"[submodule \"a/b\"]\n\tpath = a\n\turl = ../b.git\n":  true,
		"[submodule \"a\"]\nurl = https://example.com/x # y\n": true,
		"[submodule \"a\"]\nurl = https:///x\n":                false,
		"[submodule \"a\"]\nurl = https://x/%0ahost=y\n":       false,
		"[submodule \"a\"]\nurl = ..//x\n":                     false,
		"[submodule \"a\"]\nurl = ..//../:x\n":                 false,
		"[submodule \"a\"]\nurl = ../:x\n":                     false,
		"[submodule \"a\"]\nupdate = !sh\n":                    false,
		"[submodule \"a\"]\npath = -x\n":                       false,
		"[submodule \"a\"]\npath = \"x\\b\"\n":                 false,
		"[submodule \"a\"]\npath = \"x\r\"\n":                  false,
		"[submodule \"a/../b\"]\npath = x\n":                   false,
		"[submodule \"..\\\\a\"]\npath = x\n":                  false,
		"[submodule \"a]\npath = x\n":                          false,
		"not a configuration":                                  false,
	} {
		if err := checkModules([]byte(text)); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}
