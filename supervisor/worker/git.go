package worker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
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
	"-c", "core.protectHFS=true", "-c", "core.protectNTFS=true", "-c", "commit.gpgSign=false",
	"-c", "gc.auto=0", "-c", "maintenance.auto=false",
	// Old repositories have such commits, which harm nobody.
	"-c", "fetch.fsck.zeroPaddedFilemode=ignore", "-c", "fetch.fsck.badTimezone=ignore",
	"-c", "fetch.fsck.missingSpaceBeforeDate=ignore", "-c", "fetch.fsck.badDateOverflow=ignore",
}

// policy is that of the session: the profile, with the requests of a clone and no others. The
// credential is for these requests alone. What runs in the session cannot push: a push is a run of
// its own.
func (w *worker) policy() string {
	return fmt.Sprintf(`policy = 1
name = "worker-task"
include = [%q]
[workspace]
target = %q
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

// git calls git in the session, and returns what it writes.
func (w *worker) git(ctx context.Context, args ...string) (string, error) {
	o, err := w.run(ctx, toolsession.Call{Tool: "git", Most: maxPack, Cwd: w.root,
		Args: append(append([]string{}, hardened...), args...)})
	switch {
	case err != nil:
		return "", err
	case o.ExitCode != 0:
		return "", fmt.Errorf("git %s: %s", args[0], runners.Printable(o.Why(), maxWhy))
	case o.Out.Cut || o.Truncated:
		return "", fmt.Errorf("git %s: it wrote more than %d MiB", args[0], maxPack>>20)
	}
	return o.Out.Buffer.String(), nil
}

// maxWhy bounds what an error quotes of a program, in bytes.
const maxWhy = 2000

// clone opens the session and clones the repository, whole and without submodules.
func (w *worker) clone(ctx context.Context) error {
	if err := w.open(ctx); err != nil {
		return err
	}
	_, err := w.git(ctx, "clone", "-q", "--no-recurse-submodules", "--no-tags", "--",
		w.o.Task.Repo.String(), ".")
	return err
}

// objectID is the name of a commit.
var objectID = regexp.MustCompile(`^[0-9a-f]{40}([0-9a-f]{24})?$`)

// branch makes the branch of the task, or goes on with it if the repository has it.
func (w *worker) branch(ctx context.Context) error {
	resolve := func(ref string) (string, error) {
		out, err := w.git(ctx, "rev-parse", "--verify", "-q", "--end-of-options", ref+"^{commit}")
		id := strings.TrimSpace(out)
		if err == nil && !objectID.MatchString(id) {
			err = errors.New("git rev-parse: no name of a commit")
		}
		return id, err
	}
	w.base = w.o.Task.Base
	if w.base == "" {
		out, err := w.git(ctx, "symbolic-ref", "--short", "refs/remotes/origin/HEAD")
		if err != nil {
			return fmt.Errorf("the repository is empty, or has no HEAD: name the base: %w", err)
		}
		w.base = strings.TrimPrefix(strings.TrimSpace(out), "origin/")
	}
	if w.base == w.o.Task.Branch {
		return fmt.Errorf("branch %s is the base: the work needs a branch of its own", w.base)
	}
	start, err := resolve("refs/remotes/origin/" + w.base)
	if err != nil {
		return fmt.Errorf("the repository has no branch %s", w.base)
	}
	if was, err := resolve("refs/remotes/origin/" + w.o.Task.Branch); err == nil {
		w.was, start = was, was
	}
	if _, err := w.git(ctx, "checkout", "-q", "--no-track", "-B", w.o.Task.Branch, start); err != nil {
		return err
	}
	w.start = start
	return nil
}

// changed takes all changes into the index, and lists the files that differ from the start. What has
// run in the session can have the list leave some out: send compares.
func (w *worker) changed(ctx context.Context) ([]string, error) {
	if _, err := w.git(ctx, "add", "-A", "--", "."); err != nil {
		return nil, err
	}
	out, err := w.git(ctx, slices.Concat([]string{"diff", "--cached"}, listing, []string{w.start})...)
	if err != nil {
		return nil, err
	}
	files := []string{}
	for name := range strings.SplitSeq(strings.TrimSuffix(out, "\x00"), "\x00") {
		if name != "" {
			files = append(files, name)
		}
	}
	return files, nil
}

// listing are the options by which git lists the names of all files that differ.
var listing = []string{"--name-only", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-relative",
	"--ignore-submodules=none", "-z"}

// valid returns names as people and JSON have them.
func valid(names []string) []string {
	out := []string{}
	for _, name := range names {
		out = append(out, strings.ToValidUTF8(name, "\uFFFD"))
	}
	return out
}

// sumOf is the SHA-256 of names, in hexadecimal digits.
func sumOf(names []string) string {
	all := sha256.New()
	for _, name := range slices.Sorted(slices.Values(names)) {
		io.WriteString(all, name+"\x00")
	}
	return hex.EncodeToString(all.Sum(nil))
}

// commit makes one commit of the index, on top of the start. What else the repository's own HEAD may
// have become does not count.
func (w *worker) commit(ctx context.Context, title string) (string, error) {
	tree, err := w.git(ctx, "write-tree")
	if err != nil {
		return "", err
	}
	out, err := w.git(ctx, "commit-tree", strings.TrimSpace(tree), "-p", w.start, "-m", title)
	id := strings.TrimSpace(out)
	if err == nil && !objectID.MatchString(id) {
		err = errors.New("git commit-tree: no name of a commit")
	}
	if err != nil {
		return "", err
	}
	_, err = w.git(ctx, "update-ref", "refs/heads/"+w.o.Task.Branch, id)
	return id, err
}

// pushScript pushes one commit from a bundle on standard input. It is given the URL, the commit that
// the branch begins at, the commit, the name of the branch, and sumOf the files that the commit
// changes. Here the repository has the objects that the server and the bundle have: replaced objects,
// indexes and settings of the session do not count.
var pushScript = `set -eu
g() { git ` + quoted(hardened) + ` "$@"; }
mkdir /tmp/push && cd /tmp/push && cat > bundle
g init -q --bare repository && cd repository
g fetch -q --depth=1 "$1" "$2"
g update-ref refs/start "$2"
g bundle unbundle ../bundle >/dev/null
parents=$(g rev-list --parents --max-count=1 "$3")
[ "$parents" = "$3 $2" ] || { echo "the commit does not follow $2" >&2; exit 1; }
changed=$(g diff-tree -r ` + quoted(listing) + ` "$2" "$3" | LC_ALL=C sort -z | sha256sum)
[ "${changed%% *}" = "$5" ] || { echo "the commit changes other files than was said" >&2; exit 1; }
g push -q "$1" "$3:refs/heads/$4"
`

func quoted(words []string) string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = "'" + w + "'"
	}
	return strings.Join(out, " ")
}

// send pushes a commit that changes some files and no others, never by force. It does so from a jail
// of its own in which nothing of the repository's settings is: only a bundle of the commit comes over
// from the session. That jail alone has the requests of a push.
func (w *worker) send(ctx context.Context, commit string, files []string) error {
	bundle, err := w.git(ctx, "bundle", "create", "-q", "-", "refs/heads/"+w.o.Task.Branch, "^"+w.start)
	if err != nil {
		return err
	}
	policy := fmt.Sprintf("policy = 1\nname = \"worker-push\"\ninclude = [%q]\n[workspace]\n"+
		"access = \"none\"\n", w.o.Task.Profile) + w.grants("git-upload-pack", "git-receive-pack")
	req := message.Request{ID: string(jail.NewID()), Tool: "sh", Dir: "/", NoWorkspace: true,
		Policy: policy, PolicyName: "push of worker " + w.o.Task.ID, Inherit: w.inherited(),
		Args: runners.Texts{"-c", pushScript, "sh", w.o.Task.Repo.String(), w.start, commit,
			w.o.Task.Branch, sumOf(files)}}
	var o toolsession.Outcome
	o.Out.Most, o.ErrOut.Most = maxWhy, maxWhy
	o.Result, err = w.daemon.run(ctx, req, strings.NewReader(bundle), &o.Out, &o.ErrOut)
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
