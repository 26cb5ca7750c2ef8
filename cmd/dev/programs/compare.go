package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/supervisor/message"
)

// A comparer runs the programs of the table, plainly and in a jail.
type comparer struct {
	// The program jail, and the environment that it is called with.
	jail string
	// The outer layer of the jails.
	outer string
	env   []string
	// base is a directory that every user may pass through. Each program gets one of its own below.
	base string
	// Who runs the programs plainly, and owns the workspaces; nil: the caller.
	user *syscall.Credential
	// bound is how long one program may take before it is taken to hang.
	bound time.Duration
}

// ordinaryUser returns a user of every Debian system who is not root, if the caller is root.
// Several programs refuse root, and others ask the system for the name of their user.
func ordinaryUser() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("games")
	if err != nil {
		return nil, err
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, err
}

// searched are where the profile build shows programs.
const searched = "/usr/local/sbin:/usr/local/bin:/usr/local/go/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// here reports whether this machine has all that p needs where the profile build shows it.
func here(p program) bool {
	for name := range strings.FieldsSeq(p.needs) {
		if strings.HasPrefix(name, "/") {
			if _, err := os.Stat(name); err != nil {
				return false
			}
			continue
		}
		if !slices.ContainsFunc(filepath.SplitList(searched), func(dir string) bool {
			info, err := os.Stat(filepath.Join(dir, name))
			return err == nil && info.Mode()&0o111 != 0
		}) {
			return false
		}
	}
	return true
}

// outcome is what can be seen of a program after it has ended.
type outcome struct {
	code           int
	stdout, stderr string
	// What is in the workspace, by name.
	files map[string]string
	// Calls that a jail refused, without those that programs only probe.
	refused []string
}

// compare returns what differs between p run plainly and p run in a jail under the profile build.
func (c *comparer) compare(ctx context.Context, p program) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.bound)
	defer cancel()
	base := filepath.Join(c.base, p.name)
	plain, err := c.inFresh(base, p, func(work, home string) (outcome, error) {
		return c.plainly(ctx, p, work, home)
	})
	if err != nil {
		return nil, fmt.Errorf("%s, plainly: %w", p.name, err)
	}
	jailed, err := c.inFresh(base, p, func(work, _ string) (outcome, error) {
		return c.jailed(ctx, p, work)
	})
	if err != nil {
		return nil, fmt.Errorf("%s, in a jail: %w", p.name, err)
	}
	return differences(p, plain, jailed), nil
}

// inFresh runs a program in a new workspace, always at the same path, and adds its files.
func (c *comparer) inFresh(base string, p program,
	run func(work, home string) (outcome, error)) (outcome, error) {
	if err := os.RemoveAll(base); err != nil {
		return outcome{}, err
	}
	work, home := filepath.Join(base, "work"), filepath.Join(base, "home")
	for _, dir := range []string{work, home} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return outcome{}, err
		}
	}
	for name, text := range p.files {
		path := filepath.Join(work, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return outcome{}, err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return outcome{}, err
		}
	}
	if c.user != nil {
		if err := filepath.WalkDir(base, func(path string, _ fs.DirEntry, err error) error {
			return errors.Join(err, os.Lchown(path, int(c.user.Uid), int(c.user.Gid)))
		}); err != nil {
			return outcome{}, err
		}
	}
	o, err := run(work, home)
	if err != nil {
		return o, err
	}
	o.files, err = tree(work, p.varies)
	return o, err
}

// shell are the arguments that run the script of p.
func shell(p program) []string { return []string{"sh", "-ec", p.script} }

// plainly runs p with the variables that the profile build sets, but for HOME.
func (c *comparer) plainly(ctx context.Context, p program, work, home string) (outcome, error) {
	args := shell(p)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = work
	cmd.Env = []string{"HOME=" + home, "PATH=" + searched, "TMPDIR=/tmp", "LANG=C.UTF-8",
		"TZ=Asia/Kathmandu", "GOTOOLCHAIN=local", "GOPROXY=off", "GOTELEMETRY=off",
		"npm_config_offline=true", "npm_config_update_notifier=false", "PIP_NO_INDEX=1"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: c.user, Setsid: true}
	// Whatever the script left behind holds the streams.
	cmd.WaitDelay = time.Second
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	if e := (*exec.ExitError)(nil); err != nil && !errors.As(err, &e) &&
		!errors.Is(err, exec.ErrWaitDelay) {
		return outcome{}, err
	}
	if ctx.Err() != nil {
		return outcome{}, fmt.Errorf("did not end within %s: %s%s", c.bound, &out, &errOut)
	}
	return outcome{code: cmd.ProcessState.ExitCode(),
		stdout: strings.ReplaceAll(out.String(), home, "/home/tool"),
		stderr: strings.ReplaceAll(errOut.String(), home, "/home/tool")}, nil
}

// jailed runs p in a jail and takes what it changed, as a person who looked at it does.
func (c *comparer) jailed(ctx context.Context, p program, work string) (outcome, error) {
	args := append([]string{"run", "--json", "--keep", "--profile", "build", "--outer", c.outer, "--env",
		"LANG=C.UTF-8", "--env", "TZ=Asia/Kathmandu", "--"}, shell(p)...)
	out, err := c.call(ctx, work, args...)
	var r message.Result
	if jsonErr := json.Unmarshal(out, &r); jsonErr != nil {
		return outcome{}, errors.Join(err, jsonErr)
	}
	if r.Error != nil {
		return outcome{}, errors.New(r.Error.Message)
	}
	o := outcome{code: r.ExitCode, stdout: string(r.Stdout), stderr: string(r.Stderr)}
	for _, d := range r.Denied {
		if !d.Probe {
			o.refused = append(o.refused, d.What)
		}
	}
	if r.Limit != nil {
		o.refused = append(o.refused, "more than the limit "+r.Limit.Name)
	}
	if r.Changes.Added+r.Changes.Modified+r.Changes.Deleted > 0 {
		if out, err := c.call(ctx, work, "commit", r.ID); err != nil {
			return o, fmt.Errorf("commit: %w: %s", err, out)
		}
	}
	_, err = c.call(ctx, work, "discard", r.ID)
	return o, err
}

// call runs jail and returns its standard output.
func (c *comparer) call(ctx context.Context, work string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, c.jail, args...)
	cmd.Dir, cmd.Env = work, c.env
	out, err := cmd.Output()
	if e := (*exec.ExitError)(nil); errors.As(err, &e) {
		err = fmt.Errorf("%w: %s", err, e.Stderr)
	}
	return out, err
}

// tree returns what is below dir: the mode, and the link or the digest of each name, without the
// content of files and directories that vary. Pipes and sockets are left out: no commit takes them.
func tree(dir string, varies string) (map[string]string, error) {
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if dir := filepath.Dir(name); dir != "." && varying(varies, dir) {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch said := info.Mode().String(); {
		case info.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(path)
			all[name] = "-> " + to
			return err
		case info.IsDir():
			all[name] = said
		case !info.Mode().IsRegular():
		case varying(varies, name):
			all[name] = said
		default:
			data, err := os.ReadFile(path)
			all[name] = fmt.Sprintf("%s %x", said, sha256.Sum256(data))
			return err
		}
		return nil
	})
	return all, err
}

// varying reports whether name, or a directory that it is in, matches one of the patterns.
func varying(patterns, name string) bool {
	for pattern := range strings.FieldsSeq(patterns) {
		for part := name; part != "."; part = filepath.Dir(part) {
			if ok, _ := filepath.Match(pattern, part); ok {
				return true
			}
			if ok, _ := filepath.Match(pattern, filepath.Base(part)); ok {
				return true
			}
		}
	}
	return false
}

// differences says in a line each what is otherwise in a jail.
func differences(p program, plain, jailed outcome) []string {
	var all []string
	differs := func(what, one, other string) {
		if p.hides != "" {
			hidden := regexp.MustCompile(p.hides)
			one, other = hidden.ReplaceAllString(one, "_"), hidden.ReplaceAllString(other, "_")
		}
		if one != other {
			all = append(all, fmt.Sprintf("%s: plainly %.400q, in a jail %.400q", what, one, other))
		}
	}
	differs("exit code", strconv.Itoa(plain.code), strconv.Itoa(jailed.code))
	differs("standard output", plain.stdout, jailed.stdout)
	differs("standard error", plain.stderr, jailed.stderr)
	names := map[string]bool{}
	for _, files := range []map[string]string{plain.files, jailed.files} {
		for name := range files {
			names[name] = true
		}
	}
	for name := range names {
		differs("file "+name, plain.files[name], jailed.files[name])
	}
	for _, what := range jailed.refused {
		all = append(all, "refused: "+what)
	}
	slices.Sort(all)
	return all
}
