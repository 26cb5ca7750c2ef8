package bundle

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/jail-sandbox/jail/policy"
)

// checks are the checks of a manifest, in order. The first error is returned.
var checks = []func(Manifest) error{
	complete, boundedCounts, safeNames, safeTexts, plainFiles, soundModules, soundCommands,
	soundSources, soundLicences, soundNeeds,
}

func (m Manifest) check() error {
	for _, check := range checks {
		if err := check(m); err != nil {
			return fmt.Errorf("%w: %w", ErrManifest, err)
		}
	}
	return nil
}

// complete checks the format, and that every list is present, if only as [].
func complete(m Manifest) error {
	if m.Format != Format {
		return fmt.Errorf("format %d, where this jail reads %d", m.Format, Format)
	}
	if m.Licences == nil || m.BuiltFrom == nil {
		return errors.New("no licences, or no built_from")
	}
	for _, mod := range m.Modules {
		if mod.Imports == nil {
			return fmt.Errorf("module %.100q: no imports", mod.File)
		}
	}
	return nil
}

func boundedCounts(m Manifest) error {
	switch {
	case len(m.Modules) == 0 || len(m.Modules) > maxModules:
		return fmt.Errorf("%d modules, where 1 to %d are allowed", len(m.Modules), maxModules)
	case len(m.Commands) == 0 || len(m.Commands) > maxCommands:
		return fmt.Errorf("%d commands, where 1 to %d are allowed", len(m.Commands), maxCommands)
	case len(m.BuiltFrom) > maxSources || len(m.Licences) > maxSources:
		return fmt.Errorf("more than %d sources or licences", maxSources)
	}
	for _, mod := range m.Modules {
		if len(mod.Imports) > maxImports {
			return fmt.Errorf("module %s: more than %d imports", mod.File, maxImports)
		}
	}
	return nil
}

func safeNames(m Manifest) error {
	if !safeName(m.Name) {
		return fmt.Errorf("name %q: not plain lower-case ASCII", m.Name)
	}
	if !safeVersion(m.Version) {
		return fmt.Errorf("version %q: not three numbers", m.Version)
	}
	for _, c := range m.Commands {
		if !safeName(c.Name) {
			return fmt.Errorf("command %q: not plain lower-case ASCII", c.Name)
		}
	}
	return nil
}

// safeTexts refuses control characters in texts that terminals show.
func safeTexts(m Manifest) error {
	texts := []string{m.About}
	for _, l := range m.Licences {
		texts = append(texts, l.SPDX)
	}
	for _, s := range m.BuiltFrom {
		texts = append(texts, s.Name, s.Version)
	}
	for _, c := range m.Commands {
		texts = append(texts, c.About)
	}
	for _, mod := range m.Modules {
		texts = append(texts, mod.Imports...)
	}
	for _, text := range texts {
		if len(text) > maxText || strings.ContainsFunc(text, func(r rune) bool {
			return r < ' ' || r > '~'
		}) {
			return fmt.Errorf("text %.60q: longer than %d bytes, or not printable ASCII", text,
				maxText)
		}
	}
	return nil
}

func plainFiles(m Manifest) error {
	for _, mod := range m.Modules {
		if !plainFile(mod.File) || !strings.HasSuffix(mod.File, ".wasm") {
			return fmt.Errorf("module file %q: not a plain name ending in .wasm", mod.File)
		}
	}
	for _, l := range m.Licences {
		if !plainFile(l.File) {
			return fmt.Errorf("licence file %q: not a plain name", l.File)
		}
	}
	return nil
}

func soundModules(m Manifest) error {
	seen := map[string]bool{}
	for _, mod := range m.Modules {
		switch {
		case seen[mod.File]:
			return fmt.Errorf("module %s: named twice", mod.File)
		case !isDigest(mod.SHA256):
			return fmt.Errorf("module %s: sha256 %.80q: not 64 lower-case hexadecimal digits",
				mod.File, mod.SHA256)
		case mod.Size <= 0 || mod.Size > maxModule:
			return fmt.Errorf("module %s: size %d: not between 1 and %d", mod.File, mod.Size,
				maxModule)
		case mod.Layout != LayoutRooted && mod.Layout != layoutPreopens:
			return fmt.Errorf("module %s: layout %q: neither %q nor %q", mod.File, mod.Layout,
				LayoutRooted, layoutPreopens)
		}
		seen[mod.File] = true
	}
	return nil
}

// soundCommands checks that command names are unique and their modules exist.
func soundCommands(m Manifest) error {
	files, seen := map[string]bool{}, map[string]bool{}
	for _, mod := range m.Modules {
		files[mod.File] = true
	}
	for _, c := range m.Commands {
		if seen[c.Name] {
			return fmt.Errorf("command %s: named twice", c.Name)
		}
		seen[c.Name] = true
		if !files[c.Module] {
			return fmt.Errorf("command %s: module %q is not in the bundle", c.Name, c.Module)
		}
	}
	return nil
}

// soundSources checks that each source is pinned and no limit is negative.
func soundSources(m Manifest) error {
	if m.Limits.MemoryBytes < 0 || m.Limits.WallMS < 0 {
		return errors.New("limits: negative")
	}
	for _, s := range m.BuiltFrom {
		if s.Name == "" || s.Version == "" || !isDigest(s.SHA256) {
			return fmt.Errorf("source %q: needs a name, a version and a sha256", s.Name)
		}
	}
	return nil
}

// soundLicences checks pinned licences. A bundle built in place need not pin any.
func soundLicences(m Manifest) error {
	for _, l := range m.Licences {
		pinned := l.SHA256 != "" || l.Size != 0
		if pinned && (!isDigest(l.SHA256) || l.Size <= 0 || l.Size > maxLicence) {
			return fmt.Errorf("licence file %s: needs a sha256, and a size between 1 and %d",
				l.File, maxLicence)
		}
	}
	return nil
}

func soundNeeds(m Manifest) error {
	if m.Needs == nil {
		return nil
	}
	if m.Needs.Hosts == nil || m.Needs.Mounts == nil ||
		len(m.Needs.Hosts)+len(m.Needs.Mounts) > maxNeeds {
		return fmt.Errorf("needs: hosts and mounts are wanted, at most %d", maxNeeds)
	}
	for _, text := range slices.Concat(m.Needs.Hosts, m.Needs.Mounts) {
		if text == "" || len(text) > maxText || strings.ContainsFunc(text,
			func(r rune) bool { return r <= ' ' || r > '~' }) {
			return fmt.Errorf("needs: %.60q: empty, longer than %d bytes, or not printable ASCII",
				text, maxText)
		}
	}
	for _, host := range m.Needs.Hosts {
		if _, err := policy.ParseHost(host); err != nil {
			return fmt.Errorf("needs: %w", err)
		}
	}
	for _, path := range m.Needs.Mounts {
		if path[0] != '/' || filepath.Clean(path) != path {
			return fmt.Errorf("needs: mount %.60q: not a clean absolute path", path)
		}
	}
	return nil
}

// Patterns of texts in a manifest, compiled on first use.
var (
	// safeName is a name that can be typed, shown and compared without surprise. No letters beyond
	// ASCII and one case, so that no two names look alike (T-608).
	safeName = form(`^[a-z0-9][a-z0-9._+-]{0,63}$`)
	// plainFile is the name of a file directly in the bundle's folder.
	plainFile = form(`^[A-Za-z0-9_+][A-Za-z0-9._+-]{0,99}$`)
	// safeVersion is three numbers without leading zeros, so that one version has one spelling.
	safeVersion = form(`^(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})$`)
	isDigest    = form(`^[0-9a-f]{64}$`)
)

// form returns a function that reports whether a text matches a pattern.
func form(pattern string) func(string) bool {
	compiled := sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
	return func(s string) bool { return compiled().MatchString(s) }
}
