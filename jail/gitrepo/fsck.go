package gitrepo

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// The checks in this file are those of git fsck --strict (git-fsck(1)). They are applied to objects
// that are written to the real repository, as with fetch.fsckObjects.

// treeEntry is one entry of a tree object.
type treeEntry struct {
	mode string
	name string
	oid  oid
}

func (e treeEntry) isTree() bool { return e.mode == "40000" }

// maxName bounds a name in a tree, in bytes.
const maxName = 4096

var treeModes = map[string]bool{"100644": true, "100755": true, "120000": true, "40000": true,
	"160000": true}

// parseTree returns the entries of a tree, and an error for a tree that git fsck refuses.
func parseTree(data []byte) (all []treeEntry, err error) {
	names := map[string]bool{}
	last := ""
	for len(data) > 0 {
		mode, rest, ok := bytes.Cut(data, []byte(" "))
		name, rest, ok2 := bytes.Cut(rest, []byte{0})
		e := treeEntry{mode: string(mode), name: string(name)}
		if !ok || !ok2 || len(rest) < len(e.oid) {
			return nil, errors.New("an entry is cut off")
		}
		copy(e.oid[:], rest)
		data = rest[len(e.oid):]
		if !treeModes[e.mode] {
			return nil, fmt.Errorf("the mode %s of an entry", clean(e.mode, 20))
		}
		if why := badName(e.name); why != "" {
			return nil, fmt.Errorf("the name %q %s", clean(e.name, 60), why)
		}
		if e.oid == (oid{}) {
			return nil, errors.New("an entry has no object")
		}
		if e.mode == "120000" && isDotFile(e.name, "gitmodules", "gi7eba") {
			return nil, errors.New(".gitmodules is a link")
		}
		order := e.name
		if e.isTree() {
			order += "/"
		}
		if names[e.name] || len(all) > 0 && order <= last {
			return nil, errors.New("its entries are not in order")
		}
		names[e.name], last = true, order
		all = append(all, e)
	}
	return all, nil
}

// badName returns why git fsck refuses a name in a tree, or "".
func badName(name string) string {
	switch {
	case name == "", name == ".", name == "..":
		return "is none"
	case strings.Contains(name, "/"):
		return "has a slash"
	case len(name) > maxName:
		return "is too long"
	case isDotGit(name):
		return "is git's own"
	}
	return ""
}

// isDotGit reports whether HFS+, NTFS or a case-insensitive file system takes a name for .git.
func isDotGit(name string) bool {
	if strings.EqualFold(withoutIgnored(name), ".git") {
		return true
	}
	for part := range strings.SplitSeq(name, `\`) {
		part, _, _ = strings.Cut(part, ":")
		part = strings.TrimRight(part, " .")
		if strings.EqualFold(part, ".git") || strings.EqualFold(part, "git~1") {
			return true
		}
	}
	return false
}

// withoutIgnored removes the characters that HFS+ ignores in a name.
func withoutIgnored(name string) string {
	return strings.Map(func(c rune) rune {
		switch {
		case c >= 0x200c && c <= 0x200f, c >= 0x202a && c <= 0x202e, c >= 0x206a && c <= 0x206f,
			c == 0xfeff:
			return -1
		}
		return c
	}, name)
}

// isDotFile reports whether HFS+, NTFS or a case-insensitive file system takes a name for "." and
// file. short is the beginning of the file's hashed short name on NTFS.
func isDotFile(name, file, short string) bool {
	if strings.EqualFold(withoutIgnored(name), "."+file) {
		return true
	}
	name, _, _ = strings.Cut(name, ":")
	name = strings.ToLower(strings.TrimRight(name, " ."))
	if name == "."+file {
		return true
	}
	stem, number, ok := strings.Cut(name, "~")
	if !ok || len(name) > 8 {
		return false
	}
	if stem == file[:6] {
		return number >= "1" && number <= "4" && len(number) == 1
	}
	n, err := strconv.Atoi(number)
	return err == nil && n > 0 && number[0] != '0' && strings.HasPrefix(short, stem)
}

// ident matches the person and date of a commit or tag. It is compiled when it is first used, since
// each jail-shim links this package.
var ident = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[^<>\n]* <[^<>\n]*> (0|[1-9][0-9]{0,17}) [+-][0-9]{4}$`)
})

// checkCommit returns an error for a commit that git fsck refuses.
func checkCommit(data []byte) error {
	lines, err := header(data)
	if err != nil {
		return err
	}
	next := func(field string) (string, bool) {
		if len(lines) == 0 {
			return "", false
		}
		value, ok := strings.CutPrefix(lines[0], field+" ")
		if ok {
			lines = lines[1:]
		}
		return value, ok
	}
	tree, ok := next("tree")
	if _, valid := parseOID(tree); !ok || !valid {
		return errors.New("it has no tree")
	}
	for {
		parent, ok := next("parent")
		if !ok {
			break
		}
		if _, valid := parseOID(parent); !valid {
			return errors.New("it has a bad parent")
		}
	}
	for _, field := range []string{"author", "committer"} {
		who, ok := next(field)
		if !ok || !ident().MatchString(who) {
			return fmt.Errorf("its %s is not well-formed", field)
		}
	}
	for _, line := range lines {
		if strings.HasPrefix(line, "author ") {
			return errors.New("it has several authors")
		}
	}
	return nil
}

// header returns the header lines of a commit or tag: those before the message.
func header(data []byte) ([]string, error) {
	if bytes.IndexByte(data, 0) >= 0 {
		return nil, errors.New("it has a NUL")
	}
	head, _, ok := strings.Cut(string(data), "\n\n")
	if !ok {
		if head, ok = strings.CutSuffix(string(data), "\n"); !ok {
			return nil, errors.New("its header does not end")
		}
	}
	return strings.Split(head, "\n"), nil
}

// checkTag returns the id and kind of the object that a tag names. It returns an error for a tag
// that git fsck refuses.
func checkTag(data []byte) (of oid, what kind, err error) {
	lines, err := header(data)
	if err != nil {
		return of, "", err
	}
	if len(lines) < 3 {
		return of, "", errors.New("its header does not end")
	}
	name, ok := strings.CutPrefix(lines[0], "object ")
	of, valid := parseOID(name)
	if !ok || !valid {
		return of, "", errors.New("it names no object")
	}
	text, ok := strings.CutPrefix(lines[1], "type ")
	if what = kind(text); !ok || !what.known() {
		return of, "", errors.New("it has no type")
	}
	if tag, ok := strings.CutPrefix(lines[2], "tag "); !ok || !ValidRef("refs/tags/"+tag) {
		return of, "", errors.New("it has no name")
	}
	if len(lines) > 3 {
		if who, ok := strings.CutPrefix(lines[3], "tagger "); ok && !ident().MatchString(who) {
			return of, "", errors.New("its tagger is not well-formed")
		}
	}
	return of, what, nil
}

// checkOf returns a function that checks the content of a file of this name as git fsck does, nil
// if git fsck does not check such files.
func checkOf(name string) func(data []byte) error {
	switch {
	case isDotFile(name, "gitmodules", "gi7eba"):
		return checkModules
	case isDotFile(name, "gitattributes", "gi7d29"):
		return checkAttributes
	}
	return nil
}

func checkAttributes(data []byte) error {
	for line := range bytes.Lines(data) {
		if len(line) > 2048 {
			return errors.New("a line of .gitattributes is too long")
		}
	}
	return nil
}

// checkModules returns an error for a .gitmodules file with settings by which git would run
// commands, write outside, or ask other hosts (CVE-2018-11235, CVE-2018-17456, CVE-2020-5260,
// CVE-2025-48384).
func checkModules(data []byte) error {
	settings, err := parseConfig(string(data))
	if err != nil {
		return fmt.Errorf(".gitmodules: %w", err)
	}
	for _, s := range settings {
		if s.section != "submodule" {
			continue
		}
		bad := ""
		switch {
		case hasControl(s.sub) || hasControl(s.value):
			bad = "has a control character"
		case s.sub == "" || climbs(s.sub):
			bad = "has a name that leads out"
		case (s.key == "url" || s.key == "path") && strings.HasPrefix(s.value, "-"):
			bad = "looks like an option"
		case s.key == "update" && strings.HasPrefix(s.value, "!"):
			bad = "is a command"
		case s.key == "url" && badURL(s.value):
			bad = "is no address"
		}
		if bad != "" {
			return fmt.Errorf(".gitmodules: %s of submodule %q %s", clean(s.key, 20),
				clean(s.sub, 60), bad)
		}
	}
	return nil
}

func hasControl(text string) bool {
	return strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c == 0x7f })
}

// climbs reports whether a path has a component "..".
func climbs(path string) bool {
	slash := func(c rune) bool { return c == '/' || c == '\\' }
	return slices.Contains(strings.FieldsFunc(path, slash), "..")
}

func badURL(url string) bool {
	lower := strings.ToLower(url)
	if strings.Contains(lower, "%0a") || strings.Contains(lower, "%0d") {
		return true
	}
	if strings.HasPrefix(url, "./") || strings.HasPrefix(url, "../") {
		rest := url
		for strings.HasPrefix(rest, "./") || strings.HasPrefix(rest, "../") {
			_, rest, _ = strings.Cut(rest, "/")
		}
		return strings.HasPrefix(rest, ":") || strings.HasPrefix(rest, "/")
	}
	for _, scheme := range []string{"http://", "https://", "ftp://", "ftps://"} {
		if rest, ok := strings.CutPrefix(lower, scheme); ok {
			return rest == "" || strings.ContainsAny(rest[:1], "/:?#")
		}
	}
	return false
}
