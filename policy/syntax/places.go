package syntax

import (
	"errors"
	"fmt"
	"strings"
)

// Places are the values of the variables in policies: directories of the run's caller. Each is a
// clean absolute path, or "" if there is none. Environment variables are never read, so that a
// policy has the same meaning in every environment.
type Places struct {
	// ${workspace}: the caller's directory that the tool gets a shadow of
	Workspace string
	// ${home}: the caller's home directory
	Home string
}

// expand replaces a variable at the start of a path of the host.
func (p Places) expand(text string) (string, error) {
	if !strings.Contains(text, "${") {
		return text, nil
	}
	name, rest, closed := strings.Cut(strings.TrimPrefix(text, "${"), "}")
	value, known := map[string]string{"home": p.Home, "workspace": p.Workspace}[name]
	switch {
	case !strings.HasPrefix(text, "${") || !closed || strings.Contains(rest, "${") || rest != "" &&
		rest[0] != '/':
		return "", fmt.Errorf(
			"%q: a variable stands once, at the start, and a slash follows it, as in ${home}/.cache", text)
	case !known:
		return "", fmt.Errorf("%q: there is no variable ${%s}: there are ${home} and ${workspace}",
			text, name)
	case value == "":
		return "", fmt.Errorf("%q: ${%s} has no value here, since the caller has none", text, name)
	case !strings.HasPrefix(value, "/"):
		return "", fmt.Errorf("%q: ${%s} is %q here, which is no absolute path", text, name, value)
	}
	return strings.TrimSuffix(value, "/") + rest, nil
}

// expandGlob is expand for a pattern. It refuses a directory with characters of patterns.
func (p Places) expandGlob(text string) (string, error) {
	out, err := p.expand(text)
	if err == nil && out != text && strings.ContainsAny(strings.TrimSuffix(out,
		text[strings.IndexByte(text, '}')+1:]), `*?[]{}\`) {
		return "", errors.New(
			"the caller's path has a character that means something else in a pattern")
	}
	return out, err
}
