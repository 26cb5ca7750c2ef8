package trust

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// timeLayout spells each time in one way, so that equal statements have equal texts.
const timeLayout = "2006-01-02T15:04:05Z"

// lines parses "word value" lines in a fixed order. An unexpected line is an error, so that no two
// readers can understand a text differently.
type lines struct {
	rest []string
	at   int
	err  error
}

func newLines(text, title string) *lines {
	l := &lines{}
	body, ended := strings.CutSuffix(text, "\n")
	if !ended {
		l.err = errors.New("its last line has no end")
		return l
	}
	l.rest = strings.Split(body, "\n")
	if first := l.next(); l.err == nil && first != title {
		l.err = fmt.Errorf("its first line is %.60q, where %q is expected", first, title)
	}
	return l
}

func (l *lines) next() string {
	if len(l.rest) == 0 {
		l.fail("the text ends here")
		return ""
	}
	line := l.rest[0]
	l.rest = l.rest[1:]
	l.at++
	return line
}

func (l *lines) fail(format string, args ...any) {
	if l.err == nil {
		l.err = fmt.Errorf("line %d: %s", l.at, fmt.Sprintf(format, args...))
	}
}

// has reports whether the next line begins with word and a space.
func (l *lines) has(word string) bool {
	return l.err == nil && len(l.rest) > 0 && strings.HasPrefix(l.rest[0], word+" ")
}

// value returns the value of the next line, which must begin with word.
func (l *lines) value(word string) string {
	if l.err != nil {
		return ""
	}
	line := l.next()
	value, ok := strings.CutPrefix(line, word+" ")
	if l.err == nil && (!ok || value == "" || len(line) > maxLine || strings.ContainsFunc(value,
		func(r rune) bool { return r < ' ' || r > '~' })) {
		l.fail("%.60q, where %q and a value is expected", line, word)
	}
	return value
}

// all returns the values of all next lines that begin with word, at most limit. It returns nil only
// after an error.
func (l *lines) all(word string, limit int) []string {
	values := []string{}
	for l.has(word) {
		if len(values) == limit {
			l.next()
			l.fail("more than %d lines of %q", limit, word)
			return nil
		}
		values = append(values, l.value(word))
	}
	return values
}

func (l *lines) number(word string, least, most int64) int64 {
	text := l.value(word)
	n, err := strconv.ParseInt(text, 10, 64)
	if l.err == nil && (err != nil || strconv.FormatInt(n, 10) != text || n < least || n > most) {
		l.fail("%s %.40q is not a plain number from %d to %d", word, text, least, most)
	}
	return n
}

func (l *lines) time(word string) time.Time {
	text := l.value(word)
	t, err := time.Parse(timeLayout, text)
	if l.err == nil && (err != nil || t.Format(timeLayout) != text) {
		l.fail("%s %.40q is not a time such as 2027-06-01T00:00:00Z", word, text)
	}
	return t
}

// end returns the first error, or one if lines are left.
func (l *lines) end() error {
	if l.err == nil && len(l.rest) > 0 {
		l.next()
		l.fail("nothing was expected behind the end")
	}
	return l.err
}

// digestPrefix is the prefix of every digest: SHA-256 is the only algorithm.
const digestPrefix = "sha256:"

// CheckDigest returns an error unless text is "sha256:" and 64 lower-case hexadecimal digits.
func CheckDigest(text string) error {
	digits, ok := strings.CutPrefix(text, digestPrefix)
	if _, err := hex.DecodeString(digits); !ok || err != nil || len(digits) != 64 ||
		digits != strings.ToLower(digits) {
		return fmt.Errorf("%.90q is not sha256: and 64 lower-case hexadecimal digits", text)
	}
	return nil
}
