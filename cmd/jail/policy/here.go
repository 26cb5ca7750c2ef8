package policy

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/cmd/jail/internal/policies"
	"github.com/jail-sandbox/jail/cmd/jail/internal/terminal"
	"github.com/jail-sandbox/jail/jail/asuser"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/paths"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/profiles"
)

// buildProfile is the profile that --from-here includes by default.
const buildProfile = "build"

// cacheRoot is the directory in the jail for the caches that --from-here proposes.
const cacheRoot = "/var/cache/tool/"

// maxPrograms bounds the entries of one directory whose links --from-here follows.
const maxPrograms = 4096

// A surrounding is the proposal of --from-here for a directory: the mounts, caches and variables
// that its tools need and the included profile lacks.
type surrounding struct {
	Directory string            `json:"directory"`
	Mounts    []hereMount       `json:"mounts"`
	Caches    []hereCache       `json:"caches"`
	Env       map[string]string `json:"env"`
	// LeftOut has a sentence for each directory that is not proposed, with the reason.
	LeftOut []string `json:"left_out"`

	// home is the caller's home with links resolved. homes has it and the home of the account, each
	// also unresolved.
	home   string
	homes  []string
	have   policy.Mounts
	getenv func(string) string
}

type hereMount struct {
	Source string        `json:"source"`
	Target string        `json:"target"`
	Access policy.Rights `json:"access"`
	Why    string        `json:"why"`
}

type hereCache struct {
	Name     string `json:"name"`
	Target   string `json:"target"`
	Size     string `json:"size"`
	Variable string `json:"variable"`
}

// lookAround returns what the tools of dir need and base does not show. account is the home
// directory of the caller's account, or "" if unknown; $HOME may name another one.
func lookAround(env *cli.Env, dir string, base policy.Policy, account string) (*surrounding,
	error) {
	s := &surrounding{Directory: dir, Env: map[string]string{}, Mounts: []hereMount{},
		Caches: []hereCache{}, LeftOut: []string{}, have: base.Mounts, getenv: env.Getenv}
	for _, home := range []string{env.Getenv("HOME"), account} {
		if !filepath.IsAbs(home) {
			continue
		}
		all := forms(home)
		s.home = cmp.Or(s.home, all[len(all)-1])
		s.homes = append(s.homes, all...)
	}
	if s.home == "" {
		return nil, exit.Usage("set HOME to your home directory",
			"jail profile new --from-here: your home directory is not known, so that its keys "+
				"cannot be kept out of the profile")
	}
	for _, x := range forms(dir) {
		if x == "/" || s.holdsHome(x) {
			return nil, exit.Usage("go to the directory of a project",
				"jail profile new --from-here: %s holds your home directory", output.Printable(dir))
		}
	}
	s.toolchains()
	s.search(base)
	s.projects(ownDaemon(env.Config.Socket))
	return s, nil
}

// Needs returns a line for each mount and cache that the tools of dir need and the profile build
// lacks, as --from-here proposes them.
func Needs(env *cli.Env, dir string) ([]string, error) {
	_, base, err := policies.OpenAlone(env, buildProfile)
	if err != nil {
		return nil, err
	}
	s, err := lookAround(env, dir, base.Policy, asuser.Home(uint32(os.Geteuid())))
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, row := range s.rows() {
		lines = append(lines, fmt.Sprintf("%s %s (%s)", row[0], row[1], row[2]))
	}
	return lines, nil
}

// forms returns a path, and its target with links resolved if that differs.
func forms(path string) []string {
	all := []string{filepath.Clean(path)}
	if real, err := filepath.EvalSymlinks(path); err == nil && real != all[0] {
		all = append(all, real)
	}
	return all
}

func (s *surrounding) holdsHome(path string) bool {
	return slices.ContainsFunc(s.homes, func(home string) bool { return paths.Within(path, home) })
}

// inProject reports whether a path lies in the project's directory, with links resolved or not.
func (s *surrounding) inProject(path string) bool {
	return slices.ContainsFunc(forms(s.Directory), func(dir string) bool {
		return slices.ContainsFunc(forms(path), func(x string) bool { return paths.Within(dir, x) })
	})
}

// plain reports whether a name is printable, and so can be written into a profile unchanged.
func plain(name string) bool {
	return output.Printable(name) == name && !strings.Contains(name, "\t")
}

// program reports whether path is a regular file with an execute bit, after following links.
func program(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// holds returns the first of names in dir for which is returns true, or "" for none.
func holds(dir string, is func(string) bool, names ...string) string {
	for _, name := range names {
		if is(filepath.Join(dir, name)) {
			return name
		}
	}
	return ""
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// leaveOut records why a directory is not proposed, once.
func (s *surrounding) leaveOut(dir, why, bad string) {
	line := output.Printable(dir + " (" + why + "): " + bad)
	if !slices.Contains(s.LeftOut, line) {
		s.LeftOut = append(s.LeftOut, line)
	}
}

// toolchains proposes the toolchains that variables such as GOROOT name, if they look like one.
func (s *surrounding) toolchains() {
	at := func(variable, below string) string {
		if dir := s.getenv(variable); filepath.IsAbs(dir) {
			return filepath.Clean(dir)
		} else if below != "" {
			return filepath.Join(s.home, below)
		}
		return ""
	}
	for _, x := range []struct {
		variable, below string
		is              func(string) bool
		names           []string
	}{
		{"PYENV_ROOT", ".pyenv", isDirectory, []string{"versions"}},
		{"RUSTUP_HOME", ".rustup", isDirectory, []string{"toolchains"}},
		{"GOROOT", "", program, []string{"bin/go"}},
		{"JAVA_HOME", "", program, []string{"bin/java"}},
		{"VIRTUAL_ENV", "", program, []string{"bin/python", "bin/python3"}},
	} {
		dir := at(x.variable, x.below)
		if dir == "" || !exists(dir) {
			continue
		}
		if !s.visible(dir) && holds(dir, x.is, x.names...) == "" {
			s.leaveOut(dir, x.variable, "it has no "+strings.Join(x.names, " or "))
			continue
		}
		if s.propose(dir, policy.Read|policy.Exec, x.variable, true) ||
			s.visible(dir) && plain(dir) {
			s.Env[x.variable] = dir
		}
	}
}

// search proposes the toolchains of the programs on PATH, and sets the jail's PATH so that names
// mean the same programs as outside.
func (s *surrounding) search(base policy.Policy) {
	var path []string
	add := func(dir string) {
		if !slices.Contains(path, dir) {
			path = append(path, dir)
		}
	}
	for _, dir := range filepath.SplitList(s.getenv("PATH")) {
		dir = filepath.Clean(dir)
		if info, err := os.Stat(dir); !filepath.IsAbs(dir) || err != nil || !info.IsDir() {
			continue
		}
		if !s.visible(dir) {
			s.propose(s.prefix(dir), policy.Read|policy.Exec, "programs on your PATH", false)
		}
		if s.visible(dir) && plain(dir) {
			add(dir)
			s.follow(dir)
		}
	}
	for _, dir := range filepath.SplitList(base.Env.Set.Values["PATH"]) {
		add(dir)
	}
	s.Env["PATH"] = strings.Join(path, ":")
}

// projectFiles are names of files that occur at the top of projects and not of toolchains.
var projectFiles = []string{".git", ".hg", ".svn", ".env", "go.mod", "go.work", "Cargo.toml",
	"package.json", "pyproject.toml", "setup.py", "requirements.txt", "pom.xml", "build.gradle",
	"build.gradle.kts", "Makefile", "CMakeLists.txt", "configure", "meson.build"}

// prefix returns the toolchain directory that a directory of programs belongs to. It returns bin
// itself if the parent is shared or looks like no toolchain.
func (s *surrounding) prefix(bin string) string {
	up := filepath.Dir(bin)
	if name := filepath.Base(bin); name != "bin" && name != "sbin" || s.shared(up) ||
		holds(up, exists, "lib", "libexec", "pkg", "share", "pyvenv.cfg") == "" {
		return bin
	}
	return up
}

// shared reports whether a directory may hold more than one toolchain: packages or people put other
// things there, or it is a project, or holds projects.
func (s *surrounding) shared(dir string) bool {
	for _, x := range forms(dir) {
		switch {
		case x == "/opt" || s.holdsHome(x) || x == s.cargo() || x == s.gopath() ||
			slices.ContainsFunc(s.homes, func(home string) bool {
				return x == filepath.Join(home, ".local")
			}):
			return true
		// Conda and virtual environments have a file that marks them.
		case slices.Contains(s.homes, filepath.Dir(x)) &&
			holds(x, exists, "conda-meta", "pyvenv.cfg") == "":
			return true
		}
	}
	if holds(dir, exists, projectFiles...) != "" {
		return true
	}
	entries, err := os.ReadDir(dir)
	return err != nil || len(entries) > maxPrograms ||
		slices.ContainsFunc(entries, func(e os.DirEntry) bool {
			return exists(filepath.Join(dir, e.Name(), ".git"))
		})
}

// follow proposes the toolchains to which links in a directory of programs lead.
func (s *surrounding) follow(dir string) {
	// The included profile shows all of /usr.
	if paths.Within("/usr", dir) {
		return
	}
	// Links in the project may come from others. In the caller's active virtual environment, only
	// links to its Python are followed.
	project := s.inProject(dir)
	if project && dir != filepath.Join(s.getenv("VIRTUAL_ENV"), "bin") {
		return
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries[:min(len(entries), maxPrograms)] {
		if e.Type()&os.ModeSymlink == 0 || !plain(e.Name()) {
			continue
		}
		real, err := filepath.EvalSymlinks(filepath.Join(dir, e.Name()))
		if err != nil || s.visible(real) || !program(real) {
			continue
		}
		if project && !(isPython(e.Name()) && isPython(filepath.Base(real))) {
			continue
		}
		to := filepath.Dir(real)
		if !slices.Contains([]string{"bin", "sbin", "libexec"}, filepath.Base(to)) {
			s.leaveOut(to, "links in "+dir+" lead into it", "it is not called bin, sbin or libexec")
			continue
		}
		s.propose(s.prefix(to), policy.Read|policy.Exec,
			filepath.Join(dir, e.Name())+" is a link into it", false)
	}
}

func isPython(name string) bool {
	return strings.HasPrefix(name, "python") || strings.HasPrefix(name, "pypy")
}

func (s *surrounding) cargo() string {
	return cmp.Or(s.getenv("CARGO_HOME"), filepath.Join(s.home, ".cargo"))
}

func (s *surrounding) gopath() string {
	first, _, _ := strings.Cut(s.getenv("GOPATH"), ":")
	return cmp.Or(first, filepath.Join(s.home, "go"))
}

// ownDaemon reports whether the daemon with that socket belongs to this user, who is not root.
func ownDaemon(socket string) bool {
	info, err := os.Stat(socket)
	if os.Geteuid() == 0 || err != nil {
		return os.Geteuid() != 0
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}

// projects proposes what the project's files indicate: downloaded modules, read-only, and caches.
// Only a daemon of root has caches; own is set if the daemon is the user's.
func (s *surrounding) projects(own bool) {
	has := func(names ...string) bool {
		return slices.ContainsFunc(names, func(name string) bool {
			_, err := os.Stat(filepath.Join(s.Directory, name))
			return err == nil
		})
	}
	cache := func(name, size, variable, value string) {
		if own {
			return
		}
		s.Caches = append(s.Caches, hereCache{name, cacheRoot + name, size, variable})
		s.Env[variable] = value + cacheRoot + name
	}
	if has("go.mod", "go.work") {
		mods := cmp.Or(s.getenv("GOMODCACHE"), filepath.Join(s.gopath(), "pkg/mod"))
		why := "downloaded modules of Go"
		switch {
		case !exists(mods):
		case holds(mods, isDirectory, "cache/download") == "":
			s.leaveOut(mods, why, "it has no cache/download")
		case s.propose(mods, policy.Read, why, true):
			s.Env["GOMODCACHE"] = mods
		}
		cache("go-build", "2GiB", "GOCACHE", "")
	}
	if has("Cargo.toml") {
		for _, x := range [][]string{{"registry", "index", "cache"}, {"git", "db"}} {
			dir, why := filepath.Join(s.cargo(), x[0]), "downloaded crates"
			if !exists(dir) {
				continue
			}
			if holds(dir, exists, x[1:]...) == "" {
				s.leaveOut(dir, why, "it has no "+strings.Join(x[1:], " or "))
			} else if s.propose(dir, policy.Read, why, true) {
				s.Env["CARGO_HOME"], s.Env["CARGO_NET_OFFLINE"] = s.cargo(), "true"
			}
		}
		if s.Env["CARGO_HOME"] == "" {
			cache("cargo", "2GiB", "CARGO_HOME", "")
		}
	}
	if has("package.json") {
		cache("npm", "2GiB", "npm_config_cache", "")
	}
	if has("pyproject.toml", "setup.py", "requirements.txt") {
		cache("pip", "1GiB", "PIP_CACHE_DIR", "")
	}
	if has("pom.xml") {
		cache("maven", "2GiB", "MAVEN_ARGS", "-Dmaven.repo.local=")
	}
	if has("build.gradle", "build.gradle.kts") {
		cache("gradle", "2GiB", "GRADLE_USER_HOME", "")
	}
	if has("Makefile", "CMakeLists.txt", "configure", "meson.build") {
		for _, dir := range filepath.SplitList(s.Env["PATH"]) {
			if _, err := os.Stat(filepath.Join(dir, "ccache")); err == nil {
				cache("ccache", "2GiB", "CCACHE_DIR", "")
				break
			}
		}
	}
}

// visible reports whether the jail shows a path at the same path.
func (s *surrounding) visible(path string) bool {
	return paths.Within(s.Directory, path) || slices.ContainsFunc(s.have,
		func(m policy.Mount) bool { return m.Source != "" && paths.Within(m.Target, path) })
}

// propose adds a mount of dir at its own path, and reports whether it did. known is set if dir was
// recognised as a toolchain.
func (s *surrounding) propose(dir string, access policy.Rights, why string, known bool) bool {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil || s.visible(dir) || !isDirectory(real) {
		return false
	}
	if bad := s.unfit(dir, real, known); bad != "" {
		s.leaveOut(dir, why, bad)
		return false
	}
	s.Mounts = append(s.Mounts, hereMount{real, dir, access, why})
	s.have = append(slices.Clip(s.have), policy.Mount{Source: real, Target: dir, Access: access})
	return true
}

// credentials are files with keys that package managers keep.
var credentials = []string{"credentials", "credentials.toml", ".npmrc", "etc/npmrc", ".netrc",
	"settings.xml", "gradle.properties", ".env"}

// unfit returns why no profile should show a directory, or "".
func (s *surrounding) unfit(dir, real string, known bool) string {
	if !plain(dir) || !plain(real) {
		return "its name has a character that cannot be printed"
	}
	if strings.ContainsAny(dir, `*?[]{}\`) {
		return "its name has a character of patterns"
	}
	for _, x := range []string{dir, real} {
		if bad := s.private(x, known); bad != "" {
			return bad
		}
	}
	if name := holds(real, exists, credentials...); name != "" {
		return "it holds " + name
	}
	for _, m := range s.have {
		if m.Target != "" && m.Target != dir && paths.Within(dir, m.Target) ||
			m.Source == "" && m.Target != "" && paths.Within(m.Target, dir) {
			return "the profile has something else at " + m.Target
		}
	}
	for _, name := range []string{".", "bin", "sbin", "lib", "lib64", "libexec"} {
		sub, err := filepath.EvalSymlinks(filepath.Join(real, name))
		if err != nil || !isDirectory(sub) {
			continue
		}
		if err := profiles.TrustDirectory(sub); err != nil {
			return err.Error()
		}
	}
	return ""
}

// private returns why the location of a path forbids showing it, or "".
func (s *surrounding) private(x string, known bool) string {
	if x == "/" || s.holdsHome(x) {
		return "it holds your home directory"
	}
	for _, project := range forms(s.Directory) {
		if paths.Within(x, project) {
			return "it holds the directory of the project"
		}
	}
	for _, home := range s.homes {
		for _, secret := range paths.Secrets(home) {
			there := exists(secret)
			for _, form := range forms(secret) {
				if paths.Within(form, x) || there && paths.Within(x, form) {
					return "it shows " + output.Printable(secret)
				}
			}
		}
	}
	if system := paths.OfSystem(x); system != "" && !s.atHome(system, x) {
		return "no toolchain belongs below " + system
	}
	if base := filepath.Base(x); !known && base != "bin" && base != "sbin" &&
		slices.Contains(s.homes, filepath.Dir(x)) && holds(x, isDirectory, "bin") == "" {
		return "it lies directly below your home directory and has no bin"
	}
	return ""
}

// atHome reports whether a path below a system directory lies in a home of the caller.
func (s *surrounding) atHome(system, x string) bool {
	return paths.MayHoldHome(system) && slices.ContainsFunc(s.homes, func(home string) bool {
		info, err := os.Stat(home)
		if err != nil || !paths.Within(system, home) || !paths.Within(home, x) {
			return false
		}
		// $HOME may name a directory that is not the caller's.
		st, ok := info.Sys().(*syscall.Stat_t)
		return ok && int(st.Uid) == os.Geteuid() && (home != system || system == "/root")
	})
}

// edits returns the changes to a profile that make up the proposal.
func (s *surrounding) edits() (all []addition, err error) {
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		all = append(all, addition{Edit: syntax.Edit{Section: "env.set", Key: name,
			Value: syntax.Quote(s.Env[name])}})
	}
	for _, m := range s.Mounts {
		if m.Access&policy.Exec != 0 {
			all = append(all, addition{Edit: syntax.AddItem("tools", "native", m.Target+"/**")})
		}
	}
	for _, m := range s.Mounts {
		all = append(all, addition{syntax.AddMount(policy.Mount{Source: m.Source, Target: m.Target,
			Access: m.Access}), "Proposed by --from-here: " + m.Why + "."})
	}
	for _, c := range s.Caches {
		size, err := policy.Bytes.Parse(c.Size)
		if err != nil {
			return nil, err
		}
		all = append(all, addition{syntax.AddMount(policy.Mount{Target: c.Target, Name: c.Name,
			Access: policy.Cache, Size: size}), "Proposed by --from-here: " + c.Variable + "."})
	}
	return all, nil
}

// rows returns the access, path and reason of each mount and cache.
func (s *surrounding) rows() (all [][]string) {
	for _, m := range s.Mounts {
		all = append(all, []string{m.Access.String(), m.Target, m.Why})
	}
	for _, c := range s.Caches {
		all = append(all, []string{"cache", c.Target, c.Variable + ", " + c.Size})
	}
	return all
}

// print writes the proposal to w.
func (s *surrounding) print(w io.Writer) {
	fmt.Fprintf(w, "Beside what the included profile has, tools in %s need:\n",
		output.Printable(s.Directory))
	rows := s.rows()
	for _, row := range rows {
		row[0] = "  " + row[0]
	}
	if len(rows) == 0 {
		fmt.Fprintln(w, "  nothing")
	}
	output.Table(w, rows)
	for _, line := range s.LeftOut {
		fmt.Fprintln(w, "  left out: "+output.Printable(line))
	}
}

// confirm shows the proposal and asks once, unless --yes is given. The end of the input counts as
// no.
func (s *surrounding) confirm(env *cli.Env, f *newProfile) error {
	if f.yes {
		if !f.json {
			s.print(env.Stderr)
		}
		return nil
	}
	if env.Stdin == nil || !terminal.Is(env.Stdin) {
		return exit.Usage("--yes writes the profile without a question",
			"jail profile new --from-here: standard input is no terminal")
	}
	s.print(env.Stderr)
	return env.Confirm("written", "Write %s?", output.Printable(f.output))
}
