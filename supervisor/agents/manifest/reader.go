package manifest

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/syntax"
)

// A reader reads values of a file and collects errors with their positions.
type reader struct {
	source string
	at     map[string]syntax.Position
	errs   []syntax.Error
	warns  []syntax.Error
}

// A table is a table of the file: its values, and its path with a final dot, "" for the file.
type table struct {
	values map[string]any
	path   string
}

// A plain parses a text to values and their positions: syntax.PlainAt or plainJSON.
type plain func(source string, text []byte) (map[string]any, map[string]syntax.Position, error)

// plainOf returns the plain for a manifest: JSON or TOML, by its name.
func plainOf(source string) plain {
	if strings.HasSuffix(source, ".json") {
		return plainJSON
	}
	return syntax.PlainAt
}

// open parses a file and returns a reader and the top table. An error about text is a
// syntax.Errors.
func open(read plain, source string, text []byte) (*reader, table, error) {
	values, at, err := read(source, text)
	if found, ok := errors.AsType[syntax.Errors](err); ok {
		err = syntax.Report(source, text, found)
	}
	return &reader{source: source, at: at}, table{values: values}, err
}

// openFile opens a TOML file as open does. A missing file has no values.
func openFile(path string) (r *reader, t table, text []byte, err error) {
	text, err = os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &reader{source: path}, t, nil, nil
	}
	if err == nil {
		r, t, err = open(syntax.PlainAt, path, text)
	}
	return r, t, text, err
}

func (r *reader) place(path string) syntax.Position {
	if pos, ok := r.at[path]; ok {
		return pos
	}
	return syntax.Position{File: r.source, Line: 1, Column: 1}
}

func (r *reader) fail(path, hint, format string, args ...any) {
	r.errs = append(r.errs, syntax.Error{Position: r.place(path), Hint: hint,
		Message: fmt.Sprintf(format, args...)})
}

func (r *reader) warn(path, hint, text string) {
	r.warns = append(r.warns, syntax.Error{Position: r.place(path), Hint: hint, Message: text})
}

// has reports whether the table has the key.
func (t table) has(key string) bool {
	_, ok := t.values[key]
	return ok
}

// keys reports an error for each unknown key of t.
func (r *reader) keys(t table, known ...string) {
	for _, key := range slices.Sorted(maps.Keys(t.values)) {
		if slices.Contains(known, key) {
			continue
		}
		hint := syntax.DidYouMean(key, known)
		if hint == "" {
			hint = "there are " + strings.Join(known, ", ")
		}
		r.fail(t.path+key, hint, "unknown key %q", t.path+key)
	}
}

func (r *reader) wrongType(path, want string) { r.fail(path, "", "%s must be %s", path, want) }

// value returns the value of a key, and whether it exists and is a T. Otherwise it reports an error
// for a value of another type, which calls T kind.
func value[T any](r *reader, t table, key, kind string) (v T, ok bool) {
	raw, there := t.values[key]
	if !there {
		return v, false
	}
	if v, ok = raw.(T); !ok {
		r.wrongType(t.path+key, kind)
	}
	return v, ok
}

// text returns the string of a key, and whether it is there and valid: at most maxText bytes
// without control characters.
func (r *reader) text(t table, key string) (string, bool) {
	v, ok := value[string](r, t, key, "text in quotes")
	return v, ok && r.plain(t.path+key, v)
}

func (r *reader) plain(path, v string) bool {
	switch {
	case v == "":
		r.fail(path, "", "%s is empty", path)
	case len(v) > maxText:
		r.fail(path, "", "%s is longer than %d bytes", path, maxText)
	case strings.ContainsFunc(v, func(c rune) bool { return c < ' ' || c == 0x7f }):
		r.fail(path, "", "%s has control characters", path)
	default:
		return true
	}
	return false
}

func (r *reader) flag(t table, key string) bool {
	v, _ := value[bool](r, t, key, "true or false")
	return v
}

// word returns the value of a key, which must be one of words. The first one is the default.
func (r *reader) word(t table, key string, words ...string) string {
	v, ok := r.text(t, key)
	if !ok {
		return words[0]
	}
	if !slices.Contains(words, v) {
		hint := syntax.DidYouMean(v, words)
		if hint == "" {
			hint = "it is one of " + strings.Join(words, ", ")
		}
		r.fail(t.path+key, hint, "%s: %q is no value that it can have", t.path+key, v)
	}
	return v
}

// address returns the value of a key, which must be a base URL. what names the host in errors.
func (r *reader) address(t table, key, what string) string {
	text, _ := r.text(t, key)
	if u, err := url.Parse(text); text != "" && (err != nil || u.Host == "" || u.User != nil ||
		u.RawQuery != "" || u.Fragment != "" || u.Scheme != "https" && u.Scheme != "http") {
		r.fail(t.path+key, "write it as https://HOST or https://HOST/PREFIX", "%s: %q is no URL of %s",
			t.path+key, text, what)
	}
	return text
}

// number returns the integer of a key, from least to most, or the default otherwise.
func (r *reader) number(t table, key string, least, most, otherwise int64) int64 {
	v, ok := value[int64](r, t, key, "a whole number")
	if !ok {
		return otherwise
	}
	if v < least || v > most {
		r.fail(t.path+key, "", "%s: want %d to %d, not %d", t.path+key, least, most, v)
	}
	return v
}

// quantity returns the duration or size of a key, from least to most, or the default otherwise.
func (r *reader) quantity(t table, key string, unit policy.Unit, least, most, otherwise int64) int64 {
	v, ok := value[string](r, t, key, "text with a unit, such as "+
		map[policy.Unit]string{policy.Bytes: `"64MiB"`, policy.Duration: `"30s"`}[unit])
	if !ok {
		return otherwise
	}
	n, err := unit.Parse(v)
	switch {
	case err != nil:
		r.fail(t.path+key, "", "%s: %v", t.path+key, err)
	case n < least || n > most:
		r.fail(t.path+key, "", "%s: want %s to %s, not %s", t.path+key, unit.Format(least),
			unit.Format(most), v)
	}
	return n
}

func (r *reader) duration(t table, key string, least, most, otherwise time.Duration) time.Duration {
	return time.Duration(r.quantity(t, key, policy.Duration, int64(least), int64(most),
		int64(otherwise)))
}

// texts returns the list of strings of a key. It reports an error for each that check refuses and,
// if set is true, for duplicates.
func (r *reader) texts(t table, key string, set bool, check func(string) error) []string {
	list, ok := value[[]any](r, t, key, "a list of texts in quotes")
	if !ok {
		return nil
	}
	if len(list) > maxList {
		r.fail(t.path+key, "", "%s has more than %d items", t.path+key, maxList)
		return nil
	}
	var out []string
	for i, raw := range list {
		path := t.path + key + "." + strconv.Itoa(i)
		v, ok := raw.(string)
		switch {
		case !ok:
			r.wrongType(path, "text in quotes")
			continue
		case !r.plain(path, v):
			continue
		case set && slices.Contains(out, v):
			r.fail(path, "leave one of them out", "%s: %q is said twice", t.path+key, v)
		}
		if check != nil {
			if err := check(v); err != nil {
				r.fail(path, "", "%s: %v", t.path+key, err)
			}
		}
		out = append(out, v)
	}
	return out
}

// sub returns the table key of t, empty if it does not exist.
func (r *reader) sub(t table, key string) table {
	v, _ := value[map[string]any](r, t, key, "a table")
	return table{v, t.path + key + "."}
}
