package main

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/supervisor/message"
)

// How a call of the agent reaches the session.
const (
	byCLI = "CLI"
	byAPI = "API"
)

// The profile of the day: build, and the caches.
//
//go:embed day.toml
var profile string

// files prints what a directory holds, but for what says when a file was changed: the index of git
// and compiled Python.
const files = `find . -printf '%y %m %U %G %P %l\n' | sort
find . -type f ! -path ./.git/index ! -name '*.pyc' ! -name '*.log' ! -path '*/.npm/_logs/*' -print0 |
sort -z | xargs -0 -r sha256sum`

// An outcome is what one call did on one side.
type outcome struct {
	code     int
	out, err string
	took     time.Duration
}

// A replay is one pass over one day.
type replay struct {
	w       *world
	d       day
	pass    int
	dir     string
	session string
	outside *outside
	report  *report
	servers map[string]*server
}

// A server is a call in the background, on both sides.
type server struct {
	cmd      *exec.Cmd
	out, err bytes.Buffer
	ended    chan struct{}
}

// replay runs the calls of a day, first outside and then in the session.
func (w *world) replay(ctx context.Context, d day, pass int, rep *report) (err error) {
	r := &replay{w: w, d: d, pass: pass, report: rep, servers: map[string]*server{},
		dir:     filepath.Join(w.root, "run", d.name),
		session: fmt.Sprintf("%s-%d-%d", d.name, pass, os.Getpid())}
	pristine, beside := filepath.Join(w.root, "copies", d.name), filepath.Join(w.root, "copies",
		d.name+".outside")
	for _, to := range []string{r.dir, beside} {
		if err := copyTree(pristine, to); err != nil {
			return err
		}
	}
	cache := strings.NewReplacer("{cache}", filepath.Join(w.root, "cache"))
	var env []string
	for _, e := range d.env {
		env = append(env, cache.Replace(e))
	}
	r.d.calls = slices.Clone(d.calls)
	for i := range r.d.calls {
		r.d.calls[i].line = cache.Replace(r.d.calls[i].line)
	}
	base := []string{"HOME=" + home, "PATH=/usr/local/sbin:/usr/local/bin:/usr/local/go/bin:" +
		"/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "TERM=dumb"}
	if r.outside, err = newOutside(beside, r.dir, append(base, env...)); err != nil {
		return err
	}
	defer close(r.outside.start)
	policy := filepath.Join(w.root, "day.toml")
	if err := os.WriteFile(policy, []byte(cache.Replace(profile)), 0o644); err != nil {
		return err
	}
	args := []string{"session", "start", "--quiet", "--id", r.session, "--policy", policy, "--keep"}
	for _, e := range env {
		args = append(args, "--env", e)
	}
	if o := r.jail(ctx, "", args...); o.code != 0 {
		return fmt.Errorf("session start: %s", o.err)
	}
	defer r.jail(context.WithoutCancel(ctx), "", "discard", "--force", r.session)
	defer r.jail(context.WithoutCancel(ctx), "", "session", "stop", r.session)
	defer r.stopAll()
	for n := 0; n < len(d.calls) && ctx.Err() == nil; {
		end := n + 1
		for end < len(d.calls) && d.calls[end].together {
			end++
		}
		if pass == 0 {
			time.Sleep(w.pause)
		}
		r.group(ctx, n, end)
		// Not while a call in the background may write.
		if pass == 0 && n/5 != end/5 && len(r.servers) == 0 {
			r.compareFiles(ctx, n)
		}
		n = end
	}
	r.stopAll()
	r.compareFiles(ctx, len(d.calls)-1)
	return ctx.Err()
}

// group replays the calls from n to end, at one time on each side.
func (r *replay) group(ctx context.Context, n, end int) {
	both := [2][]outcome{make([]outcome, end-n), make([]outcome, end-n)}
	for side, do := range []func(context.Context, int) outcome{r.without, r.within} {
		var wait sync.WaitGroup
		for i := n; i < end; i++ {
			wait.Go(func() {
				start := time.Now()
				o := do(ctx, i)
				o.took = time.Since(start)
				both[side][i-n] = o
			})
		}
		wait.Wait()
	}
	for i := n; i < end; i++ {
		r.report.add(r, i, both[0][i-n], both[1][i-n])
	}
}

// way is by what the call reaches the session: by CLI and API in turn, changed about in each pass.
func (r *replay) way(n int) string {
	if (n+r.pass)%2 == 0 {
		return byCLI
	}
	return byAPI
}

func (r *replay) at(c call) string { return filepath.Join(r.dir, c.dir) }

// without runs a call outside.
func (r *replay) without(ctx context.Context, n int) outcome {
	c := r.d.calls[n]
	switch {
	case c.stop != "":
		return r.stop(c.stop)
	case c.background != "":
		s := &server{ended: make(chan struct{})}
		s.cmd = r.outside.command(ctx, r.at(c), c.line, &s.out, &s.err)
		r.servers[c.background] = s
		go func() {
			r.outside.run(s.cmd)
			close(s.ended)
		}()
		return outcome{}
	}
	var out, errOut bytes.Buffer
	code, err := r.outside.run(r.outside.command(ctx, r.at(c), c.line, &out, &errOut))
	if err != nil {
		errOut.WriteString(err.Error())
	}
	return outcome{code: code, out: out.String(), err: errOut.String()}
}

// stop ends a server outside, and returns what it wrote.
func (r *replay) stop(name string) outcome {
	s := r.servers[name]
	if s == nil {
		return outcome{code: -1}
	}
	delete(r.servers, name)
	syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
	<-s.ended
	return outcome{out: s.out.String(), err: s.err.String()}
}

func (r *replay) stopAll() {
	for name := range r.servers {
		r.stop(name)
	}
}

// within runs a call in the session.
func (r *replay) within(ctx context.Context, n int) outcome {
	c := r.d.calls[n]
	named := func(name string) string { return r.session + "-" + name }
	switch {
	case c.stop != "":
		r.jail(ctx, "", "kill", named(c.stop))
		r.jail(ctx, "", "wait", named(c.stop))
		return r.jail(ctx, "", "logs", named(c.stop))
	case c.background != "":
		o := r.jail(ctx, c.dir, "session", "exec", "--background", "--id", named(c.background),
			r.session, "--", "bash", "-c", c.line)
		o.out = ""
		return o
	case r.way(n) == byCLI:
		return r.jail(ctx, c.dir, "session", "exec", r.session, "--", "bash", "-c", c.line)
	}
	var out, errOut bytes.Buffer
	res, err := r.w.api.Exec(ctx, r.session, message.ExecRequest{Tool: "bash",
		Args: []string{"-c", c.line}, Dir: r.at(c), Inherit: r.w.env}, nil, &out, &errOut,
		nil)
	if err != nil {
		fmt.Fprintln(&errOut, "error:", err)
	}
	if res.Error != nil {
		fmt.Fprintln(&errOut, "error:", res.Error)
	}
	return outcome{code: res.ExitCode, out: out.String(), err: errOut.String()}
}

// jail runs jail in a directory of the workspace.
func (r *replay) jail(ctx context.Context, dir string, args ...string) outcome {
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(ctx, filepath.Join(r.w.bin, "jail"), args...)
	// The same directory need not exist outside of the session.
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = r.dir, r.w.env, &out, &errOut
	if dir != "" {
		cmd.Args = append([]string{cmd.Args[0], "session", "exec", "--cwd", dir}, args[2:]...)
	}
	code, err := exitOf(cmd, cmd.Run())
	if err != nil {
		errOut.WriteString(err.Error())
	}
	return outcome{code: code, out: out.String(), err: errOut.String()}
}

// compareFiles compares all files of both sides after a call.
func (r *replay) compareFiles(ctx context.Context, n int) {
	var out, errOut bytes.Buffer
	code, err := r.outside.run(r.outside.command(ctx, r.dir, files, &out, &errOut))
	if err != nil {
		errOut.WriteString(err.Error())
	}
	o := r.jail(ctx, "", "session", "exec", r.session, "--", "bash", "-c", files)
	r.report.addFiles(r, n, outcome{code: code, out: out.String(), err: errOut.String()}, o)
}
