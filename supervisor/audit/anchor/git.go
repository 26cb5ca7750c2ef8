package anchor

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/stdio"
)

// gitPrefix precedes the scheme of a repository's address, except git://.
const gitPrefix = "git+"

// gitFile is the file with the head in each commit. The commit message is the head as well, so that
// jail audit verify --anchor can read the output of `git log --format=%B BRANCH`.
const gitFile = "head"

// gitOrigin matches the names of logs that are valid branch names.
var gitOrigin = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,63}/[a-z0-9]{1,64}$`)
})

// repository is a target that gets a commit for each head, on a branch with the log's name. A
// repository on this host is written to directly. To a remote one jail pushes from a local copy,
// never with force: a key that can only push without force cannot remove a head.
type repository struct {
	log string // directory of the log
	// dir is a bare repository on this host.
	dir string
	// remote is the repository to push to; "" if dir is the target.
	remote string
	token  string // path
	// closed forbids network connections.
	closed bool
	// room bounds git's output in bytes; 0 means a few lines.
	room int
}

func openGit(t Target, k Keeper, u *url.URL) (sender, error) {
	r := repository{log: k.Log, dir: filepath.Join(k.State, t.Name+".git"), token: t.Token}
	scheme := strings.TrimPrefix(u.Scheme, gitPrefix)
	switch {
	case scheme == "file" && u.Host == "" && filepath.IsAbs(u.Path) && u.RawQuery == "" &&
		u.Fragment == "":
		r.dir = filepath.Clean(u.Path)
	case (scheme == "ssh" || scheme == "https" || scheme == "http" || scheme == "git") &&
		u.Hostname() != "" && !strings.HasPrefix(u.Host, "-") && len(u.Path) > 1:
		plain := *u
		plain.Scheme = scheme
		r.remote = plain.String()
	default:
		return nil, fmt.Errorf(
			"to: %q: want git+file:///PATH, git+ssh://HOST/PATH, git+https://HOST/PATH or "+
				"git://HOST/PATH", t.To)
	}
	return r.send, nil
}

// send commits a head. It tries again if another process moved the branch meanwhile.
func (r repository) send(ctx context.Context, h audit.Head) (err error) {
	if !gitOrigin().MatchString(h.Origin) {
		return fmt.Errorf("a log called %.80q cannot be a branch of a repository", h.Origin)
	}
	ref := "refs/heads/" + h.Origin
	if err := r.prepare(ctx); err != nil {
		return err
	}
	for range 3 {
		if err = r.commit(ctx, ref, h); !errors.Is(err, errMoved) || ctx.Err() != nil {
			break
		}
	}
	if err == nil {
		_, err = r.git(ctx, nil, "gc", "--auto", "--quiet")
	}
	return err
}

// prepare creates the local copy for a remote repository. It checks a repository of this host,
// whose hooks and settings have the daemon's rights.
func (r repository) prepare(ctx context.Context) error {
	info, err := os.Stat(r.dir)
	if errors.Is(err, fs.ErrNotExist) && r.remote != "" {
		if err := os.MkdirAll(filepath.Dir(r.dir), 0o700); err != nil {
			return err
		}
		_, err := r.git(ctx, nil, "init", "--quiet", "--bare", "--template=", r.dir)
		return err
	}
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(r.dir, "objects")); err != nil || !info.IsDir() {
		return fmt.Errorf("%s is no bare repository: git init --bare %s", r.dir, r.dir)
	}
	for _, name := range []string{"", "config", "objects", "refs"} {
		info, err := os.Stat(filepath.Join(r.dir, name))
		if err != nil {
			return err
		}
		if owner, ok := info.Sys().(*syscall.Stat_t); !ok || int(owner.Uid) != os.Geteuid() ||
			info.Mode().Perm()&0o022 != 0 {
			return fmt.Errorf(
				"%s can be written by others: who can change a repository can have programs run "+
					"with the rights of who uses it; give it to uid %d alone, or use git+ssh",
				filepath.Join(r.dir, name), os.Geteuid())
		}
	}
	return nil
}

// errMoved is wrapped by errors that a concurrent sender may have caused. Only these are retried at
// once.
var errMoved = errors.New("the branch was not moved")

// commit adds a commit with the head h to the branch ref, and pushes it.
func (r repository) commit(ctx context.Context, ref string, h audit.Head) error {
	parent, err := r.tip(ctx, ref)
	if err != nil {
		return err
	}
	text := append(bytes.TrimRight(h.Note, "\n"), '\n')
	if parent != "" {
		is, err := r.git(ctx, nil, "cat-file", "blob", parent+":"+gitFile)
		if err != nil {
			return err
		}
		if is == strings.TrimRight(string(text), "\n") {
			// Another process has committed this head.
			return nil
		}
		if newer, err := r.newer(is, h); err != nil || newer {
			return err
		}
	}
	blob, err := r.git(ctx, text, "hash-object", "-w", "--stdin")
	if err != nil {
		return err
	}
	tree, err := r.git(ctx, fmt.Appendf(nil, "100644 blob %s\t%s\n", blob, gitFile), "mktree")
	if err != nil {
		return err
	}
	args := []string{"commit-tree", tree}
	if parent != "" {
		args = append(args, "-p", parent)
	}
	made, err := r.git(ctx, text, args...)
	if err != nil {
		return err
	}
	if r.remote == "" {
		if _, err = r.git(ctx, nil, "update-ref", ref, made, parent); err != nil {
			return fmt.Errorf("%w: %w", errMoved, err)
		}
		return nil
	}
	if _, err := r.git(ctx, nil, "push", "--quiet", "--no-verify", r.remote,
		made+":"+ref); err != nil {
		return fmt.Errorf("%w: %w", errMoved, err)
	}
	_, err = r.git(ctx, nil, "update-ref", ref, made)
	return err
}

// newer reports whether the branch's head, has, is newer than h, as when two processes send. A head
// that the log has not reached is an error: the log was put back to an older state.
func (r repository) newer(has string, h audit.Head) (bool, error) {
	last, err := audit.ParseAnchors("its last commit", []byte(has+"\n"))
	if err != nil {
		return false, err
	}
	if last[0].Size <= h.Size {
		return false, nil
	}
	if now, err := audit.ReadHead(r.log); err != nil || now.Size < last[0].Size {
		return false, errors.Join(fmt.Errorf("%w: it has %d records, and the last commit %d",
			audit.ErrPutBack, now.Size, last[0].Size), err)
	}
	return true, nil
}

// tip returns the last commit of the branch ref, or "". It returns an error if earlier commits of a
// remote branch have changed.
func (r repository) tip(ctx context.Context, ref string) (string, error) {
	here, err := r.git(ctx, nil, "for-each-ref", "--format=%(objectname)", ref)
	if err != nil || r.remote == "" {
		return here, err
	}
	line, err := r.git(ctx, nil, "ls-remote", "--heads", "--quiet", r.remote, ref)
	if err != nil {
		return "", err
	}
	there, _, _ := strings.Cut(line, "\t")
	if there == here {
		return there, nil
	}
	back := fmt.Errorf(
		"the branch %s was put back there: it lacks the commit %.12s that it took; remove %s to "+
			"continue from its present state", ref, here, r.dir)
	if there == "" {
		return "", back
	}
	if _, err := r.git(ctx, nil, "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", r.remote,
		ref); err != nil {
		return "", err
	}
	if here != "" {
		if _, err := r.git(ctx, nil, "merge-base", "--is-ancestor", here, there); err != nil {
			return "", back
		}
	}
	return there, nil
}

// maxRepository bounds the bytes of heads that are read from a repository.
const maxRepository = 256 << 20

// ReadRepository returns the heads in a git repository, bare or not, as a text for
// [audit.ParseAnchors]. known is false if dir is not a repository.
func ReadRepository(ctx context.Context, dir string) (heads []byte, known bool, err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return nil, false, err
	}
	if _, err := os.Stat(filepath.Join(dir, ".git")); err == nil {
		dir = filepath.Join(dir, ".git")
	}
	for _, name := range []string{"HEAD", "objects", "refs"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return nil, false, nil
		}
	}
	r := repository{dir: dir, closed: true, room: maxRepository}
	out, err := r.git(ctx, nil, "rev-list", "--all", "--no-commit-header", "--format=%B")
	if err == nil && len(out) >= maxRepository {
		err = fmt.Errorf("%s holds more than %d bytes of heads", dir, maxRepository)
	}
	return []byte(out + "\n"), true, err
}

// gitPrograms are the accepted paths of git, where only root can write.
var gitPrograms = []string{"/usr/bin/git", "/bin/git", "/usr/local/bin/git"}

// git runs the host's git and returns its output. Only the repository's own settings apply; git
// runs no hooks and asks no questions.
func (r repository) git(ctx context.Context, input []byte, args ...string) (string, error) {
	program := ""
	for _, path := range gitPrograms {
		if _, err := os.Stat(path); err == nil {
			program = path
			break
		}
	}
	if program == "" {
		return "", fmt.Errorf("git is not installed: expected at %s",
			strings.Join(gitPrograms, ", "))
	}
	settings := [][2]string{{"core.hooksPath", "/dev/null"}, {"gc.autoDetach", "false"},
		{"core.fsmonitor", "false"}, {"credential.helper", ""},
		{"http.followRedirects", "false"}, {"transfer.fsckObjects", "true"}, {"maintenance.auto",
			"false"}, {"core.sshCommand", gitSSH}}
	if r.token != "" {
		token, err := readToken(r.token)
		if err != nil {
			return "", err
		}
		settings = append(settings, [2]string{"http.extraHeader", "Authorization: Bearer " + token})
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/bin:/bin:/usr/local/bin", "HOME=/nonexistent", "LC_ALL=C",
		"GIT_DIR=" + r.dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_TERMINAL_PROMPT=0", "GIT_ASKPASS=/bin/false", "SSH_ASKPASS=/bin/false",
		"GIT_NO_LAZY_FETCH=1", "GIT_SSH_COMMAND=" + gitSSH,
		"GIT_AUTHOR_NAME=jail", "GIT_AUTHOR_EMAIL=jail@localhost", "GIT_COMMITTER_NAME=jail",
		"GIT_COMMITTER_EMAIL=jail@localhost",
		fmt.Sprint("GIT_CONFIG_COUNT=", len(settings))}
	// Not as arguments, which every user of the host can see.
	for i, s := range settings {
		cmd.Env = append(cmd.Env, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", i, s[0]),
			fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", i, s[1]))
	}
	protocols := "ssh:https:http:git"
	if r.closed {
		protocols = "none"
	}
	cmd.Env = append(cmd.Env, "GIT_ALLOW_PROTOCOL="+protocols)
	cmd.Stdin = bytes.NewReader(input)
	out, said := stdio.Kept{Most: max(r.room, gitSays)}, stdio.Kept{Most: gitSays}
	cmd.Stdout, cmd.Stderr = &out, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// Kill git's children, too.
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return "", fmt.Errorf("git %s: %s did not answer in time: %w", args[0],
				cmp.Or(r.remote, r.dir), ctx.Err())
		}
		return "", fmt.Errorf("git %s: %w: %s", args[0], err,
			audit.Printable(inShort(said.String())))
	}
	return strings.TrimRight(out.String(), "\n"), nil
}

// inShort returns the output of git and ssh as one line, without fixed phrases. For a changed host
// key, whose message is a page, it keeps the end with the host's name.
func inShort(said string) string {
	var kept []string
	for line := range strings.Lines(said) {
		switch line = strings.TrimSpace(line); {
		case line == "", line == "fatal: Could not read from remote repository.",
			line == "Please make sure you have the correct access rights",
			line == "and the repository exists.":
			continue
		case strings.HasPrefix(line, "Host key for "):
			kept = nil
		}
		kept = append(kept, line)
	}
	return strings.Join(kept, "; ")
}

// gitSSH asks no questions and accepts only hosts that root knows. Its time-out is half of a try's,
// so that the error is ssh's.
const gitSSH = "ssh -o BatchMode=yes -o StrictHostKeyChecking=yes -o ConnectTimeout=10"

// gitSays bounds the kept output of git in bytes.
const gitSays = 16 << 10
