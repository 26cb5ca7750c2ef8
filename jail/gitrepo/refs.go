package gitrepo

import (
	"errors"
	"io/fs"
	"strings"
)

// refs returns the refs of a side by name: the name of an object, or "ref: " and another ref. A
// loose ref comes before a packed one.
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

// Errors of Files.Open for what is no regular file.
var (
	ErrDirectory = errors.New("is a directory")
	ErrIrregular = errors.New("is no regular file")
)

// head returns the content of HEAD, "" for none.
func (r *repository) head(side Side) (string, error) {
	text, err := r.read(side, "HEAD", 4096)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrIrregular) ||
		errors.Is(err, ErrDirectory) {
		return "", nil
	}
	return strings.TrimSpace(string(text)), err
}

// symbolic returns the ref that a value names.
func symbolic(value string) (ref string, ok bool) {
	ref, ok = strings.CutPrefix(value, "ref:")
	return strings.TrimSpace(ref), ok
}

// ValidRef reports whether git takes a name for a ref (git-check-ref-format(1)).
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
