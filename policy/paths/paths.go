// Package paths says which of two clean paths contains the other, and which paths of a host no
// proposal should show. It compares names only: links and mounts are the business of who opens the
// paths.
package paths

import "strings"

// Within reports whether path is dir or lies below dir.
func Within(dir, path string) bool {
	_, ok := Rel(dir, path)
	return ok
}

// Rel returns where path lies below dir: "" for dir itself. ok is false for a path elsewhere. Both
// are clean, and both absolute or both relative to the same directory. "/" and "" contain every
// absolute path.
func Rel(dir, path string) (rel string, ok bool) {
	if path == dir {
		return "", true
	}
	return strings.CutPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// Join returns the path of rel below dir, the inverse of [Rel].
func Join(dir, rel string) string {
	if rel == "" {
		return dir
	}
	return strings.TrimSuffix(dir, "/") + "/" + rel
}
