package prepare

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/paths"
	"github.com/jail-sandbox/jail/supervisor/inode"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// Bounds of what patterns of tools.native may stand for.
const (
	maxPrograms = 2048
	maxLooked   = 200_000 // names
)

// programs finds what policy lets run of the mounts that it does not let run as a whole: the kernel
// takes files and directories, not patterns. It is called with the caller's rights.
func (v *view) programs(pol policy.Policy) ([]string, error) {
	var roots []string
	for _, m := range v.mounts {
		if m.exec && !m.image && !jail.AllMayRun(pol, v.workspace.inPolicy(m.target)) {
			roots = append(roots, m.target)
		}
	}
	if len(roots) == 0 {
		return nil, nil
	}
	s := search{view: v, roots: roots}
	for _, g := range pol.Tools.Native.Normal() {
		text := g.String()
		if dir, ok := strings.CutSuffix(text, "/**"); ok && !strings.Contains(dir, "*") {
			s.take(dir) // all of it
			continue
		}
		fixed, _, _ := strings.Cut(text, "*")
		if g.Literal() {
			s.take(text)
		} else if err := s.walk(path.Dir(fixed+"x"), g); err != nil {
			return nil, err
		}
	}
	for _, l := range jail.Loaders {
		s.take(l)
	}
	slices.Sort(s.found)
	return slices.Compact(s.found), nil
}

// A search collects programs.
type search struct {
	view   *view
	roots  []string // mounts
	found  []string
	looked int
}

// take takes a path, if it is there and in one of the mounts.
func (s *search) take(p string) {
	at, err := s.view.find(p)
	if err != nil || !at.exec {
		return
	}
	if _, err := os.Stat(at.host); err == nil {
		s.found = append(s.found, p)
	}
}

// walk looks below dir for what a pattern matches. It follows no links to directories: the pattern
// names what it means.
func (s *search) walk(dir string, g policy.Glob) error {
	var below []string
	if at, err := s.view.find(dir); err == nil && at.exec {
		below = []string{dir}
	} else {
		// mounts below a directory that is none itself
		for _, root := range s.roots {
			if paths.Within(dir, root) {
				below = append(below, root)
			}
		}
	}
	// of the names that the pattern matches, in segments; 0: any
	deepest := 0
	if !strings.Contains(g.String(), "**") {
		deepest = strings.Count(g.String(), "/")
	}
	for _, start := range below {
		at, err := s.view.find(start)
		if err != nil {
			continue
		}
		err = fs.WalkDir(os.DirFS(at.host), ".", func(rel string, entry fs.DirEntry,
			err error) error {
			name := path.Join(start, rel)
			if s.looked++; s.looked > maxLooked || len(s.found) > maxPrograms {
				return problem.New(problem.Refused,
					"tools.native: to find out what %q stands for takes too long, or it stands "+
						"for more than %d programs", g, maxPrograms).
					WithHint("name directories, as /usr/bin/**, or programs")
			}
			// what the caller may not see does not run
			if err != nil {
				return skipDir(entry)
			}
			if !entry.IsDir() && g.Match(name) {
				s.take(name)
			}
			if entry.IsDir() && deepest > 0 && strings.Count(name, "/") >= deepest {
				return fs.SkipDir
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func skipDir(entry fs.DirEntry) error {
	if entry != nil && entry.IsDir() {
		return fs.SkipDir
	}
	return nil
}

// programs adds what else may run to what the plan is made from, and says which files and
// directories of the host that is.
func (f *finder) programs() (found []string, inodes []inode.ID, err error) {
	doErr := f.caller.Do(func() error {
		v := f.view()
		if found, err = v.programs(f.policy.Policy()); err != nil {
			return nil
		}
		for i, p := range found {
			found[i] = v.workspace.inJail(p)
			// one that has gone since is none
			at := inode.ID{}
			if place, findErr := v.find(p); findErr == nil {
				if info, statErr := os.Stat(place.host); statErr == nil {
					at = inode.In(info)
				}
			}
			inodes = append(inodes, at)
		}
		return nil
	})
	return found, inodes, errors.Join(err, doErr)
}
