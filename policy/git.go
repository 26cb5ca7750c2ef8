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

// gitSettings and gitControl are the first names below a git directory that stand for these parts.
var (
	gitSettings = []string{"config", "config.worktree", "commondir", "gitdir"}
	gitControl  = []string{"hooks", "info", "remotes", "branches", "rebase-merge", "rebase-apply",
		"sequencer"}
	gitData = []string{"objects", "refs", "packed-refs", "logs", "index", "shallow", "reftable"}
)

// GitPartOf returns the part of a path relative to a git directory, also in the git directory of a
// submodule or of a linked worktree, which are inside the repository's. Settings and control
// compare as protected names do, data byte for byte: a path in doubt is never data.
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

// GitDir returns the outermost directory called .git that path is or is in.
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

// gitName returns path as the list of protected names has it: what lies in the git directory of a
// submodule or a linked worktree stands as if it lay in .git itself. data says that it is
// GitData there.
//
// The name of a submodule may have slashes. It ends, by name alone, where the first name comes
// that means something in a git directory; who knows the shape of directories knows better.
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

// innermostGit leaves out of the names in a git directory those that lead to one within it.
func innermostGit(names []string) []string {
	for {
		next := nestedGitDir(names)
		if next == 0 {
			return names
		}
		names = names[next:]
	}
}

// nestedGitDir returns how many of the names lead to a git directory within a git directory.
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
