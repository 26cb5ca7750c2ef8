package oci

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"oras.land/oras-go/v2/registry"

	"github.com/jail-sandbox/jail/policy/paths"
	"github.com/jail-sandbox/jail/supervisor/bundle/trust"
)

// layoutPrefix marks a reference to a directory in the OCI image layout.
const layoutPrefix = "oci-layout:"

// unnamed is the tag if a reference has none.
const unnamed = "latest"

// A Reference is the location of a bundle or image.
type Reference struct {
	Layout string // a directory, or:
	// host, or host and port
	Registry   string
	Repository string
	Tag        string // may be empty
	// sha256:…, of the index; may be empty
	Digest string
}

// ParseReference reads ghcr.io/acme/words:1.2.0, ghcr.io/acme/words@sha256:…, both together, or
// oci-layout:DIR with the same endings.
func ParseReference(text string) (Reference, error) {
	var r Reference
	name, digest, pinned := strings.Cut(text, "@")
	if pinned {
		if trust.CheckDigest(digest) != nil {
			return r, fmt.Errorf(
				"reference %.200q: @ must be followed by sha256: and 64 lower-case hexadecimal digits",
				text)
		}
		r.Digest = digest
	}
	if dir, ok := strings.CutPrefix(name, layoutPrefix); ok {
		if i := strings.LastIndexByte(dir, ':'); i > strings.LastIndexByte(dir, '/') {
			dir, r.Tag = dir[:i], dir[i+1:]
		}
		if dir == "" {
			return r, fmt.Errorf("reference %.200q: no directory is named", text)
		}
		r.Layout = filepath.Clean(dir)
		return r, checkTag(text, r.Tag)
	}
	parsed, err := registry.ParseReference(name)
	if err != nil || strings.Contains(parsed.Reference, "/") || strings.HasSuffix(name, ":") {
		return r, fmt.Errorf(
			"reference %.200q: want HOST/REPOSITORY:TAG, HOST/REPOSITORY@sha256:DIGEST, or %sDIR",
			text, layoutPrefix)
	}
	r.Registry, r.Repository, r.Tag = parsed.Registry, parsed.Repository, parsed.Reference
	return r, checkTag(text, r.Tag)
}

func checkTag(text, tag string) error {
	if tag == "" {
		return nil
	}
	if err := (registry.Reference{Reference: tag}).ValidateReferenceAsTag(); err != nil {
		return fmt.Errorf("reference %.200q: tag %.130q: letters, digits, _, - and . are allowed",
			text, tag)
	}
	return nil
}

func (r Reference) String() string {
	text := r.Registry + "/" + r.Repository
	if r.Layout != "" {
		text = layoutPrefix + r.Layout
	}
	if r.Tag != "" {
		text += ":" + r.Tag
	}
	if r.Digest != "" {
		text += "@" + r.Digest
	}
	return text
}

// name returns the reference for the source: the digest if there is one, since a tag may have
// moved.
func (r Reference) name() string {
	switch {
	case r.Digest != "":
		return r.Digest
	case r.Tag != "":
		return r.Tag
	}
	return unnamed
}

// Below reports whether the reference is in a registry, in a repository below one of the prefixes.
func (r Reference) Below(prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool {
		return r.Layout == "" && paths.Within(strings.TrimSuffix(p, "/"), r.Registry+"/"+r.Repository)
	})
}
