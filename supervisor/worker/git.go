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

// policy is that of the session: the profile, with the requests of a clone and no others, of the
// repository and of the submodules that the task names. The credential is for these requests alone.
// What runs in the session cannot push: a push is a run of its own, and only the clone has the network
// at all. No commit takes the work into the real directory, in which other tasks have to find nothing.
func (w *worker) policy() string {
	return fmt.Sprintf(`policy = 1
name = "worker-task"
include = [%q]
[workspace]
target = %q
commit = "never"
`, w.o.Task.Profile, workspace) + w.grants("git-upload-pack", w.o.Task.Submodules...)
}

// grants are the limits of all requests, and the requests by which git fetches from the repository
// and from others, and speaks to a service of the repository.
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

// rule allows one request of git. The credential goes to the host of the repository alone.
func (w *worker) rule(u *url.URL, method, path string) string {
	text := fmt.Sprintf("[[fetch.allow]]\nhost = %q\nports = [%s]\nmethods = [%q]\npaths = [%q]\n",
		u.Hostname(), cmp.Or(u.Port(), "443"), method, u.Path+path)
	if w.o.Task.Credential != "" && u.Host == w.o.Task.Repo.Host {
		text += fmt.Sprintf("credential = %q\n", w.o.Task.Credential)
	}
	return text
}

// maxPack bounds what a push sends, in bytes: the profile bounds the output of a run.
const maxPack = 16 << 20

// maxWhy bounds what an error quotes of a program, in bytes.
const maxWhy = 2000

// hardenedGit begins each script: g is git with the settings of the worker, whatever the host's are.
var hardenedGit = "set -eu\nexport GIT_CONFIG_NOSYSTEM=1 GIT_TERMINAL_PROMPT=0\ng() { git " +
	quoted(hardened) + ` "$@"; }` + "\n"

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
	// cloneScript clones a repository, whole and without submodules, prints some of its branches, and
	// makes the branch of the task: $1 is the URL, $2 the base or HEAD, $3 the branch. If the
	// repository has the branch, the work goes on there.
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
	// submoduleScript fetches the submodules of what is checked out.
	submoduleScript = hardenedGit + `g submodule --quiet update --init --recursive
`
	// commitScript makes a commit of all that is there on top of the commit $1, with the message $2,
	// has the branch $3 be it, and prints it, the names that it changes, and its pack. Without a
	// change it prints nothing.
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

// packed prints a pack of what a push of the commit $3 on top of $1, whose tree is $2, needs: what is
// new, and of $1 what tells which names change, which is the commit and the trees that are others in
// $3. The files are those that a check of trees looks into.
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

// noNetwork is the limit of all invocations but those in which git fetches: they have no fetch proxy,
// and no credential of the repository is attached to anything that they send.
const noNetwork = "fetch.requests=0"

// git runs a script in the session under limits, and returns what it writes. what names it in errors.
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

// origin begins the names of the branches of the repository.
const origin = "refs/remotes/origin/"

// clone opens the session, clones the repository and makes the branch of the task, which begins at the
// base, or at the branch itself if the repository has it.
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

// submodules fetches those that the task names.
func (w *worker) submodules(ctx context.Context) error {
	if len(w.o.Task.Submodules) == 0 {
		return nil
	}
	_, err := w.git(ctx, nil, "git submodule", submoduleScript)
	return err
}

// objectID is the name of a commit or a tree.
var objectID = regexp.MustCompile(`^[0-9a-f]{40}([0-9a-f]{24})?$`)

// A commit is one on top of the start.
type commit struct {
	id string
	// pack is what a push needs, see packed.
	pack string
	// names are as git lists them, files as people see them.
	names string
	files []string
}

// commit makes one commit of how all that is there differs from the start. Where nothing does, it has
// no id. What else the repository's own HEAD may have become does not count.
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

// sendScript pushes one commit, whose pack is on standard input: $1 is the URL, $2 the commit that the
// branch begins at, $3 the commit, $4 the name of the branch, and $5 the digest of the names that
// people may have seen. Objects are named by their content, so the pack can hold nothing else under
// the names of the start. If no ref of the remote is at the start any more, git has to know all of the
// start.
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

// send pushes a commit, never by force, from a jail of its own in which nothing of the repository's
// settings is: only a pack of the commit comes over from the session. That jail alone has the
// requests of a push, and sees for itself what the commit changes.
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

// approved proposes an action and does it once it is approved, by the policy or by a person.
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

// maxWithdraw is how long a withdrawal may take.
const maxWithdraw = 10 * time.Second

// withdraw takes back an action that nobody has approved in time. Only this process has its key: a
// person who approved it later would wait for nothing.
func (w *worker) withdraw(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxWithdraw)
	defer cancel()
	_, err := w.daemon.approvals().Withdraw(ctx, id)
	return err
}

// push has a commit pushed that changes some files. Of names that the policy protects jaild asks a
// person.
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

// pullRequest has a pull request made, and returns its URL. approved is called before the forge is
// asked for it.
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

// seen is a text of the model's without characters that nobody sees: an action with one is refused.
func seen(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && !unicode.IsGraphic(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
}

// createPR asks the forge for a pull request: GitHub and Gitea have the same request below different
// paths.
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

// isPage reports whether a text that a forge has chosen is the URL of a page.
func isPage(text string) bool {
	u, err := url.Parse(text)
	return err == nil && len(text) <= maxPage && (u.Scheme == "https" || u.Scheme == "http") &&
		u.Host != "" && u.User == nil && runners.Printable(text, maxPage) == text
}
