package policy

import (
	"slices"
	"strings"
)

// GitPart is git's use of a path in a git directory.
type GitPart int

const (
	// GitOther is a path that git neither obeys nor needs to find its objects, such as description.
	GitOther GitPart = iota
	// GitData are objects and the files that name objects: refs, HEAD, logs, the index.
	GitData
	// GitSetting are the files by which git finds and reads a repository: config, commondir,
	// gitdir.
	GitSetting
	// GitControl are other files that git runs or obeys: hooks, attributes, an unfinished rebase.
	GitControl
)

// gitSettings, gitControl and gitData are the first names of the paths of each part.
var (
	gitSettings = []string{"config", "config.worktree", "commondir", "gitdir"}
	gitControl  = []string{"hooks", "info", "remotes", "branches", "rebase-merge", "rebase-apply",
		"sequencer"}
	gitData = []string{"objects", "refs", "packed-refs", "logs", "index", "shallow", "reftable"}
)

// GitPartOf returns the part of a path relative to a git directory, also within the git directory
// of a submodule or linked worktree below it. Settings and control files are compared as protected
// names are, data byte for byte, so that a doubtful path is never data.
func GitPartOf(path string) GitPart { return gitPart(innermostGit(strings.Split(path, "/"))) }

func gitPart(names []string) GitPart {
	path, first := strings.Join(names, "/"), FoldName(names[0])
	switch below := FoldName(strings.Join(names[1:], "/")); {
	case path == "info/refs":
		return GitData
	case first == "objects" && (below == "info/alternates" || below == "info/http-alternates"):
		return GitControl
	case slices.Contains(gitSettings, first):
		return GitSetting
	case slices.Contains(gitControl, first):
		return GitControl
	case slices.Contains(gitData, names[0]), strings.HasPrefix(path, "sharedindex."),
		path != "" && strings.Trim(path, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_") == "",
		strings.HasPrefix(path, "lfs/objects/"), strings.HasPrefix(path, "annex/objects/"):
		return GitData
	}
	return GitOther
}

// GitDir returns the outermost directory called .git that is path or contains it. ok is false for
// none.
func GitDir(path string) (dir string, ok bool) {
	for end := 0; end < len(path); end++ {
		start := end
		for end < len(path) && path[end] != '/' {
			end++
		}
		if FoldName(path[start:end]) == ".git" {
			return path[:end], true
		}
	}
	return "", false
}

// gitName returns path as the list of protected names has it: files in the git directory of a
// submodule or linked worktree are named as if they were in .git itself. data reports whether the
// path is GitData.
//
// The name of a submodule may have slashes. It is taken to end before the first name with a meaning
// in a git directory, since directories are not read here.
func gitName(path string) (name string, data bool) {
	names, clean := Names{}.split(path)
	at := len(names) - 1
	for at >= 0 && FoldName(names[at]) != ".git" {
		at--
	}
	if !clean || at < 0 || at == len(names)-1 {
		return path, false
	}
	rest := innermostGit(names[at+1:])
	return strings.Join(append(names[:at+1:at+1], rest...), "/"), gitPart(rest) == GitData
}

// innermostGit drops the leading names that lead to a nested git directory.
func innermostGit(names []string) []string {
	for {
		next := nestedGitDir(names)
		if next == 0 {
			return names
		}
		names = names[next:]
	}
}

// nestedGitDir returns how many leading names lead to a nested git directory; 0 if there is none.
func nestedGitDir(names []string) int {
	switch FoldName(names[0]) {
	case "worktrees":
		if len(names) > 2 {
			return 2
		}
	case "modules":
		for i := 2; i < len(names); i++ {
			nested := FoldName(names[i]) == "modules" || FoldName(names[i]) == "worktrees"
			if nested && i+1 < len(names) || gitPart(names[i:]) != GitOther {
				return i
			}
		}
	}
	return 0
}
