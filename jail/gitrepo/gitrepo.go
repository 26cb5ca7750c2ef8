// Package gitrepo reads git repositories that a tool may have written: refs, loose objects and
// packs. It reports the changes between two sides of a repository, and finds the objects of a
// branch that one side lacks. It parses hostile input, has bounds on everything, opens files only
// through Files, and runs no program; package gitreader runs it in a confined process. The formats
// are gitrepository-layout(5), gitformat-pack(5) and gitglossary(7). It does not read all of them,
// and says what it does not understand.
package gitrepo

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"unicode"
)

// Side is one state of a repository.
type Side int

// The sides: the real directory, and the shadow as the tool saw it.
const (
	Real Side = iota
	Shadow
)

// Files gives access to one repository. Paths are relative to the git directory, and
// fs.ErrNotExist means that there is no such name.
type Files interface {
	// Open opens a regular file for reading, and returns its size.
	Open(side Side, path string) (*os.File, int64, error)
	// List returns the names in a directory.
	List(side Side, path string) ([]string, error)
}

// Bounds of one Explain or Take.
const (
	maxRefs    = 20000
	maxRefFile = 64 << 20 // packed-refs
	maxCommits = 50000
	maxPacks   = 200
	// maxObject bounds an object, and the result of each delta, in bytes.
	maxObject = 64 << 20
	// Git itself makes chains of up to 4,095 deltas.
	maxDeltas = 4095
	// maxInflated bounds the bytes of all objects together that are inflated.
	maxInflated = 2 << 30
	maxConfig   = 1 << 20
	maxTitle    = 120 // characters
	maxTitles   = 3
	maxShown    = 100 // refs of a report
)

// errUnknown is returned for a repository in a format that this package does not read.
var errUnknown = errors.New("not understood")

func unknown(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errUnknown}, args...)...)
}

// Report describes the changes in a repository.
type Report struct {
	// Path of the git directory, relative to the workspace.
	Path string `json:"path"`
	// NotUnderstood says why the repository could not be read; "" if it could.
	NotUnderstood string `json:"not_understood,omitempty"`
	// Head is the change of HEAD, nil for none.
	Head *HeadChange `json:"head,omitempty"`
	Refs []RefChange `json:"refs,omitempty"`
	// MoreRefs counts changed refs that are not listed.
	MoreRefs int `json:"more_refs,omitempty"`
	// Index: git's index changed.
	Index bool `json:"index,omitempty"`
	// Files counts the changed files of objects and logs. Bytes is the size of the new ones.
	Files int   `json:"files,omitempty"`
	Bytes int64 `json:"bytes,omitempty"`
	// Lines are the same as sentences for people.
	Lines []string `json:"lines"`
}

// HeadChange is a change of HEAD. Each side is a branch name, or a commit id if HEAD is detached.
type HeadChange struct {
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
}

// RefChange is a ref that differs.
type RefChange struct {
	// Ref is the full name, refs/heads/main for example.
	Ref string `json:"ref"`
	// Before and After are object ids, or "ref: " and the name of another ref, or "" if the ref
	// does not exist.
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
	// Rewritten: the change is no fast-forward.
	Rewritten bool `json:"rewritten,omitempty"`
	// Commits counts new commits, Lost those that the ref does not reach any more. With More there
	// are more than were counted.
	Commits int  `json:"commits,omitempty"`
	Lost    int  `json:"lost,omitempty"`
	More    bool `json:"more,omitempty"`
	// Titles are the first lines of the messages of new commits, the newest first, at most 3.
	Titles []string `json:"titles,omitempty"`
	// Problem says what is wrong with the ref, a missing object for example; "" for nothing.
	Problem string `json:"problem,omitempty"`
}

// oid is an object id: SHA-1, 20 bytes.
type oid [20]byte

func (o oid) String() string { return hex.EncodeToString(o[:]) }

func parseOID(s string) (o oid, ok bool) {
	if len(s) != 2*len(o) || strings.ToLower(s) != s {
		return o, false
	}
	_, err := hex.Decode(o[:], []byte(s))
	return o, err == nil && o != oid{}
}

// A repository is open for reading. It serves one goroutine.
type repository struct {
	ctx   context.Context
	files Files
	// inflated counts the bytes of all objects that were inflated.
	inflated int64
	packs    [2][]*pack
	// bases is a cache of objects from packs, to which deltas are applied.
	bases     map[packPlace]object
	baseBytes int
	commits   map[oid]*commit
	shallow   map[oid]bool
	// bare: the real side has no working tree.
	bare bool
}

// openRepository opens both sides of a repository, and their packs.
func openRepository(ctx context.Context, files Files) (*repository, error) {
	r := &repository{ctx: ctx, files: files, bases: map[packPlace]object{},
		commits: map[oid]*commit{}, shallow: map[oid]bool{}}
	for _, side := range []Side{Real, Shadow} {
		if err := r.understand(side); err != nil {
			return nil, err
		}
	}
	for _, side := range []Side{Real, Shadow} {
		if err := r.openPacks(side); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Close closes the packs.
func (r *repository) Close() {
	for _, packs := range r.packs {
		for _, p := range packs {
			p.close()
		}
	}
}

// understand returns errUnknown if a side has a format that this package does not read. It sets
// bare and shallow.
func (r *repository) understand(side Side) error {
	for name, what := range map[string]string{
		"commondir":               "it belongs to a linked worktree",
		"objects/info/alternates": "it borrows objects of another repository",
	} {
		there, err := r.exists(side, name)
		if err != nil {
			return err
		}
		if there {
			return unknown("%s", what)
		}
	}
	if names, err := r.list(side, "reftable"); err != nil || len(names) > 0 {
		return errors.Join(err, unknown("its refs are a reftable"))
	}
	text, err := r.read(side, "config", maxConfig)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	settings, err := parseConfig(string(text))
	if err != nil {
		return unknown("its configuration: %v", err)
	}
	for _, s := range settings {
		switch {
		case s.section == "core" && s.sub == "" && s.key == "repositoryformatversion" &&
			s.value != "0" && s.value != "1":
			return unknown("it has format version %s", clean(s.value, 20))
		case s.section == "core" && s.sub == "" && s.key == "bare" && side == Real:
			r.bare = strings.EqualFold(s.value, "true")
		case s.section != "extensions" || s.sub != "":
		case s.key == "objectformat" && !strings.EqualFold(s.value, "sha1"):
			return unknown("its objects are named by %s", clean(s.value, 20))
		case s.key == "refstorage" && !strings.EqualFold(s.value, "files"):
			return unknown("its refs are a %s", clean(s.value, 20))
		}
	}
	text, err = r.read(side, "shallow", maxRefFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for line := range strings.Lines(string(text)) {
		if o, ok := parseOID(strings.TrimSpace(line)); ok {
			r.shallow[o] = true
		}
	}
	return nil
}

func (r *repository) list(side Side, path string) ([]string, error) {
	names, err := r.files.List(side, path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return names, err
}

func (r *repository) exists(side Side, path string) (bool, error) {
	f, _, err := r.files.Open(side, path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, f.Close()
}

// read returns the content of a file of at most most bytes, and errUnknown for a longer one.
func (r *repository) read(side Side, path string, most int64) ([]byte, error) {
	f, size, err := r.files.Open(side, path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size > most {
		return nil, unknown("%s has %d bytes", path, size)
	}
	text := make([]byte, size)
	if _, err := f.ReadAt(text, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return text, nil
}

// clean returns text that can be shown to people: without control, format and line separator
// characters, as valid UTF-8, and cut off after most characters.
func clean(text string, most int) string {
	var b strings.Builder
	n := 0
	for _, c := range text {
		if c == '\t' {
			c = ' '
		}
		if unicode.IsControl(c) || unicode.Is(unicode.Cf, c) || unicode.Is(unicode.Zl, c) ||
			unicode.Is(unicode.Zp, c) {
			continue
		}
		if n++; n > most {
			b.WriteString("…")
			break
		}
		b.WriteRune(c)
	}
	return strings.ToValidUTF8(b.String(), "\ufffd")
}

// refs returns the values of a side's refs by name: an object id, or "ref: " and another ref. A
// loose ref has priority over a packed one.
func (r *repository) refs(side Side) (map[string]string, error) {
	refs := map[string]string{}
	text, err := r.read(side, "packed-refs", maxRefFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		value, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if !ok || strings.HasPrefix(line, "#") || strings.HasPrefix(line, "^") {
			continue
		}
		if len(refs) == maxRefs {
			return nil, unknown("it has more than %d refs", maxRefs)
		}
		refs[name] = value
	}
	return refs, r.looseRefs(side, "refs", refs, 0)
}

// maxRefDepth bounds the directories of refs.
const maxRefDepth = 64

func (r *repository) looseRefs(side Side, dir string, refs map[string]string, depth int) error {
	if depth > maxRefDepth {
		return unknown("its refs are nested too deep")
	}
	if err := r.ctx.Err(); err != nil {
		return err
	}
	names, err := r.list(side, dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		path := dir + "/" + name
		if strings.HasSuffix(name, ".lock") {
			continue
		}
		if len(refs) == maxRefs {
			return unknown("it has more than %d refs", maxRefs)
		}
		value, err := r.read(side, path, 4096)
		switch {
		case errors.Is(err, ErrDirectory):
			err = r.looseRefs(side, path, refs, depth+1)
		case errors.Is(err, ErrIrregular):
			refs[path], err = "", nil
		case errors.Is(err, errUnknown):
			refs[path], err = clean(string(value), 20), nil
		case err == nil:
			refs[path] = strings.TrimSpace(string(value))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Errors of Files.Open for a path that is no regular file.
var (
	ErrDirectory = errors.New("is a directory")
	ErrIrregular = errors.New("is no regular file")
)

// head returns the content of HEAD, "" if there is no such file.
func (r *repository) head(side Side) (string, error) {
	text, err := r.read(side, "HEAD", 4096)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrIrregular) ||
		errors.Is(err, ErrDirectory) {
		return "", nil
	}
	return strings.TrimSpace(string(text)), err
}

// symbolic returns NAME of a value "ref: NAME". ok is false for other values.
func symbolic(value string) (ref string, ok bool) {
	ref, ok = strings.CutPrefix(value, "ref:")
	return strings.TrimSpace(ref), ok
}

// ValidRef reports whether git allows a full name of a ref (git-check-ref-format(1)).
func ValidRef(name string) bool {
	if !strings.Contains(name, "/") || strings.ContainsAny(name, " ~^:?*[\\\x7f") ||
		strings.Contains(name, "..") || strings.Contains(name, "@{") ||
		strings.HasSuffix(name, ".") || len(name) > 1024 || clean(name, 1024) != name {
		return false
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || strings.HasPrefix(part, ".") || strings.HasSuffix(part, ".lock") {
			return false
		}
	}
	return true
}
