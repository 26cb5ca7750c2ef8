package policy

import (
	"bufio"
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
	"github.com/jail-sandbox/jail/cmd/jail/internal/terminal"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/paths"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/profiles"
)

// cacheRoot is where caches that --from-here proposes are in the jail.
const cacheRoot = "/var/cache/tool/"

// maxPrograms is how many programs of one directory --from-here follows to where they lead.
const maxPrograms = 4096

// A surrounding is what --from-here proposes for a directory: what the caller's tools need beside
// what the profile that is included shows.
type surrounding struct {
	Directory string        `json:"directory"`
	Mounts    []hereMount   `json:"mounts"`
	Caches    []hereCache   `json:"caches"`
	Env       hereVariables `json:"env"`
	// LeftOut holds a sentence for each directory that no profile should show.
	LeftOut []string `json:"left_out"`

	home   string
	have   policy.Mounts
	getenv func(string) string
}

type hereVariables map[string]string

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

// lookAround finds out what the tools of dir need beside what base shows.
func lookAround(env *cli.Env, dir string, base policy.Policy) (*surrounding, error) {
	s := &surrounding{Directory: dir, Env: hereVariables{}, Mounts: []hereMount{},
		Caches: []hereCache{}, LeftOut: []string{}, home: env.Getenv("HOME"), have: base.Mounts,
		getenv: env.Getenv}
	if resolved, err := filepath.EvalSymlinks(s.home); err == nil {
		s.home = resolved
	}
	if dir == "/" || s.home != "" && paths.Within(dir, s.home) {
		return nil, exit.Usage("go to the directory of a project",
			"jail profile new --from-here: %s holds your home directory", output.Printable(dir))
	}
	s.toolchains()
	s.search(base)
	s.projects(ownDaemon(env.Config.Socket))
	return s, nil
}

// toolchains proposes those that variables name.
func (s *surrounding) toolchains() {
	at := func(variable, below string) string {
		if dir := s.getenv(variable); filepath.IsAbs(dir) {
			return filepath.Clean(dir)
		} else if below != "" && s.home != "" {
			return filepath.Join(s.home, below)
		}
		return ""
	}
	for _, x := range []struct{ variable, below string }{{"PYENV_ROOT", ".pyenv"},
		{"RUSTUP_HOME", ".rustup"}, {"GOROOT", ""}, {"JAVA_HOME", ""}, {"VIRTUAL_ENV", ""}} {
		dir := at(x.variable, x.below)
		if dir == "" {
			continue
		}
		if s.propose(dir, policy.Read|policy.Exec, x.variable) || s.visible(dir) {
			s.Env[x.variable] = dir
		}
	}
}

// search proposes the toolchains of the programs on PATH, and makes the jail's PATH from it, so that
// a name stands for the same program in a jail.
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
			s.propose(s.prefix(dir), policy.Read|policy.Exec, "programs on your PATH")
		}
		if s.visible(dir) {
			add(dir)
			s.follow(dir)
		}
	}
	for _, dir := range filepath.SplitList(base.Env.Set.Values["PATH"]) {
		add(dir)
	}
	s.Env["PATH"] = strings.Join(path, ":")
}

// prefix returns the toolchain that a directory of programs belongs to, or the directory alone where
// it is shared by many or looks like none.
func (s *surrounding) prefix(bin string) string {
	up := filepath.Dir(bin)
	if name := filepath.Base(bin); name != "bin" && name != "sbin" ||
		slices.Contains([]string{s.home, filepath.Join(s.home, ".local"), s.cargo(),
			s.gopath()}, up) {
		return bin
	}
	if _, err := os.Lstat(filepath.Join(up, ".git")); err == nil {
		return bin
	}
	for _, part := range []string{"lib", "libexec", "pkg", "share", "pyvenv.cfg"} {
		if _, err := os.Stat(filepath.Join(up, part)); err == nil {
			return up
		}
	}
	return bin
}

// follow proposes the toolchains that links in a proposed directory of programs lead to.
func (s *surrounding) follow(dir string) {
	// What the included profile shows is whole. Links of the project may be somebody else's; those
	// of the virtual environment that the caller has activated lead to its Python.
	if paths.Within("/usr", dir) || paths.Within(s.Directory, dir) &&
		dir != filepath.Join(s.getenv("VIRTUAL_ENV"), "bin") {
		return
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries[:min(len(entries), maxPrograms)] {
		if e.Type()&os.ModeSymlink == 0 {
			continue
		}
		real, err := filepath.EvalSymlinks(filepath.Join(dir, e.Name()))
		if err != nil || s.visible(real) {
			continue
		}
		s.propose(s.prefix(filepath.Dir(real)), policy.Read|policy.Exec,
			filepath.Join(dir, e.Name())+" is a link into it")
	}
}

func (s *surrounding) cargo() string {
	return cmp.Or(s.getenv("CARGO_HOME"), filepath.Join(s.home, ".cargo"))
}

func (s *surrounding) gopath() string {
	first, _, _ := strings.Cut(s.getenv("GOPATH"), ":")
	return cmp.Or(first, filepath.Join(s.home, "go"))
}

// ownDaemon reports whether the daemon with that socket is an ordinary user's own.
func ownDaemon(socket string) bool {
	info, err := os.Stat(socket)
	if os.Geteuid() == 0 || err != nil {
		return os.Geteuid() != 0
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}

// projects proposes what the files of the project ask for: downloaded modules to read, and caches,
// which only the daemon of root has.
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
		if s.propose(mods, policy.Read, "downloaded modules of Go") {
			s.Env["GOMODCACHE"] = mods
		}
		cache("go-build", "2GiB", "GOCACHE", "")
	}
	if has("Cargo.toml") {
		for _, name := range []string{"registry", "git"} {
			if dir := filepath.Join(s.cargo(), name); s.propose(dir, policy.Read,
				"downloaded crates") {
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

// visible reports whether the jail shows a path at its own name.
func (s *surrounding) visible(path string) bool {
	return paths.Within(s.Directory, path) || slices.ContainsFunc(s.have,
		func(m policy.Mount) bool { return m.Source != "" && paths.Within(m.Target, path) })
}

// propose adds a mount of dir at its own place, and reports whether it did.
func (s *surrounding) propose(dir string, access policy.Rights, why string) bool {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil || s.visible(dir) {
		return false
	}
	if info, err := os.Stat(real); err != nil || !info.IsDir() {
		return false
	}
	if bad := s.unfit(dir, real); bad != "" {
		bad = output.Printable(dir) + " (" + why + "): " + bad
		if !slices.Contains(s.LeftOut, bad) {
			s.LeftOut = append(s.LeftOut, bad)
		}
		return false
	}
	s.Mounts = append(s.Mounts, hereMount{real, dir, access, why})
	s.have = append(slices.Clip(s.have), policy.Mount{Source: real, Target: dir, Access: access})
	return true
}

// secrets are files and directories of a home that hold keys, or name what runs.
var secrets = []string{".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".netrc", ".npmrc",
	".pypirc", ".git-credentials", ".config/gcloud", ".config/gh", ".config/git", ".mozilla",
	".password-store", ".local/share/keyrings", ".cargo/credentials", ".cargo/credentials.toml",
	".m2/settings.xml", ".m2/settings-security.xml", ".gradle/gradle.properties"}

// credentials are the names of files of package managers that hold keys.
var credentials = []string{"credentials", "credentials.toml", ".npmrc", "etc/npmrc", ".netrc",
	"settings.xml", "gradle.properties"}

// unfit says why no profile should show a directory, "" for one that it may show.
func (s *surrounding) unfit(dir, real string) string {
	if strings.ContainsAny(dir, `*?[]{}\`) {
		return "its name has a character of patterns"
	}
	for _, x := range []string{dir, real} {
		if x == "/" || s.home != "" && paths.Within(x, s.home) {
			return "it holds your home directory"
		}
		if paths.Within(x, s.Directory) {
			return "it holds the directory of the project"
		}
		for _, name := range secrets {
			secret := filepath.Join(s.home, name)
			_, err := os.Lstat(secret)
			if paths.Within(secret, x) || err == nil && paths.Within(x, secret) {
				return "it shows " + output.Printable(secret)
			}
		}
	}
	for _, name := range credentials {
		if _, err := os.Lstat(filepath.Join(real, name)); err == nil {
			return "it holds " + name
		}
	}
	for _, m := range s.have {
		if m.Target != "" && m.Target != dir && paths.Within(dir, m.Target) ||
			m.Source == "" && m.Target != "" && paths.Within(m.Target, dir) {
			return "the profile has something else at " + m.Target
		}
	}
	if err := profiles.TrustDirectory(real); err != nil {
		return err.Error()
	}
	return ""
}

// edits are the changes to a profile that make the proposal.
func (s *surrounding) edits() (all []addition, err error) {
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		all = append(all, addition{Edit: syntax.Edit{Section: "env.set", Key: name,
			Value: syntax.Quote(s.Env[name])}})
	}
	for _, m := range s.Mounts {
		if m.Access&policy.Exec != 0 {
			all = append(all, addition{Edit: syntax.AddItem("tools", "native",
				m.Target+"/**")})
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

// print shows the proposal.
func (s *surrounding) print(w io.Writer) error {
	fmt.Fprintf(w, "Beside what the included profile has, tools in %s need:\n",
		output.Printable(s.Directory))
	var rows [][]string
	for _, m := range s.Mounts {
		rows = append(rows, []string{"  " + m.Access.String(), m.Target, m.Why})
	}
	for _, c := range s.Caches {
		rows = append(rows, []string{"  cache", c.Target, c.Variable + ", " + c.Size})
	}
	if len(rows) == 0 {
		fmt.Fprintln(w, "  nothing")
	}
	if err := output.Table(w, rows); err != nil {
		return err
	}
	for _, line := range s.LeftOut {
		fmt.Fprintln(w, "  left out: "+output.Printable(line))
	}
	return nil
}

// confirm shows the proposal and asks once. The end of the input counts as no.
func (s *surrounding) confirm(env *cli.Env, f *newProfile) error {
	if f.yes {
		if f.json {
			return nil
		}
		return s.print(env.Stderr)
	}
	if env.Stdin == nil || !terminal.Is(env.Stdin) {
		return exit.Usage("--yes writes the profile without a question",
			"jail profile new --from-here: standard input is no terminal")
	}
	if err := s.print(env.Stderr); err != nil {
		return err
	}
	fmt.Fprintf(env.Stderr, "Write %s? [y,n] ", output.Printable(f.output))
	line, err := bufio.NewReader(env.Stdin).ReadString('\n')
	if answer := strings.ToLower(strings.TrimSpace(line)); answer == "y" || answer == "yes" {
		return nil
	}
	if err != nil {
		fmt.Fprintln(env.Stderr)
	}
	fmt.Fprintln(env.Stderr, "nothing was written")
	return exit.No
}

// nameOf makes the name of a profile of that of a directory.
func nameOf(dir string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '-'
	}, strings.ToLower(filepath.Base(dir)))
	if name = strings.Trim(name, "-_"); syntax.CheckName(name) != nil {
		return "here"
	}
	return name
}
