package syntax

import (
	"errors"
	"fmt"
	"strings"
)

// Places are what the variables of a policy stand for: the directories of the caller whose
// run it is. Each is a clean absolute path, or "" where there is none. No environment variable
// is ever read, so a policy has the same meaning in every environment.
type Places struct {
	// ${workspace}: the caller's directory that a tool gets a shadow of
	Workspace string
	// ${home}: the caller's home directory
	Home string
}

// expand fills in a variable at the start of a path of the host.
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

// expandGlob is expand for a pattern. A star in a caller's path would be a pattern too.
func (p Places) expandGlob(text string) (string, error) {
	out, err := p.expand(text)
	if err == nil && out != text && strings.ContainsAny(strings.TrimSuffix(out,
		text[strings.IndexByte(text, '}')+1:]), `*?[]{}\`) {
		return "", errors.New(
			"the caller's path has a character that means something else in a pattern")
	}
	return out, err
}
