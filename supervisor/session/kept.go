package session

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/prepare"
)

// Bounds of the environment that invocations with --keep-env leave to later ones, in total.
const (
	maxKeptNames = 1024
	maxKeptBytes = runners.MaxKept
	// maxPath is PATH_MAX: the kernel refuses paths of this length or more.
	maxPath = 4096
)

// keptName matches the names of variables that can be kept. It excludes the functions that bash
// exports.
var keptName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,254}$`)
})

// shellsOwn are the variables that a shell sets itself, which are not kept.
var shellsOwn = []string{"PWD", "OLDPWD", "SHLVL", "_"}

// kept has the variables and directory that shells left to later invocations of a session. Its
// methods may be called from several goroutines.
type kept struct {
	mu   sync.Mutex
	left prepare.Kept
}

// forInvocation returns what is kept for an invocation, without the variables given ("NAME=value"),
// which the invocation sets itself.
func (k *kept) forInvocation(given []string) prepare.Kept {
	k.mu.Lock()
	defer k.mu.Unlock()
	left := prepare.Kept{Set: maps.Clone(k.left.Set), Unset: maps.Clone(k.left.Unset),
		Cwd: k.left.Cwd}
	for _, v := range given {
		name, _, _ := strings.Cut(v, "=")
		delete(left.Set, name)
		delete(left.Unset, name)
	}
	return left
}

// take adds what the shell of an invocation reported at its end, and returns what was kept. The
// report comes from inside the jail, so everything in it is checked. It returns nil if rep is nil.
func (k *kept) take(j *prepare.Job, rep *runners.Kept) *message.Kept {
	if rep == nil {
		return nil
	}
	if rep.TooLarge {
		return tooLarge()
	}
	all, its := j.In.Policy.Policy(), j.Policy.Policy()
	if !all.Fetch.LessEq(its.Fetch) || !all.Mounts.LessEq(its.Mounts) {
		// Otherwise a tool with fewer rights could choose what tools with more rights load.
		return &message.Kept{Error: "the policy gives this tool less than other tools of the " +
			"session: nothing of this invocation's environment was kept"}
	}
	out := &message.Kept{}
	set, unset := changed(j.Order.Invocation.Env, rep.Env, j.Policy.Policy().Env.Allow)
	k.mu.Lock()
	defer k.mu.Unlock()
	next := prepare.Kept{Set: maps.Clone(k.left.Set), Unset: maps.Clone(k.left.Unset),
		Cwd: k.left.Cwd}
	if next.Set == nil {
		next.Set, next.Unset = map[string]string{}, map[string]bool{}
	}
	for name, value := range set {
		next.Set[name] = value
		delete(next.Unset, name)
		out.Set = append(out.Set, name)
	}
	for _, name := range unset {
		next.Unset[name] = true
		delete(next.Set, name)
	}
	out.Unset = unset
	slices.Sort(out.Set)
	if !bounded(next) {
		return tooLarge()
	}
	if w := j.Plan.Workspace; w != nil && rep.Cwd != j.Plan.Command.Cwd {
		if rel, ok := below(w.Target, rep.Cwd); ok && !policy.Hidden(its.Workspace.Hide).Match(rel) {
			next.Cwd, out.Cwd = rel, rel
		}
	}
	k.left = next
	return out
}

// below returns the path of dir relative to root. ok is false if dir is not below root, or is not a
// valid path to report. Symbolic links are not followed.
func below(root, dir string) (rel string, ok bool) {
	if !filepath.IsAbs(dir) || len(dir) >= maxPath || !utf8.ValidString(dir) ||
		strings.ContainsRune(dir, 0) || strings.ContainsRune(dir, utf8.RuneError) {
		return "", false
	}
	rel, err := filepath.Rel(root, dir)
	return rel, err == nil && filepath.IsLocal(rel)
}

func tooLarge() *message.Kept {
	return &message.Kept{Error: fmt.Sprintf("the environment of the session would have more than "+
		"%d bytes or %d names: nothing of this invocation's was kept", maxKeptBytes, maxKeptNames)}
}

func bounded(k prepare.Kept) bool {
	size := 0
	for name, value := range k.Set {
		size += len(name) + len(value) + 2
	}
	for name := range k.Unset {
		size += len(name) + 1
	}
	return size <= maxKeptBytes && len(k.Set)+len(k.Unset) <= maxKeptNames
}

// changed returns the variables that a shell set or changed, and the names of those that it unset.
// It ignores names that a caller may not set with --env.
func changed(given, left []string, allowed policy.Globs) (set map[string]string, unset []string) {
	may := func(name string) bool {
		return keptName().MatchString(name) && !slices.Contains(shellsOwn, name) &&
			allowed.Match(name)
	}
	before, after := variables(given), variables(left)
	set = map[string]string{}
	for name, value := range after {
		if was, had := before[name]; may(name) && (!had || was != value) &&
			policy.CheckEnvValue(value) == nil {
			set[name] = value
		}
	}
	for name := range before {
		if _, has := after[name]; !has && may(name) {
			unset = append(unset, name)
		}
	}
	slices.Sort(unset)
	return set, unset
}

func variables(env []string) map[string]string {
	all := map[string]string{}
	for _, v := range env {
		if name, value, ok := strings.Cut(v, "="); ok {
			all[name] = value
		}
	}
	return all
}
