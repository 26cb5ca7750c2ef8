package policy_test

import (
	"testing"

	"github.com/jail-sandbox/jail/policy"
)

// T-340: what git runs or obeys is protected wherever a repository keeps it; objects and what
// names them are not, whatever a branch is called.
func TestGitNames(t *testing.T) {
	for _, path := range []string{
		".git/info/exclude", ".git/info/grafts", ".git/INFO/attributes",
		".git/objects/info/alternates", ".git/objects/info/http-alternates",
		".git/Objects/Info/Alternates", ".git/remotes/origin", ".git/branches/x",
		".git/rebase-merge/git-rebase-todo", ".git/rebase-apply/apply-opt", ".git/sequencer/todo",
		".git/commondir", ".git/CONFIG", ".git/HOOKS/x", ".git/worktrees/w/gitdir",
		".git/worktrees/w/commondir", ".git/worktrees/w/config.worktree",
		".git/modules/x/config", ".git/modules/vendor/lib/hooks/post-checkout",
		".git/modules/config/config", ".git/modules/a/modules/b/config",
		".git/modules/a/worktrees/w/gitdir", ".git/modules/a/objects/info/alternates",
		"deep/.git/modules/a/info/attributes", ".git/refs/heads/.git/config",
	} {
		if r, held := policy.Protected(path); !held || r.Class != policy.Hooks {
			t.Errorf("%q is not held back: %+v", path, r)
		}
	}
	for _, path := range []string{".git/", ".git/objects/../config", ".git//index", "./.git/index",
		".git/refs/\x00"} {
		if _, held := policy.Protected(path); !held {
			t.Errorf("%q is no clean name, and is not held back", path)
		}
	}
	for _, path := range []string{
		".git/objects/ab/cd", ".git/objects/pack/pack-1.idx", ".git/objects/info/packs",
		".git/objects/info/commit-graphs/commit-graph-chain", ".git/refs/heads/main",
		".git/refs/heads/hooks/config", ".git/refs/heads/AGENTS.md",
		".git/logs/refs/heads/package.json", ".git/refs/stash", ".git/HEAD", ".git/ORIG_HEAD",
		".git/MERGE_HEAD",
		".git/packed-refs", ".git/index", ".git/shallow", ".git/sharedindex.0123",
		".git/reftable/tables.list", ".git/info/refs", ".git/COMMIT_EDITMSG",
		".git/worktrees/w/HEAD", ".git/worktrees/w/index", ".git/worktrees/w/logs/HEAD",
		".git/modules/x/refs/heads/config", ".git/modules/vendor/lib/objects/ab/hooks",
		".git/modules/a/modules/b/HEAD", ".git/description",
	} {
		if r, held := policy.Protected(path); held {
			t.Errorf("%q is held back: %s", path, r.Reason)
		}
		if r, flagged := policy.Flagged(path); flagged {
			t.Errorf("%q is pointed out: %s", path, r.Reason)
		}
	}
}

func TestGitDir(t *testing.T) {
	for path, want := range map[string]string{".git": ".git", ".git/config": ".git",
		"a/.GIT/x": "a/.GIT", "a/.git/modules/b/.git/c": "a/.git", "a/b": "", "": "",
		"a.git/x": ""} {
		if dir, ok := policy.GitDir(path); dir != want || ok != (want != "") {
			t.Errorf("%q: %q %v", path, dir, ok)
		}
	}
}
