package worker

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/toolsession"
)

// workspace is where the policy of the task mounts the repository.
const workspace = "/workspace"

// hardened are the settings under which the worker itself calls git, before anything that the
// repository says: no hooks, no monitors, no helpers, https alone, and objects that are checked.
var hardened = []string{
	"-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "core.sshCommand=false",
	"-c", "core.attributesFile=/dev/null", "-c", "credential.helper=",
	"-c", "protocol.allow=never", "-c", "protocol.https.allow=always",
	"-c", "http.followRedirects=false", "-c", "submodule.recurse=false",
	"-c", "fetch.recurseSubmodules=false", "-c", "transfer.fsckObjects=true",
	"-c", "core.protectHFS=true", "-c", "core.protectNTFS=true",
	"-c", "commit.gpgSign=false", "-c", "gc.auto=0", "-c", "maintenance.auto=false",
	// Old repositories have such commits, which harm nobody.
	"-c", "fetch.fsck.zeroPaddedFilemode=ignore", "-c", "fetch.fsck.badTimezone=ignore",
	"-c", "fetch.fsck.missingSpaceBeforeDate=ignore", "-c", "fetch.fsck.badDateOverflow=ignore",
}

// policy is that of the session: the profile, with the requests of a clone and no others. The
// credential is for these requests alone. What runs in the session cannot push: a push is a run of
// its own. No commit takes the work into the real directory, in which other tasks have to find
// nothing.
func (w *worker) policy() string {
	return fmt.Sprintf(`policy = 1
name = "worker-task"
include = [%q]
[workspace]
target = %q
commit = "never"
`, w.o.Task.Profile, workspace) + w.grants("git-upload-pack")
}

// grants are the requests by which git speaks to a service of the repository.
func (w *worker) grants(services ...string) string {
	port := w.o.Task.Repo.Port()
	if port == "" {
		port = "443"
	}
	var b strings.Builder
	rule := func(method, path string) {
		fmt.Fprintf(&b, "[[fetch.allow]]\nhost = %q\nports = [%s]\nmethods = [%q]\npaths = [%q]\n",
			w.o.Task.Repo.Hostname(), port, method, w.o.Task.Repo.Path+path)
		if w.o.Task.Credential != "" {
			fmt.Fprintf(&b, "credential = %q\n", w.o.Task.Credential)
		}
	}
	b.WriteString("[fetch.limits]\nrequests = 1000\nbytes_in = \"2GiB\"\nbytes_out = \"256MiB\"\n" +
		"timeout = \"10m\"\n")
	rule("GET", "/info/refs")
	for _, s := range services {
		rule("POST", "/"+s)
	}
	return b.String()
}

// maxPack bounds what a push sends, in bytes: the profile bounds the output of a run.
const maxPack = 16 << 20

// maxWhy bounds what an error quotes of a program, in bytes.
const maxWhy = 2000

// hardenedGit begins each script: g is git with the settings of the worker.
var hardenedGit = "set -eu\ng() { git " + quoted(hardened) + ` "$@"; }` + "\n"

func quoted(words []string) string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = "'" + w + "'"
	}
	return strings.Join(out, " ")
}

// listNames lists the names that differ between two trees, in the session and where the push is. The
// two lists must be equal to the byte.
const listNames = `g diff-tree -r -z --name-only --no-renames --no-relative --ignore-submodules=none`

// The scripts of the session. A few of git's commands are one invocation, which costs more than they
// do. All that they print once the model has worked is what the repository wants it to be: sendScript
// does not trust it.
var (
	// cloneScript clones a repository, whole and without submodules, and prints some of its branches:
	// $1 is the URL, $2 the base or HEAD, $3 the branch.
	cloneScript = hardenedGit + `g clone -q --no-recurse-submodules --no-tags -- "$1" .
g for-each-ref '--format=%(objecttype) %(objectname) %(refname) %(symref)' \
	"refs/remotes/origin/$2" "refs/remotes/origin/$3"
`
	// checkoutScript makes the branch $1 at the commit $2.
	checkoutScript = hardenedGit + `g checkout -q --no-track -B "$1" "$2"
`
	// treeScript makes a tree of all that is there, and prints it and the names that differ from the
	// commit $1.
	treeScript = hardenedGit + `g add -A -- .
tree=$(g write-tree)
echo "$tree"
` + listNames + ` "$1" "$tree"
`
	// commitScript makes a commit of the tree $1 on top of the commit $2 with the message $3, has the
	// branch $4 be it, and prints it and a bundle of it.
	commitScript = hardenedGit + `commit=$(g commit-tree "$1" -p "$2" -m "$3")
g update-ref "refs/heads/$4" "$commit"
echo "$commit"
g bundle create -q - "refs/heads/$4" "^$2"
`
)

// git runs a script in the session, and returns what it writes. what names it in errors.
func (w *worker) git(ctx context.Context, what, script string, args ...string) (string, error) {
	o, err := w.run(ctx, toolsession.Call{Tool: "sh", Most: maxPack, Cwd: w.root,
		Args: append([]string{"-c", script, "sh"}, args...)})
	switch {
	case err != nil:
		return "", err
	case o.ExitCode != 0:
		return "", fmt.Errorf("%s: %s", what, runners.Printable(o.Why(), maxWhy))
	case o.Out.Cut || o.Truncated:
		return "", fmt.Errorf("%s: it wrote more than %d MiB", what, maxPack>>20)
	}
	return o.Out.Buffer.String(), nil
}

// origin begins the names of the branches of the repository.
const origin = "refs/remotes/origin/"

// clone opens the session and clones the repository. It returns the commit at which the branch of the
// task begins: the base, or the branch itself if the repository has it.
func (w *worker) clone(ctx context.Context) (start string, err error) {
	if err := w.open(ctx); err != nil {
		return "", err
	}
	base := w.o.Task.Base
	if base == "" {
		base = "HEAD"
	}
	out, err := w.git(ctx, "git clone", cloneScript, w.o.Task.Repo.String(), base, w.o.Task.Branch)
	if err != nil {
		return "", err
	}
	commits, head := map[string]string{}, ""
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) < 3 || f[0] != "commit" || !objectID.MatchString(f[1]) {
			continue
		}
		commits[strings.TrimPrefix(f[2], origin)] = f[1]
		if len(f) == 4 && f[2] == origin+"HEAD" {
			head = strings.TrimPrefix(f[3], origin)
		}
	}
	if w.base = w.o.Task.Base; w.base == "" {
		w.base = head
	}
	start, w.was = commits[base], commits[w.o.Task.Branch]
	switch {
	case w.base == "":
		return "", errors.New("the repository is empty, or has no HEAD: name the base")
	case w.base == w.o.Task.Branch:
		return "", fmt.Errorf("branch %s is the base: the work needs a branch of its own", w.base)
	case start == "":
		return "", fmt.Errorf("the repository has no branch %s", w.base)
	case w.was != "":
		start = w.was
	}
	return start, nil
}

// objectID is the name of a commit or a tree.
var objectID = regexp.MustCompile(`^[0-9a-f]{40}([0-9a-f]{24})?$`)

// branch makes the branch of the task.
func (w *worker) branch(ctx context.Context, start string) error {
	_, err := w.git(ctx, "git checkout", checkoutScript, w.o.Task.Branch, start)
	if err == nil {
		w.start = start
	}
	return err
}

// A change is how the work differs from the start.
type change struct {
	tree string
	// names are as git lists them, files as people see them.
	names string
	files []string
}

// changed returns how all that is there differs from the start. What else the repository's own HEAD
// may have become does not count.
func (w *worker) changed(ctx context.Context) (change, error) {
	out, err := w.git(ctx, "git add", treeScript, w.start)
	if err != nil {
		return change{}, err
	}
	c := change{files: []string{}}
	if c.tree, c.names, err = object(out); err != nil {
		return change{}, fmt.Errorf("git write-tree: %w", err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(c.names, "\x00"), "\x00") {
		if name != "" {
			c.files = append(c.files, strings.ToValidUTF8(name, "\uFFFD"))
		}
	}
	return c, nil
}

// object takes the name of an object from the first line.
func object(out string) (id, rest string, err error) {
	id, rest, _ = strings.Cut(out, "\n")
	if !objectID.MatchString(id) {
		return "", "", errors.New("no name of an object")
	}
	return id, rest, nil
}

// A commit is one on top of the start.
type commit struct {
	id     string
	bundle string
	change
}

// commit makes one commit of a change.
func (w *worker) commit(ctx context.Context, c change, title string) (commit, error) {
	out, err := w.git(ctx, "git commit-tree", commitScript, c.tree, w.start, title, w.o.Task.Branch)
	if err != nil {
		return commit{}, err
	}
	made := commit{change: c}
	if made.id, made.bundle, err = object(out); err != nil {
		err = fmt.Errorf("git commit-tree: %w", err)
	}
	return made, err
}

// sendScript pushes one commit from a bundle on standard input: $1 is the URL, $2 the commit that the
// branch begins at, $3 the commit, $4 the name of the branch, and $5 the digest of the names that
// people may have seen.
var sendScript = hardenedGit + `mkdir /tmp/push && cd /tmp/push && cat > bundle
g init -q --bare repository && cd repository
g fetch -q --depth=1 "$1" "$2"
g update-ref refs/start "$2"
g bundle unbundle ../bundle >/dev/null
parents=$(g rev-list --parents --max-count=1 "$3")
[ "$parents" = "$3 $2" ] || { echo "the commit does not follow $2" >&2; exit 1; }
` + listNames + ` "$2" "$3" > ../names
[ "$(sha256sum < ../names)" = "$5  -" ] ||
	{ echo "the commit changes other files than was said" >&2; exit 1; }
g push -q "$1" "$3:refs/heads/$4"
`

// send pushes a commit, never by force, from a jail of its own in which nothing of the repository's
// settings is: only a bundle of the commit comes over from the session. That jail alone has the
// requests of a push, and sees for itself what the commit changes.
func (w *worker) send(ctx context.Context, c commit) error {
	policy := fmt.Sprintf("policy = 1\nname = \"worker-push\"\ninclude = [%q]\n[workspace]\n"+
		"access = \"none\"\n", w.o.Task.Profile) + w.grants("git-upload-pack", "git-receive-pack")
	req := message.Request{ID: string(jail.NewID()), Tool: "sh", Dir: "/", NoWorkspace: true,
		Policy: policy, PolicyName: "push of worker " + w.o.Task.ID, Inherit: w.inherited(),
		Args: runners.Texts{"-c", sendScript, "sh", w.o.Task.Repo.String(), w.start, c.id,
			w.o.Task.Branch, fmt.Sprintf("%x", sha256.Sum256([]byte(c.names)))}}
	var o toolsession.Outcome
	o.Out.Most, o.ErrOut.Most = maxWhy, maxWhy
	var err error
	o.Result, err = w.daemon.run(ctx, req, strings.NewReader(c.bundle), &o.Out, &o.ErrOut)
	switch {
	case err != nil:
		return err
	case o.Error != nil:
		return o.Error
	case o.ExitCode != 0:
		return fmt.Errorf("git push: %s", runners.Printable(o.Why(), maxWhy))
	}
	return nil
}
