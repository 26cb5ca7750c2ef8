package policy

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// pathBytes are the bytes that a path may have unescaped. A plus is not among them: some servers
// read it as a space, and all read %2B as a plus.
const pathBytes = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~!$&'()*,=:@/"

// CanonicalPath returns the canonical form of a request's path, in which it is decided and sent:
// allowed bytes are unescaped, all others escaped with upper-case digits. It refuses paths that two
// servers could read differently: with an encoded slash, dot, percent, semicolon, backslash, ?, #
// or control character, dot segments, empty segments, parameters, or bytes that are no UTF-8.
func CanonicalPath(raw string) (string, error) {
	if !strings.HasPrefix(raw, "/") {
		return "", errors.New("the path does not start with a slash")
	}
	out := make([]byte, 0, len(raw))
	plain := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); i++ {
		c := raw[i]
		if c == '%' {
			var err error
			if c, err = unescape(raw[i:]); err != nil {
				return "", err
			}
			i += 2
		} else if c != '+' && strings.IndexByte(pathBytes, c) < 0 {
			return "", fmt.Errorf("the path has %q, which stands in no path", string(rune(c)))
		}
		if strings.IndexByte(pathBytes, c) >= 0 {
			out = append(out, c)
		} else {
			out = fmt.Appendf(out, "%%%02X", c)
		}
		plain = append(plain, c)
	}
	if !utf8.Valid(plain) {
		return "", errors.New("the path is not UTF-8")
	}
	path := string(out)
	for i, segment := range strings.Split(path[1:], "/") {
		switch {
		case segment == "." || segment == "..":
			return "", fmt.Errorf("the path has the segment %q", segment)
		case segment == "" && i < strings.Count(path, "/")-1:
			return "", errors.New("the path has an empty segment")
		}
	}
	return path, nil
}

// unescape returns the byte of the escape at the start of text.
func unescape(text string) (byte, error) {
	if len(text) < 3 {
		return 0, errors.New("the path ends inside an escape")
	}
	n, err := strconv.ParseUint(text[1:3], 16, 8)
	if err != nil {
		return 0, fmt.Errorf("the path has %q, which is no escape", text[:3])
	}
	if c := byte(n); c >= ' ' && c != 0x7f && strings.IndexByte("./\\%;?#", c) < 0 {
		return c, nil
	}
	return 0, fmt.Errorf("the path has %s, which servers read in different ways", text[:3])
}

// checkPath refuses a path, or a pattern of paths, that is not in canonical form.
func checkPath(path string) error {
	form, err := CanonicalPath(path)
	switch {
	case err != nil:
		return fmt.Errorf("path %q: %w", path, err)
	case form != path:
		return fmt.Errorf("path %q is never asked for: the form that is decided and sent is %q",
			path, form)
	}
	return nil
}
