package learn

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/paths"
)

const (
	// manyBelow is how many subdirectories of one directory are listed before the directory itself
	// is mounted.
	manyBelow = 6
	// manyBelowWide is manyBelow for wideDirs.
	manyBelowWide = 24
	// manyPrograms is how many programs of one directory are named before the directory is.
	manyPrograms = 16
	// fewNames is how many file names a comment shows.
	fewNames = 3
)

// wideDirs hold unrelated files, and are mounted as a whole only if much in them is used.
var wideDirs = []string{"/usr", "/usr/lib", "/usr/share", "/usr/local", "/usr/local/lib", "/lib",
	"/opt"}

// never are directories that are never mounted as a whole.
var never = []string{"/", "/etc", "/var", "/home", "/root"}

// ownPlaces are directories of the jail that do not come from the host.
var ownPlaces = []string{policy.WorkspaceDir, "/proc", "/dev", "/run"}

// group is the uses of a directory, or of a single file.
type group struct {
	path                   string
	files, programs, execs int
	// names has the first few file names.
	names  []string
	opened int64
	dir    bool // it was listed
}

func (g group) why() string {
	var parts []string
	if g.files == 1 && !g.dir {
		parts = append(parts, fmt.Sprintf("opened %s", times(g.opened)))
	} else if g.files > 0 {
		text := fmt.Sprintf("%d files opened %s: %s", g.files, times(g.opened),
			strings.Join(g.names, " "))
		if g.files > len(g.names) {
			text += " …"
		}
		parts = append(parts, text)
	}
	if g.dir {
		parts = append(parts, "listed")
	}
	if g.execs > 0 {
		parts = append(parts, fmt.Sprintf("%d of them executed", g.execs))
	} else if g.programs > 0 {
		parts = append(parts, fmt.Sprintf("%d of them programs or libraries", g.programs))
	}
	return strings.Join(parts, "; ") + "."
}

func times(n int64) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// mountOf returns the innermost mount that contains a path. ok is false if none does.
func mountOf(mounts []policy.Mount, p string) (m policy.Mount, ok bool) {
	for _, x := range mounts {
		if paths.Within(x.Target, p) && (!ok || len(x.Target) > len(m.Target)) {
			m, ok = x, true
		}
	}
	return m, ok
}

// places returns mounts for the observed files, within the mounts of the learning policy: of their
// directories, whose entries may vary, and of single files in /etc or with a mount of their own.
func places(files []File, mounts []policy.Mount) []Item {
	groups := map[string]*group{}
	at := func(p string) *group {
		if groups[p] == nil {
			groups[p] = &group{path: p}
		}
		return groups[p]
	}
	for _, f := range files {
		m, ok := mountOf(mounts, f.Path)
		if !ok || m.Source == "" || slices.ContainsFunc(ownPlaces,
			func(dir string) bool { return paths.Within(dir, f.Path) }) {
			continue
		}
		if f.Dir {
			if !slices.Contains(never, f.Path) && !isParent(f.Path, mounts) {
				at(f.Path).dir = true
			}
			continue
		}
		if f.Path == m.Target || paths.Within("/etc", f.Path) {
			at(f.Path).add(f)
		} else {
			at(path.Dir(f.Path)).add(f)
		}
	}
	collapse(groups)
	var out []Item
	for _, p := range slices.Sorted(maps.Keys(groups)) {
		g := groups[p]
		m, _ := mountOf(mounts, p)
		access := policy.Read
		if g.programs > 0 && m.Access&policy.Exec != 0 {
			access |= policy.Exec
		}
		source := path.Join(m.Source, strings.TrimPrefix(p, m.Target))
		out = append(out, Item{Kind: KindMount, Name: p, Why: g.why(),
			Mount: policy.Mount{Source: source, Target: p, Access: access}})
	}
	return out
}

// isParent reports whether a directory is in no mount, and exists only because of mounts below.
func isParent(dir string, mounts []policy.Mount) bool {
	return !slices.ContainsFunc(mounts, func(m policy.Mount) bool {
		return paths.Within(m.Target, dir)
	})
}

func (g *group) add(f File) {
	g.files++
	g.opened += max(f.Opened, f.Executed)
	if len(g.names) < fewNames {
		g.names = append(g.names, path.Base(f.Path))
	}
	if f.Program {
		g.programs++
	}
	if f.Executed > 0 && !loader(f.Path) {
		g.execs++
	}
}

// take adds the uses of another group to g.
func (g *group) take(o *group) {
	g.files, g.programs, g.execs, g.opened = g.files+o.files, g.programs+o.programs,
		g.execs+o.execs, g.opened+o.opened
	for _, n := range o.names {
		if len(g.names) < fewNames {
			g.names = append(g.names, n)
		}
	}
}

// collapse merges groups into a directory above that is mounted anyway, or that has many of them
// below it. It starts with the deepest.
func collapse(groups map[string]*group) {
	var dirs []string
	for p := range groups {
		for d := path.Dir(p); d != "/"; d = path.Dir(d) {
			dirs = append(dirs, d)
		}
	}
	slices.Sort(dirs)
	dirs = slices.Compact(dirs)
	slices.SortStableFunc(dirs, func(a, b string) int {
		return cmp.Compare(strings.Count(b, "/"), strings.Count(a, "/"))
	})
	for _, d := range dirs {
		if slices.Contains(never, d) {
			continue
		}
		below := map[string]bool{}
		for p := range groups {
			if rest, ok := strings.CutPrefix(p, d+"/"); ok {
				name, _, _ := strings.Cut(rest, "/")
				below[name] = true
			}
		}
		many := manyBelow
		if slices.Contains(wideDirs, d) {
			many = manyBelowWide
		}
		if groups[d] == nil && len(below) <= many {
			continue
		}
		if groups[d] == nil {
			groups[d] = &group{path: d}
		}
		for _, p := range slices.Sorted(maps.Keys(groups)) {
			if strings.HasPrefix(p, d+"/") {
				groups[d].take(groups[p])
				delete(groups, p)
			}
		}
	}
}

// loader reports whether a path is the dynamic loader of a C library, which is granted with the
// programs that it starts.
func loader(p string) bool {
	base := path.Base(p)
	return strings.HasPrefix(base, "ld-linux") || strings.HasPrefix(base, "ld-musl") ||
		strings.HasPrefix(base, "ld-2.")
}

// programs returns items of tools.native for the executed files. The workspace and tmpfs mounts are
// granted as a whole or not at all.
func programs(files []File, tmpfs []string) []Item {
	byDir := map[string][]File{}
	for _, f := range files {
		if f.Executed > 0 && !f.Dir && !loader(f.Path) && !paths.Within("/run", f.Path) {
			byDir[path.Dir(f.Path)] = append(byDir[path.Dir(f.Path)], f)
		}
	}
	whole := map[string]int64{}
	var out []Item
	for _, dir := range slices.Sorted(maps.Keys(byDir)) {
		own := ""
		for _, d := range append(slices.Clone(tmpfs), policy.WorkspaceDir) {
			if paths.Within(d, dir) {
				own = d
			}
		}
		total := int64(0)
		for _, f := range byDir[dir] {
			total += f.Executed
		}
		switch {
		case own != "":
			whole[own] += total
		case len(byDir[dir]) > manyPrograms:
			out = append(out, Item{Kind: KindNative, Name: dir + "/**",
				Why: fmt.Sprintf("%d programs executed %s.", len(byDir[dir]), times(total))})
		default:
			for _, f := range byDir[dir] {
				out = append(out, Item{Kind: KindNative, Name: f.Path,
					Why: fmt.Sprintf("executed %s.", times(f.Executed))})
			}
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(whole)) {
		out = append(out, Item{Kind: KindNative, Name: dir + "/**",
			Why: fmt.Sprintf("executed %s what was made there.", times(whole[dir]))})
	}
	return out
}

// narrow returns mounts of the executed programs instead of their directory, under all their names,
// and of the tool, which may be a link. ok is false if other files in the directory were used, or
// if there are too many.
func narrow(item Item, tool string, files []File, names map[string][]string) (out []Item, ok bool) {
	if item.Kind != KindMount || item.Mount.Access&policy.Exec == 0 {
		return nil, false
	}
	single := func(name, why string) {
		if !slices.ContainsFunc(out, func(i Item) bool { return i.Name == name }) {
			out = append(out, Item{Kind: KindMount, Name: name, Why: why,
				Mount: policy.Mount{Source: path.Join(item.Mount.Source, path.Base(name)),
					Target: name, Access: item.Mount.Access}})
		}
	}
	used := 0
	for _, f := range files {
		if !paths.Within(item.Name, f.Path) || f.Dir {
			continue
		}
		if f.Executed == 0 || path.Dir(f.Path) != item.Name {
			return nil, false
		}
		if used++; used > manyPrograms {
			return nil, false
		}
		for _, name := range append([]string{f.Path}, names[f.Path]...) {
			single(name, fmt.Sprintf("executed %s.", times(f.Executed)))
		}
	}
	if used > 0 && path.Dir(tool) == item.Name {
		single(tool, "the tool, as it was named.")
	}
	// With many names the directory is shorter.
	if len(out) > manyPrograms {
		return nil, false
	}
	return out, used > 0
}
