package execserver

import (
	"net/url"
	"path/filepath"
	"strings"
)

// pathOf returns the path of a file URI (RFC 8089) of this host.
func pathOf(uri string) (string, error) {
	u, err := url.Parse(uri)
	switch {
	case err != nil:
		return "", badParams("invalid URI %.200q", uri)
	case u.Scheme != "file" || !strings.HasPrefix(u.Path, "/"):
		return "", badParams("%.200q is no URI of a file, such as file:///tmp/f", uri)
	case u.Host != "":
		return "", invalid("%.200q is a file of another host", uri)
	case strings.ContainsRune(u.Path, 0):
		return "", badParams("%.200q has a NUL byte", uri)
	}
	return filepath.Clean(u.Path), nil
}

func uriOf(path string) string { return (&url.URL{Scheme: "file", Path: path}).String() }

// jailed is where the workspace lies in a jail unless the policy has it at its own path.
const jailed = "/workspace"

// seen returns the path by which the client knows a file of the jail.
func (f *files) seen(path string) string {
	if below, ok := strings.CutPrefix(path, jailed); ok && (below == "" || below[0] == '/') {
		return f.session.Root() + below
	}
	return path
}
