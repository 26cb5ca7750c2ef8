package images

import (
	"path"
	"regexp"
	"strings"
	"sync"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/supervisor/bundle/trust"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// A Reference names an image: one in a directory in the OCI image layout, or a named one.
type Reference struct {
	// Dir is an absolute path; empty for a named image. Tag and Digest select an image in the
	// directory; each may be empty.
	Dir, Tag, Digest string
	// Name is the name of an added image; empty with a directory.
	Name string
}

// Patterns of names and tags, compiled on first use.
var (
	nameForm = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)
	})
	tagForm = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)
	})
)

const hintReference = "name an image as oci:DIR, oci:DIR:TAG, oci:DIR@sha256:DIGEST, or by a name of " +
	"jail image list"

// Parse parses a reference: the NAME of an added image, or oci:DIR[:TAG][@sha256:DIGEST] with an
// absolute path DIR. Other text is an error with the code usage. Parse does not look for the image.
func Parse(text string) (Reference, error) {
	wrong := func(why string) (Reference, error) {
		return Reference{}, problem.New(problem.Usage, "image %.200q: %s", text, why).
			WithHint(hintReference)
	}
	dir, isDir := strings.CutPrefix(text, policy.ImageDir)
	if !isDir {
		if !nameForm().MatchString(text) {
			return wrong("it is neither a name nor oci: and a directory")
		}
		return Reference{Name: text}, nil
	}
	r := Reference{}
	dir, digest, pinned := strings.Cut(dir, "@")
	if pinned {
		if trust.CheckDigest(digest) != nil {
			return wrong("@ must be followed by sha256: and 64 lower-case hexadecimal digits")
		}
		r.Digest = digest
	}
	if i := strings.LastIndexByte(dir, ':'); i > strings.LastIndexByte(dir, '/') {
		dir, r.Tag = dir[:i], dir[i+1:]
		if !tagForm().MatchString(r.Tag) {
			return wrong("its tag has other characters than letters, digits, _, - and .")
		}
	}
	if r.Dir = path.Clean(dir); !path.IsAbs(r.Dir) || strings.ContainsRune(dir, 0) {
		return wrong("its directory is no absolute path")
	}
	return r, nil
}

// PolicyName returns the name of the image in policies: oci:DIR without tag and digest, or the name
// of an added image.
func (r Reference) PolicyName() string {
	if r.Dir != "" {
		return policy.ImageDir + r.Dir
	}
	return r.Name
}
