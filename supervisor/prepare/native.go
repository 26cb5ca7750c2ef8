package prepare

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/asuser"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/paths"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/runners/native"
	"github.com/jail-sandbox/jail/supervisor/mounts"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

const (
	// defaultPath is the PATH of programs if the policy sets none.
	defaultPath = "/usr/local/bin:/usr/bin:/bin"
	// maxProgram is the largest program that a request may name, in bytes: it is hashed.
	maxProgram = 1 << 30
	// maxSearched is how many directories of the caller's PATH are searched for a hint.
	maxSearched = 64
)

// findProgram finds the tool of the request, as findTool does if the policy grants no program of
// the host. If it grants some, a .wasm file or an allowed bundle command comes first, then a
// program by its path in the jail or on the jail's PATH, then another file as a module. With an
// image, or for an agent whose manifest names a program, only programs are searched.
func (f *finder) findProgram() (Tool, error) {
	name := f.req.Tool
	if f.image != nil || f.req.Agent != nil && f.req.Agent.Native {
		return f.native(name)
	}
	if len(f.policy.Policy().Tools.Native) == 0 || name == "" || strings.ContainsRune(name, 0) ||
		strings.HasSuffix(name, ".wasm") {
		return f.findTool(name)
	}
	c, err := f.p.o.Bundles.Find(name)
	if err == nil {
		if _, ok := f.permits(policy.Tool{Bundle: c.Bundle, Command: c.Name}); ok {
			return f.bundled(name)
		}
	}
	t, nativeErr := f.native(name)
	var e *problem.Error
	if nativeErr == nil || !errors.As(nativeErr, &e) || e.Code != problem.NotFound ||
		e.Hint != hintNoProgram {
		return t, nativeErr
	}
	// There is no such program. If the name is a module or a command, return the policy's error for
	// it.
	if err == nil {
		return f.bundled(name)
	}
	if strings.Contains(name, "/") && len(f.policy.Policy().Tools.Modules) > 0 {
		if m, err := f.moduleFile(name); err == nil {
			return m, nil
		}
	}
	doErr := f.caller.Do(func() error {
		e.Hint = f.hintOutside(t.Name)
		return nil
	})
	return t, errors.Join(nativeErr, doErr)
}

// native finds a program of the host by its path in the jail, through the mounts of the policy,
// with the caller's rights.
func (f *finder) native(name string) (t Tool, err error) {
	doErr := f.caller.Do(func() error {
		t, err = f.nativeIn(f.view(), name)
		return nil
	})
	return t, errors.Join(err, doErr)
}

func (f *finder) nativeIn(v *view, name string) (Tool, error) {
	at, err := f.search(v, name)
	at = v.workspace.inJail(at)
	t := Tool{Name: at, command: name, Native: at}
	if err != nil {
		return t, err
	}
	if d, ok := f.permitsProgram(v, at); !ok {
		denied := notAllowed("program "+at, d)
		if d.Layer != policy.CeilingLayer {
			denied.Hint = f.grantBeside("--native " + at)
			if _, err := v.find(at); errors.Is(err, fs.ErrNotExist) && isProgram(at) {
				denied.Hint = f.hintToShow(at)
			}
		}
		return t, denied
	}
	return t, f.takeProgram(&t, v)
}

// takeProgram checks that the kernel can start the program in the jail, and sets the digest.
func (f *finder) takeProgram(t *Tool, v *view) error {
	p, file, err := v.open(t.Native)
	if problem.Short(err) != nil {
		return err
	}
	if err != nil {
		return problem.New(problem.Refused, "program %s: %s", t.Native, problem.Describe(err)).
			WithHint("programs are looked at with your own rights")
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return problem.New(problem.Failed, "program %s: %w", t.Native, err)
	}
	switch {
	case !info.Mode().IsRegular():
		return problem.New(problem.Refused, "program %s is not a regular file", t.Native).
			WithHint("name a program")
	case info.Mode().Perm()&0o111 == 0:
		return problem.New(problem.Refused, "program %s is not executable", t.Native).
			WithHint("chmod +x makes a file a program")
	case info.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0:
		return problem.New(problem.Refused,
			"program %s is set-user-id or set-group-id, which counts for nothing in a jail",
			t.Native).
			WithHint("a program that needs the rights of others cannot do its work in a jail")
	case info.Size() > maxProgram:
		return problem.New(problem.Refused, "program %s is larger than %d MiB", t.Native,
			maxProgram>>20)
	}
	if err := v.mayRun(t.Native, p); err != nil {
		return err
	}
	if t.Sum, err = f.p.modules.digests.Of(file, info, maxProgram); err != nil {
		return problem.New(problem.Failed, "program %s: %w", t.Native, err)
	}
	return f.startable(v, t.Native, file)
}

// mayRun refuses a program in a mount that is not executable.
func (v *view) mayRun(name string, p place) error {
	if p.exec {
		return nil
	}
	if p.mount == policy.WorkspaceDir || p.mount == string(v.workspace) {
		return problem.New(problem.Refused,
			"program %s lies in the workspace, from which programs run only if policy lets all of "+
				"it run", name).
			WithHint("tools.native = [\"" + policy.WorkspaceDir + "/**\"] lets all of it run")
	}
	return problem.New(problem.Refused,
		"program %s lies in the mount %s, from which nothing may run", name, p.mount).
		WithHint("access = \"read+exec\" in that [[mount]]")
}

// startable checks that the interpreters and the loader that the kernel needs for a program are in
// the jail and may run.
func (f *finder) startable(v *view, name string, file *os.File) error {
	program, err := native.Read(file)
	for range native.MaxChain {
		switch {
		case errors.Is(err, native.ErrFormat):
			return problem.New(problem.Refused, "program %s cannot be executed: %v", name, err).
				WithHint("a script names its interpreter in its first line, as #!/bin/sh")
		case err != nil:
			return problem.New(problem.Failed, "program %s: %w", name, err)
		case program.Interpreter == "":
			return nil
		}
		at, next, openErr := v.open(program.Interpreter)
		if problem.Short(openErr) != nil {
			return openErr
		}
		if openErr != nil {
			missing := program.Interpreter
			if stray, ok := errors.AsType[*strayError](openErr); ok {
				missing += ", " + stray.Error()
			} else {
				missing += ", which is not in the jail"
			}
			hint := "this host has no " + program.Interpreter + ", either"
			if isProgram(program.Interpreter) && f.keeps(path.Dir(program.Interpreter)) {
				hint = program.Interpreter + " is a program of this host"
			} else if isProgram(program.Interpreter) {
				hint = "a [[mount]] of " + path.Dir(program.Interpreter) +
					" with access = \"read+exec\" shows it"
			}
			return problem.New(problem.NotFound, "program %s needs %s", name, missing).
				WithHint(hint)
		}
		defer next.Close()
		if err := v.mayRun(program.Interpreter, at); err != nil {
			return err
		}
		if !program.Script {
			return nil
		}
		d, ok := f.permitsProgram(v, program.Interpreter)
		if !ok {
			return notAllowed("program "+program.Interpreter+", which "+name+
				" names in its first line,", d)
		}
		name = program.Interpreter
		program, err = native.Read(next)
	}
	if program.Script {
		return problem.New(problem.Refused, "program %s: too many interpreters start each other",
			name)
	}
	return nil
}

// hintNoProgram is the hint for a program that is not in the jail. findProgram tells this error
// from others by the hint.
const hintNoProgram = "what a [[mount]] of the policy does not show is not in the jail; jail plan " +
	"shows what is"

// search returns the path in the jail of the program called name.
func (f *finder) search(v *view, name string) (string, error) {
	if strings.Contains(name, "/") {
		at := name
		if !path.IsAbs(at) {
			at = path.Join(f.cwd, at)
		}
		at = path.Clean(at)
		_, err := v.find(at)
		if problem.Short(err) != nil {
			return at, err
		}
		_, granted := f.permitsProgram(v, at)
		if err != nil && granted {
			at = v.workspace.inJail(at)
			if stray, ok := errors.AsType[*strayError](err); ok {
				return at, f.strayed(at, stray)
			}
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
				return at, problem.New(problem.NotFound,
					"program %s: there is no such file in the jail", at).
					WithHint(hintNoProgram)
			}
			return at, problem.New(problem.Refused, "program %s: %s", at, problem.Describe(err)).
				WithHint("programs are looked at with your own rights")
		}
		return at, nil
	}
	env, err := f.environ(Tool{}, netip.AddrPort{})
	if err != nil {
		return name, err
	}
	list := ""
	for _, e := range env {
		if value, ok := strings.CutPrefix(e, "PATH="); ok {
			list = value
		}
	}
	var strayed error
	for dir := range strings.SplitSeq(list, ":") {
		if !path.IsAbs(dir) {
			// A program must not depend on the working directory.
			continue
		}
		at := path.Join(dir, name)
		p, err := v.find(at)
		if problem.Short(err) != nil {
			return name, err
		}
		if stray, ok := errors.AsType[*strayError](err); ok && strayed == nil {
			strayed = f.strayed(at, stray)
		}
		if err != nil {
			continue
		}
		var info fs.FileInfo
		p.in.with(func() { info, err = os.Stat(p.host) })
		if err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 {
			return at, nil
		}
	}
	if f.image != nil {
		return name, problem.New(problem.NotFound, "image %s has no program %q on its PATH, %s",
			f.image.policyName, name, list).
			WithHint("name a program of the image by its path, or another image")
	}
	if strayed != nil {
		return name, strayed
	}
	return name, problem.New(problem.NotFound,
		"no tool is called %q: it is neither a command of a bundle nor a program on the jail's "+
			"PATH, %s", name, list).
		WithHint(hintNoProgram)
}

// strayed returns the error for a program that is a link to a path outside of the jail.
func (f *finder) strayed(at string, link *strayError) error {
	return problem.New(problem.NotFound, "program %s is %v", at, link).
		WithHint(f.hintOutside(link.to))
}

// hintOutside returns a hint for showing a program of the host in the jail. name is a path, or is
// looked up on the caller's PATH.
func (f *finder) hintOutside(name string) string {
	if path.IsAbs(name) {
		if isProgram(name) {
			return f.hintToShow(name)
		}
		return hintNoProgram
	}
	if at := f.outside(name); at != "" {
		return f.hintToShow(at)
	}
	return hintNoProgram
}

// outside returns the path of a program on the caller's own PATH, or "".
func (f *finder) outside(name string) string {
	if strings.Contains(name, "/") {
		return ""
	}
	list, seen := f.inherited("PATH"), 0
	for dir := range strings.SplitSeq(list, ":") {
		if seen++; seen > maxSearched {
			break
		}
		if at := path.Join(dir, name); path.IsAbs(dir) && isProgram(at) {
			return at
		}
	}
	return ""
}

// inherited returns the value of a variable of the caller, or "" if it is not set.
func (f *finder) inherited(name string) (value string) {
	for _, v := range f.req.Inherit {
		if x, ok := strings.CutPrefix(v, name+"="); ok {
			value = x
		}
	}
	return value
}

// isProgram reports whether at is a regular file that the caller may execute. It must be called
// with the caller's rights.
func isProgram(at string) bool {
	// The values of Linux, for which package syscall has no names: faccessat2(2).
	const atCurrent, atEffective, mayExecute = -100, 0x200, 1
	info, err := os.Stat(at)
	return err == nil && info.Mode().IsRegular() &&
		syscall.Faccessat(atCurrent, at, mayExecute, atEffective) == nil
}

// keeps reports whether a hint must not propose to mount a directory: it belongs to the system's
// configuration or state, is among or above keys of the caller, or holds the workspace.
func (f *finder) keeps(dir string) bool {
	var homes []string
	for _, home := range []string{f.caller.Home, f.inherited("HOME")} {
		if path.IsAbs(home) {
			homes = append(homes, forms(home)...)
		}
	}
	for _, x := range forms(dir) {
		atHome := slices.ContainsFunc(homes, func(home string) bool {
			return paths.MayHoldHome(paths.OfSystem(home)) && paths.Within(home, x)
		})
		if paths.OfSystem(x) != "" && !atHome && !paths.Within("/var/tmp", x) {
			return true
		}
		for _, home := range homes {
			for _, secret := range paths.Secrets(home) {
				_, err := os.Lstat(secret)
				if slices.ContainsFunc(forms(secret), func(form string) bool {
					return paths.Within(form, x) || err == nil && paths.Within(x, form)
				}) {
					return true
				}
			}
		}
		if f.req.Dir != "" && slices.ContainsFunc(forms(f.req.Dir),
			func(project string) bool { return paths.Within(x, project) }) {
			return true
		}
	}
	return false
}

// forms returns a path, and its target with links resolved if that differs.
func forms(name string) []string {
	all := []string{path.Clean(name)}
	if real, err := filepath.EvalSymlinks(name); err == nil && real != all[0] {
		all = append(all, real)
	}
	return all
}

// hintToShow returns a hint for mounting the directory of a program, or the program alone if the
// directory holds the caller's home. If keeps forbids the mount, the hint proposes none. It must be
// called with the caller's rights.
func (f *finder) hintToShow(at string) string {
	show, native := path.Dir(at), path.Dir(at)+"/**"
	if f.caller.Home != "" && paths.Within(show, f.caller.Home) || show == "/" {
		show, native = at, at
	}
	if f.keeps(show) {
		return at + " is a program of this host that the jail does not show"
	}
	return fmt.Sprintf("%s is a program of this host that the jail does not show: a [[mount]] with "+
		"source = %q, target = %[2]q, access = \"read+exec\", and tools.native = [%q] do; "+
		"jail profile new --from-here writes a profile that shows all of your PATH", at, show,
		native)
}

// environ returns the whole environment of a tool. If the policy grants programs of the host, or
// there is an image, it has a PATH and the variables of the image, and for a program also those for
// processors, the proxy and certificates, unless the policy or the caller sets them.
func (f *finder) environ(t Tool, relay netip.AddrPort) ([]string, error) {
	env, err := environ(f.policy, f.req, f.target(t).inJail(f.cwd))
	// The module's only directory has no name that PWD could hold.
	if t.layout == runners.LayoutWorking {
		env = slices.DeleteFunc(env, func(e string) bool { return strings.HasPrefix(e, "PWD=") })
	}
	if err != nil || len(f.policy.Policy().Tools.Native) == 0 && f.image == nil {
		return env, err
	}
	add := func(name, value string) {
		has := func(e string) bool { return strings.HasPrefix(e, name+"=") }
		if !slices.ContainsFunc(env, has) {
			env = append(env, name+"="+value)
		}
	}
	if n := processors(f.policy.Policy().Limits.CPUs); t.Native != "" && n < runtime.NumCPU() {
		for _, name := range processorVariables {
			add(name, strconv.Itoa(n))
		}
	}
	if len(f.policy.Policy().Fetch.Allow) > 0 && t.Native != "" {
		proxy := "http://" + relay.String()
		for _, name := range []string{"http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY",
			"HTTPS_PROXY", "ALL_PROXY"} {
			add(name, proxy)
		}
		for _, name := range []string{"no_proxy", "NO_PROXY"} {
			add(name, "localhost,127.0.0.1,::1")
		}
		for _, name := range certificateVariables {
			add(name, jail.AuthorityFile)
		}
	}
	for _, v := range f.image.env() {
		name, value, _ := strings.Cut(v, "=")
		add(name, value)
	}
	add("PATH", defaultPath)
	return env, nil
}

// processorVariables limit the threads of nproc, OpenMP and Go, which count the processors of the
// host and ignore the cgroup's limit.
var processorVariables = []string{"OMP_THREAD_LIMIT", "GOMAXPROCS"}

// processors returns how many processors a limit can keep busy, rounded up. limit is in thousandths
// of one.
func processors(limit int64) int {
	if limit == policy.Unlimited {
		return math.MaxInt
	}
	return int(max((limit+999)/1000, 1))
}

// certificateVariables name the file of trusted certificates for OpenSSL, GnuTLS and Go, curl,
// Python's requests and pip, Node, git and cargo.
var certificateVariables = []string{"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE",
	"PIP_CERT", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO", "CARGO_HTTP_CAINFO"}

// NoExec returns the error for a program whose execve(2) failed with why although its check had
// passed.
func NoExec(name string, why syscall.Errno) *problem.Error {
	switch why {
	case syscall.E2BIG:
		return problem.New(problem.Usage,
			"program %s: its arguments and its environment are too long for the kernel", name).
			WithHint("one may have 128 KiB, all together a quarter of the stack that ulimit -s " +
				"names; pass what is longer in a file or on standard input")
	case syscall.EAGAIN, syscall.ENOMEM:
		return problem.New(problem.Busy, "program %s could not be started: %w", name, why).
			WithHint("raise the limits pids or memory, or try again when other runs have ended")
	case syscall.ENOENT:
		return problem.New(problem.NotFound,
			"program %s: it or its interpreter is not there any more", name).
			WithHint("something changed or removed it while the run began: try again")
	}
	return problem.New(problem.Refused, "program %s cannot be executed: %w", name, why).
		WithHint("it is not what it was when it was checked, or its file system allows no " +
			"programs; try again")
}

// A view resolves paths of a jail through the mounts of its policy, before the jail exists. It
// opens files of the host.
type view struct {
	mounts    []viewed
	workspace target
}

// viewed is a mount of a view.
type viewed struct {
	target, source string
	exec           bool
	// image is set for the root of an image, which only the daemon may enter.
	image bool
	// named is set if the policy names the source, which the caller may have written.
	named bool
}

// with calls f with the rights for the mount: the caller's, which the current thread has, or for an
// image the daemon's, which a new goroutine has.
func (x viewed) with(f func()) {
	if !x.image {
		f()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

// A place is the file of the host at a path of the jail.
type place struct {
	host  string
	mount string // its target
	exec  bool
	in    viewed
}

func (f *finder) view() *view {
	v, pol := &view{workspace: targetOf(f.policy, f.source)}, f.policy.Policy()
	if f.source != nil {
		m := viewed{target: policy.WorkspaceDir, source: fdPath(f.source),
			exec: jail.AllMayRun(pol, policy.WorkspaceDir)}
		v.mounts = append(v.mounts, m)
		// Patterns of the policy always name the first one.
		if m.target = string(v.workspace); m.target != policy.WorkspaceDir {
			v.mounts = append(v.mounts, m)
		}
	}
	if f.image != nil {
		v.mounts = append(v.mounts, viewed{target: "/", source: f.image.held.Root, exec: true, image: true})
	}
	for _, m := range pol.Mounts {
		if f.image != nil && jail.OfHost(m) {
			continue
		}
		if m.Source != "" && m.Target != "" {
			v.mounts = append(v.mounts, viewed{target: m.Target, source: m.Source,
				exec: m.Access&policy.Exec != 0, named: true})
		}
	}
	return v
}

// at returns the innermost mount that holds a path, and the path relative to the mount. ok is false
// if no mount holds it.
func (v *view) at(p string) (m viewed, rel string, ok bool) {
	for _, x := range v.mounts {
		below, holds := paths.Rel(x.target, p)
		if holds && (!ok || len(x.target) > len(m.target)) {
			m, rel, ok = x, below, true
		}
	}
	return m, rel, ok
}

// leads reports whether a mount lies at or below a path.
func (v *view) leads(p string) bool {
	return slices.ContainsFunc(v.mounts, func(x viewed) bool { return paths.Within(p, x.target) })
}

const maxLinks = 40 // as the kernel

// A strayError is returned for a link that leads to a path which the jail does not show.
type strayError struct{ to string }

func (e *strayError) Error() string { return "a link to " + e.to + ", which is not in the jail" }
func (e *strayError) Unwrap() error { return fs.ErrNotExist }

// find resolves an absolute path of the jail. It follows links as the kernel would in the jail.
func (v *view) find(p string) (place, error) {
	fail := func(err error) (place, error) {
		return place{}, &fs.PathError{Op: "open", Path: p, Err: err}
	}
	current, rest, found, links := "/", strings.Split(p, "/"), place{}, 0
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		if name == "" || name == "." {
			continue
		}
		if current = path.Join(current, name); name == ".." {
			continue
		}
		m, rel, ok := v.at(current)
		if !ok {
			if found = (place{}); !v.leads(current) && links > 0 {
				return fail(&strayError{path.Join(append([]string{current}, rest...)...)})
			} else if !v.leads(current) {
				return fail(fs.ErrNotExist)
			}
			continue
		}
		look := os.Lstat
		if rel == "" {
			// A mount shows the target of its source.
			look = os.Stat
		}
		found = place{path.Join(m.source, rel), m.target, m.exec, m}
		if rel == "" {
			found.host = m.source
		}
		var info fs.FileInfo
		var to string
		var err error
		m.with(func() {
			if m.named {
				err = asuser.CheckNamed(m.source)
			}
			if err != nil {
				return
			}
			if info, err = look(found.host); err == nil && info.Mode()&os.ModeSymlink != 0 {
				to, err = os.Readlink(found.host)
			}
		})
		if err != nil {
			return fail(causeOf(err))
		}
		if info.Mode()&os.ModeSymlink == 0 {
			continue
		}
		if links++; links > maxLinks {
			return fail(syscall.ELOOP)
		}
		if current = path.Dir(current); path.IsAbs(to) {
			current = "/"
		}
		rest = append(strings.Split(to, "/"), rest...)
	}
	if found.host == "" {
		return fail(syscall.EISDIR)
	}
	return found, nil
}

// open opens the file at a path of the jail for reading. It does not block on a FIFO or device.
func (v *view) open(p string) (place, *os.File, error) {
	at, err := v.find(p)
	if err != nil {
		return at, nil, err
	}
	var f *os.File
	at.in.with(func() {
		if at.in.named {
			f, err = asuser.Named(at.host)
			return
		}
		f, err = os.OpenFile(at.host, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	})
	if err != nil {
		return at, nil, &fs.PathError{Op: "open", Path: p, Err: causeOf(err)}
	}
	return at, f, nil
}

func causeOf(err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	return err
}

// Bounds of what the patterns in tools.native may match.
const (
	maxPrograms = 2048
	maxLooked   = 200_000 // names
)

// programs returns the paths that tools.native lets run in mounts that are not executable as a
// whole. Patterns are expanded, since Landlock rules take files and directories. It must be called
// with the caller's rights.
func (v *view) programs(pol policy.Policy) ([]string, error) {
	var roots []string
	for _, m := range v.mounts {
		if m.exec && !m.image && !jail.AllMayRun(pol, v.workspace.inPolicy(m.target)) {
			roots = append(roots, m.target)
		}
	}
	if len(roots) == 0 {
		return nil, nil
	}
	s := search{view: v, roots: roots}
	for _, g := range pol.Tools.Native.Normal() {
		text := g.String()
		if dir, ok := strings.CutSuffix(text, "/**"); ok && !strings.Contains(dir, "*") {
			// The whole directory is mounted.
			s.take(dir)
			continue
		}
		fixed, _, _ := strings.Cut(text, "*")
		if g.Literal() {
			s.take(text)
		} else if err := s.walk(path.Dir(fixed+"x"), g); err != nil {
			return nil, err
		}
	}
	for _, l := range jail.Loaders {
		s.take(l)
	}
	slices.Sort(s.found)
	return slices.Compact(s.found), nil
}

// A search collects the programs that patterns match.
type search struct {
	view   *view
	roots  []string // mounts
	found  []string
	looked int
}

// take adds a path if it exists and its mount may have programs.
func (s *search) take(p string) {
	at, err := s.view.find(p)
	if err != nil || !at.exec {
		return
	}
	if _, err := os.Stat(at.host); err == nil {
		s.found = append(s.found, p)
	}
}

// walk adds the files below dir that match a pattern. It does not follow links to directories.
func (s *search) walk(dir string, g policy.Glob) error {
	var below []string
	if at, err := s.view.find(dir); err == nil && at.exec {
		below = []string{dir}
	} else {
		// dir only leads to mounts.
		for _, root := range s.roots {
			if paths.Within(dir, root) {
				below = append(below, root)
			}
		}
	}
	// the most path segments of a match; 0 means no bound
	deepest := 0
	if !strings.Contains(g.String(), "**") {
		deepest = strings.Count(g.String(), "/")
	}
	for _, start := range below {
		at, err := s.view.find(start)
		if err != nil {
			continue
		}
		err = fs.WalkDir(os.DirFS(at.host), ".", func(rel string, entry fs.DirEntry,
			err error) error {
			name := path.Join(start, rel)
			if s.looked++; s.looked > maxLooked || len(s.found) > maxPrograms {
				return problem.New(problem.Refused,
					"tools.native: to find out what %q stands for takes too long, or it stands "+
						"for more than %d programs", g, maxPrograms).
					WithHint("name directories, as /usr/bin/**, or programs")
			}
			// A file that the caller may not see does not run.
			if err != nil {
				return skipDir(entry)
			}
			if !entry.IsDir() && g.Match(name) {
				s.take(name)
			}
			if entry.IsDir() && deepest > 0 && strings.Count(name, "/") >= deepest {
				return fs.SkipDir
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func skipDir(entry fs.DirEntry) error {
	if entry != nil && entry.IsDir() {
		return fs.SkipDir
	}
	return nil
}

// programs returns the paths in the jail of the programs that run by name, and their inodes on the
// host.
func (f *finder) programs() (found []string, inodes []mounts.Inode, err error) {
	doErr := f.caller.Do(func() error {
		v := f.view()
		if found, err = v.programs(f.policy.Policy()); err != nil {
			return nil
		}
		for i, p := range found {
			found[i] = v.workspace.inJail(p)
			// A program removed meanwhile has the zero inode.
			at := mounts.Inode{}
			if place, findErr := v.find(p); findErr == nil {
				if info, statErr := os.Stat(place.host); statErr == nil {
					at = mounts.InodeOf(info)
				}
			}
			inodes = append(inodes, at)
		}
		return nil
	})
	return found, inodes, errors.Join(err, doErr)
}
