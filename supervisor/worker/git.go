package worker

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"strings"
	"time"
	"unicode"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/agents/manifest"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/approvals"
	"github.com/jail-sandbox/jail/supervisor/fetchrun"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/toolsession"
)

// workspace is where the policy of the task mounts the repository.
const workspace = "/workspace"

// hardened are options with which the worker calls git. They override the repository's
// configuration: no hooks, monitors or helpers, only https, and fetched objects are checked.
var hardened = []string{
	"-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "core.sshCommand=false",
	"-c", "core.attributesFile=/dev/null", "-c", "credential.helper=",
	"-c", "protocol.allow=never", "-c", "protocol.https.allow=always",
	"-c", "http.followRedirects=false", "-c", "submodule.recurse=false",
	"-c", "fetch.recurseSubmodules=false", "-c", "transfer.fsckObjects=true",
	"-c", "core.protectHFS=true", "-c", "core.protectNTFS=true",
	"-c", "commit.gpgSign=false", "-c", "gc.auto=0", "-c", "maintenance.auto=false",
	// Old repositories have such commits. They are harmless.
	"-c", "fetch.fsck.zeroPaddedFilemode=ignore", "-c", "fetch.fsck.badTimezone=ignore",
	"-c", "fetch.fsck.missingSpaceBeforeDate=ignore", "-c", "fetch.fsck.badDateOverflow=ignore",
}

// policy returns the text of the session's policy: the profile, plus the requests to clone the
// repository and the submodules of the task. The credential is for these requests only. Programs in
// the session cannot push: send is a separate run, and only the clone has the network. Changes are
// never committed to the real directory, which other tasks may share.
func (w *worker) policy() string {
	return fmt.Sprintf(`policy = 1
name = "worker-task"
include = [%q]
[workspace]
target = %q
commit = "never"
`, w.o.Task.Profile, workspace) + w.grants("git-upload-pack", w.o.Task.Submodules...)
}

// grants returns the text of policy rules: limits of requests, and the requests with which git
// fetches from the repository and from others, and uses a service of the repository such as
// git-receive-pack.
func (w *worker) grants(service string, others ...*url.URL) string {
	text := "[fetch.limits]\nrequests = 1000\nbytes_in = \"2GiB\"\nbytes_out = \"256MiB\"\n" +
		"timeout = \"10m\"\n"
	repo := w.o.Task.Repo
	text += w.rule(repo, "GET", "/info/refs") + w.rule(repo, "POST", "/git-upload-pack")
	if service != "git-upload-pack" {
		text += w.rule(repo, "POST", "/"+service)
	}
	for _, u := range others {
		text += w.rule(u, "GET", "/info/refs") + w.rule(u, "POST", "/git-upload-pack")
	}
	return text
}

// rule returns the text of a policy rule that allows one request of git. It names the credential
// only if the host is the repository's.
func (w *worker) rule(u *url.URL, method, path string) string {
	text := fmt.Sprintf("[[fetch.allow]]\nhost = %q\nports = [%s]\nmethods = [%q]\npaths = [%q]\n",
		u.Hostname(), cmp.Or(u.Port(), "443"), method, u.Path+path)
	if w.o.Task.Credential != "" && u.Host == w.o.Task.Repo.Host {
		text += fmt.Sprintf("credential = %q\n", w.o.Task.Credential)
	}
	return text
}

// maxPack bounds the output of a git script, and so the pack of a push, in bytes.
const maxPack = 16 << 20

// maxWhy bounds the output of a program that an error quotes, in bytes.
const maxWhy = 2000

// hardenedGit is the beginning of each script. It defines g, which is git with the options hardened
// and without the host's configuration.
var hardenedGit = "set -eu\nexport GIT_CONFIG_NOSYSTEM=1 GIT_TERMINAL_PROMPT=0\ng() { git " +
	quoted(hardened) + ` "$@"; }` + "\n"

func quoted(words []string) string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = "'" + w + "'"
	}
	return strings.Join(out, " ")
}

// listNames is the command that lists the paths that differ between two trees. The session and the
// push run it, and their output must be identical.
const listNames = `g diff-tree -r -z --name-only --no-renames --no-relative --ignore-submodules=none`

// Scripts that run in the session. Each combines several git commands, since an invocation costs
// more than a command. After the model has worked, the repository may control their output:
// sendScript does not trust it.
var (
	// cloneScript clones a repository with its history but without submodules, prints the base and
	// the branch, and checks the branch out: $1 is the URL, $2 the base or HEAD, $3 the branch. The
	// branch starts at the remote branch of this name, or else at the base.
	cloneScript = hardenedGit + `g clone -q --no-checkout --no-recurse-submodules --no-tags -- "$1" .
refs=$(g for-each-ref '--format=%(objecttype) %(objectname) %(refname) %(symref)' \
	"refs/remotes/origin/$2" "refs/remotes/origin/$3")
printf '%s\n' "$refs"
for name in "$3" "$2"; do
	case "$refs" in *" refs/remotes/origin/$name "*)
		g checkout -q --no-track -B "$3" "refs/remotes/origin/$name"
		break ;;
	esac
done
`
	// submoduleScript fetches and checks out the submodules, recursively.
	submoduleScript = hardenedGit + `g submodule --quiet update --init --recursive
`
	// commitScript commits the working tree on top of the commit $1 with the message $2 and points
	// the branch $3 to it. It prints the id, the changed paths, and the pack. Without a change it
	// prints nothing.
	commitScript = hardenedGit + packed + `g add -A -- .
tree=$(g write-tree)
before=$(g rev-parse "$1^{tree}")
[ "$tree" != "$before" ] || exit 0
commit=$(g commit-tree "$tree" -p "$1" -m "$2")
g update-ref "refs/heads/$3" "$commit"
echo "$commit"
` + listNames + ` "$before" "$tree"
printf '\000'
packed "$1" "$before" "$commit"
`
)

// packed defines a shell function that prints a pack with the objects needed to push commit $3 on
// top of $1, whose tree is $2: the new objects, and from $1 the commit and the trees that differ in
// $3, which show the changed paths. fsck also reads .gitattributes and .gitmodules.
const packed = `packed() {
	{
		printf '%s\n' "$1" "$2"
		g diff-tree -r -t --no-abbrev --no-renames "$2" "$3"
		g ls-files -s -- ':(glob)**/.gitattributes' ':(glob)**/.gitmodules'
		g rev-list --objects --no-object-names "$3" "^$1"
	} | sed -n 's/^:040000 [0-7]* \([0-9a-f]*\) .*/\1/p; s/^1[02][0-7]* \([0-9a-f]*\) .*/\1/p; /^[0-9a-f]*$/p' |
		g pack-objects -q --stdout
}
`

// noNetwork is the limit for all invocations except git fetches: without the fetch proxy, nothing
// that they send can get the credential.
const noNetwork = "fetch.requests=0"

// git runs a script in the session and returns its output. what names the script in errors.
func (w *worker) git(ctx context.Context, limits []string, what, script string,
	args ...string) (string, error) {
	o, err := w.run(ctx, toolsession.Call{Tool: "sh", Most: maxPack, Cwd: w.root, Limits: limits,
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

// origin is the prefix of the remote-tracking branches.
const origin = "refs/remotes/origin/"

// clone opens the session, clones the repository and checks out the branch of the task. It sets
// w.base, w.start and w.was.
func (w *worker) clone(ctx context.Context) error {
	if err := w.open(ctx); err != nil {
		return err
	}
	base := cmp.Or(w.o.Task.Base, "HEAD")
	out, err := w.git(ctx, nil, "git clone", cloneScript, w.o.Task.Repo.String(), base, w.o.Task.Branch)
	if err != nil {
		return err
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
	w.base = cmp.Or(w.o.Task.Base, head)
	start := commits[base]
	w.was = commits[w.o.Task.Branch]
	switch {
	case w.base == "":
		return errors.New("the repository is empty, or has no HEAD: name the base")
	case w.base == w.o.Task.Branch:
		return fmt.Errorf("branch %s is the base: the work needs a branch of its own", w.base)
	case start == "":
		return fmt.Errorf("the repository has no branch %s", w.base)
	case w.was != "":
		start = w.was
	}
	w.start = start
	return nil
}

// submodules fetches the submodules, if the task names any.
func (w *worker) submodules(ctx context.Context) error {
	if len(w.o.Task.Submodules) == 0 {
		return nil
	}
	_, err := w.git(ctx, nil, "git submodule", submoduleScript)
	return err
}

// objectID matches the id of a git object, SHA-1 or SHA-256.
var objectID = regexp.MustCompile(`^[0-9a-f]{40}([0-9a-f]{24})?$`)

// A commit is the commit of a task, on top of w.start.
type commit struct {
	id string
	// pack has the objects that the push needs, see packed.
	pack string
	// names are the changed paths as git lists them with NULs. files are the same paths as UTF-8.
	names string
	files []string
}

// commit commits the working tree on top of w.start, whatever HEAD is. The id is empty if nothing
// has changed.
func (w *worker) commit(ctx context.Context, title string) (commit, error) {
	out, err := w.git(ctx, []string{noNetwork}, "git commit", commitScript, w.start, title, w.o.Task.Branch)
	if err != nil || out == "" {
		return commit{}, err
	}
	id, rest, _ := strings.Cut(out, "\n")
	names, pack, whole := strings.Cut(rest, "\x00\x00")
	if !objectID.MatchString(id) || !whole {
		return commit{}, errors.New("git commit: no commit and its names")
	}
	c := commit{id: id, pack: pack, names: names + "\x00"}
	for name := range strings.SplitSeq(names, "\x00") {
		c.files = append(c.files, strings.ToValidUTF8(name, "\uFFFD"))
	}
	return c, nil
}

// sendScript pushes a commit whose pack is on standard input: $1 is the URL, $2 the parent, at
// which the branch starts, $3 the commit, $4 the name of the branch, and $5 the SHA-256 of the
// changed paths that people may have seen. The pack cannot replace objects of the parent, as ids
// are hashes of the content. If no remote ref is at the parent any more, the script fetches the
// parent and tries again.
var sendScript = hardenedGit + `mkdir /tmp/push && cd /tmp/push
cat >pack
g init -q --bare part && cd part
printf '%s\n' "$2" >shallow
g index-pack --stdin --fsck-objects <../pack >/dev/null
parents=$(g rev-list --parents --max-count=1 "$3")
[ "$parents" = "$3 $2" ] || { echo "the commit does not follow $2" >&2; exit 1; }
` + listNames + ` "$2" "$3" >../names
[ "$(sha256sum <../names)" = "$5  -" ] ||
	{ echo "the commit changes other files than was said" >&2; exit 1; }
if g push -q "$1" "$3:refs/heads/$4" 2>../why; then exit; fi
if g ls-remote "$1" | grep -q "^$2"; then
	cat ../why >&2
	exit 1
fi
cd ..
g init -q --bare whole && cd whole
g fetch -q --depth=1 "$1" "$2"
g index-pack --stdin <../pack >/dev/null
g push -q "$1" "$3:refs/heads/$4"
`

// send pushes a commit without force from a separate jail, without the repository's configuration:
// it gets only the pack from the session. Only this jail's policy allows a push, and it checks
// itself which paths the commit changes.
func (w *worker) send(ctx context.Context, c commit) error {
	policy := fmt.Sprintf("policy = 1\nname = \"worker-push\"\ninclude = [%q]\n[workspace]\n"+
		"access = \"none\"\n", w.o.Task.Profile) + w.grants("git-receive-pack")
	req := message.Request{ID: string(jail.NewID()), Tool: "sh", Dir: "/", NoWorkspace: true,
		Policy: policy, PolicyName: "push of worker " + w.o.Task.ID, Inherit: w.inherited(),
		Args: runners.Texts{"-c", sendScript, "sh", w.o.Task.Repo.String(), w.start, c.id,
			w.o.Task.Branch, fmt.Sprintf("%x", sha256.Sum256([]byte(c.names)))}}
	var o toolsession.Outcome
	o.Out.Most, o.ErrOut.Most = maxWhy, maxWhy
	var err error
	o.Result, err = w.daemon.run(ctx, req, strings.NewReader(c.pack), &o.Out, &o.ErrOut)
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

// approved proposes an action, waits for its approval, and then calls do. It returns the outcome of
// do, or an error if the action was not approved.
func (w *worker) approved(ctx context.Context, req api.ProposeRequest,
	do func(approvals.Action) (string, error)) (string, error) {
	queue := w.daemon.approvals()
	req.Run, req.Key = w.jail.ID(), api.NewKey()
	a, err := queue.Propose(ctx, req)
	if err == nil && a.State == approvals.Pending {
		w.say(statusWaiting, "a person has to approve it: jail approvals approve "+a.ID)
		id := a.ID
		if a, err = queue.Wait(ctx, id); err != nil {
			w.undecided = true
			err = errors.Join(err, w.withdraw(ctx, id))
		}
	}
	if err != nil {
		return "", err
	}
	if a.State != approvals.Approved {
		w.undecided = true
		return "", fmt.Errorf("%s: it is %s", a.Summary, a.State)
	}
	done, err := queue.Carry(ctx, a.ID, req.Key, do)
	return done.Outcome, err
}

// maxWithdraw bounds the time of a withdrawal.
const maxWithdraw = 10 * time.Second

// withdraw withdraws an action that was not approved in time. Only this process has its key, so a
// later approval would have no effect.
func (w *worker) withdraw(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxWithdraw)
	defer cancel()
	_, err := w.daemon.approvals().Withdraw(ctx, id)
	return err
}

// push pushes a commit after approval. If it changes protected paths, jaild asks a person.
func (w *worker) push(ctx context.Context, c commit) error {
	_, err := w.approved(ctx, api.ProposeRequest{Type: policy.ActionPush, Changed: c.files,
		External: approvals.External{Push: &approvals.Push{Remote: w.o.Task.Repo.String(),
			Ref: "refs/heads/" + w.o.Task.Branch, Commit: c.id, Was: w.was,
			Credential: w.o.Task.Credential}}},
		func(approvals.Action) (string, error) { return c.id, w.send(ctx, c) })
	return err
}

// Bounds of a pull request, in bytes.
const (
	maxBody     = 15 << 10
	maxAnswer   = 1 << 20
	maxRefusals = 1000
)

// pullRequest creates a pull request after approval, and returns its URL. It calls approved before
// the request to the forge.
func (w *worker) pullRequest(ctx context.Context, commit, summary string,
	approved func()) (string, error) {
	body := seen(summary)
	if len(body) > maxBody {
		body = strings.ToValidUTF8(body[:maxBody], "") + "\n…"
	}
	pr := &approvals.PullRequest{Repository: w.o.Task.Repo.String(), Head: w.o.Task.Branch, Base: w.base,
		Commit: commit, Title: w.title(), Body: body, Credential: w.o.Task.Forge.Credential}
	return w.approved(ctx, api.ProposeRequest{Type: policy.ActionPullRequest,
		External: approvals.External{PullRequest: pr}},
		func(approvals.Action) (string, error) {
			approved()
			return w.createPR(ctx, pr)
		})
}

// seen returns a text without invisible characters, which an action must not have.
func seen(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && !unicode.IsGraphic(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
}

// createPR creates the pull request at the forge and returns its URL. GitHub and Gitea have the
// same request at different paths.
func (w *worker) createPR(ctx context.Context, pr *approvals.PullRequest) (string, error) {
	repo := strings.Split(strings.TrimSuffix(strings.Trim(w.o.Task.Repo.Path, "/"), ".git"), "/")
	forge := w.o.Task.Forge
	to := forge.API.JoinPath("repos", repo[0], repo[1], "pulls")
	header := map[string]string{"Accept": "application/vnd.github+json",
		"X-GitHub-Api-Version": "2022-11-28"}
	if forge.Kind == manifest.Gitea {
		to = forge.API.JoinPath("api", "v1", "repos", repo[0], repo[1], "pulls")
		header = map[string]string{"Accept": "application/json"}
	}
	text, err := json.Marshal(map[string]string{"title": pr.Title, "head": pr.Head, "base": pr.Base,
		"body": pr.Body})
	if err != nil {
		return "", err
	}
	res, err := w.o.Sender.Send(ctx, fetchrun.Request{For: "pull request of worker " + w.o.Task.ID,
		Method: "POST", URL: to, Credential: forge.Credential, Header: header, Body: text})
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return "", err
	}
	var made struct {
		URL string `json:"html_url"`
	}
	switch {
	case res.Status != 201:
		return "", fmt.Errorf("the forge answered %d: %s", res.Status,
			runners.Printable(string(answer), maxRefusals))
	case json.Unmarshal(answer, &made) != nil || !isPage(made.URL):
		return "", errors.New("the forge made the pull request, but its answer has no html_url that is " +
			"a URL: look for the pull request at the forge")
	}
	return made.URL, nil
}

// maxPage bounds the URL of a page, in bytes.
const maxPage = 1000

// isPage reports whether a text from a forge is a printable http or https URL.
func isPage(text string) bool {
	u, err := url.Parse(text)
	return err == nil && len(text) <= maxPage && (u.Scheme == "https" || u.Scheme == "http") &&
		u.Host != "" && u.User == nil && runners.Printable(text, maxPage) == text
}
