package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// MaxItems bounds each list of a policy as it is written.
const MaxItems = 256

// maxFetchItems bounds the ports, methods, paths and types of all rules of a fetch list together,
// since the comparison of rules takes time by their square.
const maxFetchItems = 2048

// maxProblems bounds the problems that Check returns about conflicting mounts, which may be one for
// each pair.
const maxProblems = 100

// checks are the checks of a policy. Each returns the errors, as sentences that begin with the key,
// so that a parser can add the position.
var checks = []func(Policy) []error{
	checkFields, checkMounts, checkNested, checkFetch, checkEnv, checkApprove, checkOuter,
}

// Check returns all errors in a policy, joined, or nil. Resolve refuses a policy that does not
// pass.
func (p Policy) Check() error {
	var all []error
	for _, check := range checks {
		all = append(all, check(p)...)
	}
	return errors.Join(all...)
}

func tooMany(key string, n int) []error {
	if n > MaxItems {
		return []error{fmt.Errorf("%s has %d items: at most %d", key, n, MaxItems)}
	}
	return nil
}

func tooManyTogether(key string, n int) []error {
	if n > maxFetchItems {
		return []error{fmt.Errorf("%s has %d ports, methods, paths and types in all: at most %d",
			key, n, maxFetchItems)}
	}
	return nil
}

func keyed(key string, err error) []error {
	if err == nil {
		return nil
	}
	return []error{fmt.Errorf("%s: %w", key, err)}
}

// Places of the jail that are made by the plan, not by a policy, and trees of the host
// that show or control more than files.
var (
	reservedTargets = []string{WorkspaceDir, "/proc", "/dev", "/sys", "/run/jail"}
	reservedSources = []string{"/proc", "/dev", "/sys", "/run/jail"}
)

func checkMounts(p Policy) (out []error) {
	out = tooMany("mount", len(p.Mounts))
	for i, m := range p.Mounts {
		out = append(out, keyed(fmt.Sprintf("mount[%d]", i), CheckMount(m))...)
	}
	return out
}

// CheckMount returns an error for a mount that is not valid, or nil.
func CheckMount(m Mount) error {
	switch {
	case m.Access == 0 || m.Access&^AllRights != 0:
		return fmt.Errorf("access grants nothing, or nothing that there is")
	case m.Source == "" && m.Access != Tmpfs && m.Access != Cache:
		return fmt.Errorf(
			"source is missing: name a directory or file of the host, or access = \"tmpfs\"")
	case m.Source != "" && m.Access&Tmpfs != 0:
		return fmt.Errorf("source %q has no meaning for a tmpfs: leave it out", m.Source)
	case m.Source != "" && m.Access&Cache != 0:
		return fmt.Errorf("source %q has no meaning for a cache: leave it out", m.Source)
	case m.Access != Cache && m.Name != "":
		return fmt.Errorf("name %q is for access = \"cache\" alone: leave it out", m.Name)
	case m.Access != Cache && m.Size != 0:
		return errors.New("size is for access = \"cache\" alone: leave it out")
	case m.Access == Cache && m.Size < minCache:
		return fmt.Errorf("size of a cache is %s: the least is %s", Bytes.Format(m.Size),
			Bytes.Format(minCache))
	case m.Name != "":
		if err := CheckCacheName(m.Name); err != nil {
			return err
		}
	}
	return errors.Join(CheckMountSource(m.Source), CheckMountTarget(m.Target))
}

// minCache and MaxCache bound the size of a cache, in bytes.
const (
	minCache = 1 << 20
	MaxCache = 1 << 40
)

// maxCacheName bounds the name of a cache, in bytes.
const maxCacheName = 64

// CheckCacheName returns an error for a name that no cache can have, or nil.
func CheckCacheName(name string) error {
	if name == "" || len(name) > maxCacheName || strings.ContainsFunc(name, notInName) ||
		strings.ContainsAny(name[:1], "-_.") {
		return fmt.Errorf("name %q of a cache is not 1 to %d letters, digits, hyphens, "+
			"underscores and dots that begin with a letter or digit", name, maxCacheName)
	}
	return nil
}

// notInName reports whether r must not be in the name of a cache or credential.
func notInName(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') &&
		!strings.ContainsRune("-_.", r)
}

// CheckMountSource returns an error for a path of the host that must not be mounted, or nil.
// CheckMount checks whether it may be empty.
func CheckMountSource(source string) error {
	if source != "" && !cleanAbsolute(source) {
		return fmt.Errorf("source %q is no clean absolute path: no ~, no .., no slash at the end",
			source)
	}
	if strings.ContainsAny(source, "*?") {
		return fmt.Errorf(
			"source %q is one directory or file, and no pattern: * and ? stand for nothing here",
			source)
	}
	for _, r := range reservedSources {
		if _, ok := beneath(r, source); ok {
			return fmt.Errorf("source %q lies in %s, which shows or controls more than files",
				source, r)
		}
	}
	return nil
}

// CheckMountTarget returns an error for a path in the jail where no mount may be, or nil.
func CheckMountTarget(target string) error {
	switch {
	case target == "":
		return nil
	case !cleanAbsolute(target):
		return fmt.Errorf("target %q is no clean absolute path: no ~, no .., no slash at the end",
			target)
	case strings.ContainsAny(target, "*?"):
		return fmt.Errorf("target %q is one place, and no pattern: * and ? stand for nothing here",
			target)
	case target == "/":
		return errors.New("target \"/\" would cover the jail's own root")
	}
	for _, r := range reservedTargets {
		if _, ok := beneath(r, target); ok {
			return fmt.Errorf("target %q lies in %s, which the jail makes itself", target, r)
		}
		if _, ok := beneath(target, r); ok {
			return fmt.Errorf("target %q would cover %s, which the jail makes itself", target, r)
		}
	}
	return nil
}

// checkNested refuses two mounts that show different things at one path: the order of mounting
// would decide, and the rights could not be the union of both.
func checkNested(p Policy) (out []error) {
	for i, m := range p.Mounts {
		for j, n := range p.Mounts {
			rel, ok := beneath(m.Target, n.Target)
			if !ok || m.Target == "" || rel == "" && j < i {
				continue
			}
			if m.at(rel).Source != n.Source || m.Name != n.Name {
				if len(out) == maxProblems {
					return out
				}
				out = append(out,
					fmt.Errorf("mount[%d]: target %q lies in mount[%d], target %q, and shows "+
						"something else there", j, n.Target, i, m.Target))
			}
		}
	}
	return out
}

// CheckToolGlob refuses a pattern that no bundle/command could match.
func CheckToolGlob(g Glob) error {
	if !g.valid || !g.deep && (len(g.pre) != 2 || g.pre[0] == segment{} || g.pre[1] == segment{}) {
		return fmt.Errorf("pattern %q is no bundle/command, such as core-utils/*", g)
	}
	return nil
}

// checkModuleGlob refuses a pattern that no absolute path could match.
func checkModuleGlob(g Glob) error {
	if !g.absolute() && (!g.valid || len(g.pre) > 0) {
		return fmt.Errorf("pattern %q matches no absolute path: start it with / or **", g)
	}
	return checkNoFinalSlash(g)
}

// CheckNativeGlob refuses a pattern that does not start at the root.
func CheckNativeGlob(g Glob) error {
	if !g.absolute() && g.String() != "**" {
		return fmt.Errorf("pattern %q is no absolute path", g)
	}
	return checkNoFinalSlash(g)
}

// ImageDir is the prefix of the name of an image in a directory in the OCI image layout. An
// absolute path follows.
const ImageDir = "oci:"

// checkImageGlob refuses a pattern that no image could match. An image has a name of one segment,
// or is a directory with ImageDir.
func checkImageGlob(g Glob) error {
	if g.valid && (g.deep && len(g.pre) == 0 || !g.deep && len(g.pre) == 1 ||
		len(g.pre) > 0 && g.pre[0] == segment{pre: ImageDir}) {
		return checkNoFinalSlash(g)
	}
	return fmt.Errorf(
		"pattern %q matches no image: want NAME, oci:/DIR/**, or ** for every image", g)
}

func (g Glob) absolute() bool { return g.valid && len(g.pre) > 0 && g.pre[0] == segment{} }

func checkNoFinalSlash(g Glob) error {
	if strings.HasSuffix(g.String(), "/") {
		return fmt.Errorf("pattern %q ends with a slash, as no file does", g)
	}
	return nil
}

func checkFetch(p Policy) (out []error) {
	f := p.Fetch
	out = append(tooMany("fetch.allow", len(f.Allow)), tooMany("fetch.deny", len(f.Deny))...)
	allowed, denied := 0, 0
	for i, r := range f.Allow {
		key := fmt.Sprintf("fetch.allow[%d]", i)
		out = append(out, checkTarget(key, r.Target())...)
		out = append(out, keyed(key+".credential", CheckCredential(r.Credential))...)
		out = append(out, tooMany(key+".types", len(r.Types))...)
		for _, g := range r.Types {
			out = append(out, keyed(key+".types", CheckTypeGlob(g))...)
		}
		out = append(out, keyed(key, r.Bounds.check())...)
		if r.TLS > TLSOpaque {
			out = append(out, fmt.Errorf("%s.tls is no value there is", key))
		}
		allowed += r.Target().items() + len(r.Types)
	}
	for i, r := range f.Deny {
		out = append(out, checkTarget(fmt.Sprintf("fetch.deny[%d]", i), r)...)
		denied += r.items()
	}
	out = append(out, tooManyTogether("fetch.allow", allowed)...)
	return append(out, tooManyTogether("fetch.deny", denied)...)
}

func (r FetchDeny) items() int { return len(r.Ports) + len(r.Methods) + len(r.Paths) }

// checkTarget returns the errors in the host, ports, methods and paths of a rule.
func checkTarget(key string, r FetchDeny) (out []error) {
	out = append(tooMany(key+".ports", len(r.Ports)), tooMany(key+".methods", len(r.Methods))...)
	out = append(out, tooMany(key+".paths", len(r.Paths))...)
	if r.Host.depth == hostNone {
		out = append(out, fmt.Errorf("%s.host is missing", key))
	}
	for _, m := range r.Methods {
		out = append(out, keyed(key+".methods", CheckMethod(m.String()))...)
	}
	for _, g := range r.Paths {
		out = append(out, keyed(key+".paths", CheckURLGlob(g))...)
	}
	return out
}

// CheckTypeGlob refuses a pattern that no media type could match.
func CheckTypeGlob(g Glob) error {
	text := g.String()
	bad := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && !strings.ContainsRune("/*+-._", r)
	}
	if text != "**" && (g.deep || len(g.pre) != 2 || strings.ContainsFunc(text, bad)) {
		return fmt.Errorf(
			"pattern %q is no media type in lower case, such as text/* or application/json", text)
	}
	return nil
}

// CheckMethod returns an error for a method that a fetch rule cannot have, or nil.
func CheckMethod(m string) error {
	notToken := func(r rune) bool { return (r < 'A' || r > 'Z') && r != '-' && r != '_' }
	switch {
	case m == "*":
		return nil
	case m == "" || strings.ContainsFunc(m, notToken):
		return fmt.Errorf("method %q is no upper-case name such as GET, and no *", m)
	case slices.Contains([]string{"TRACE", "TRACK", "PRI"}, m):
		return fmt.Errorf("method %q cannot be granted: it shows or changes what the proxy adds", m)
	}
	return nil
}

// CheckURLGlob refuses a pattern that no canonical request path could match.
func CheckURLGlob(g Glob) error {
	text := g.String()
	if text == "**" {
		return nil
	}
	return checkPath(text)
}

// CheckCredential returns an error for a name that no credential can have, or nil.
func CheckCredential(name string) error {
	if name != AnyCredential && (len(name) > 128 || strings.ContainsFunc(name, notInName)) {
		return fmt.Errorf(
			"credential %q is no name of letters, digits, dots, hyphens and underscores", name)
	}
	return nil
}

func checkEnv(p Policy) (out []error) {
	out = tooMany("env.set", len(p.Env.Set.Values))
	for name, value := range p.Env.Set.Values {
		out = append(out,
			keyed("env.set", errors.Join(CheckEnvName(name), CheckEnvValue(value)))...)
	}
	return out
}

// checkEnvGlob refuses a pattern that no name of a variable could match.
func checkEnvGlob(g Glob) error {
	text := g.String()
	if len(g.pre) != 1 || text != "*" && CheckEnvName(strings.Replace(text, "*", "_", 1)) != nil {
		return fmt.Errorf("pattern %q is no name of a variable, such as TERM or LC_*", text)
	}
	return nil
}

func checkOuter(p Policy) (out []error) {
	for _, name := range p.Outer.Layers {
		out = append(out, keyed("outer", CheckOuter(name))...)
	}
	return out
}
