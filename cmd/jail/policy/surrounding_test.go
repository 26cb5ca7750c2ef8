package policy

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/syntax"
)

// A made is a made-up host: a home, the directory of a project, and what is beside them.
type made struct {
	t   *testing.T
	top string
	env []string
}

// makeUp writes files; a name that ends in "*" is a program, "LINK -> TARGET" a link to a path
// below the top, or to a relative one. home and work are made in any case.
func makeUp(t *testing.T, files ...string) *made {
	t.Helper()
	top, err := os.MkdirTemp("/var/tmp", "jail-made-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(top); err != nil {
			t.Error(err)
		}
	})
	m := &made{t: t, top: top}
	for _, name := range append([]string{"home/.x", "work/.x"}, files...) {
		name, target, link := strings.Cut(name, " -> ")
		mode := os.FileMode(0o644)
		if strings.HasSuffix(name, "*") {
			mode = 0o755
		}
		at := m.at(strings.TrimSuffix(name, "*"))
		err := os.MkdirAll(filepath.Dir(at), 0o755)
		if err == nil && link {
			err = os.Symlink(m.at(target), at)
		} else if err == nil {
			err = os.WriteFile(at, nil, mode)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	m.env = []string{"HOME=" + m.at("home")}
	return m
}

func (m *made) at(name string) string { return filepath.Join(m.top, name) }

// look returns the proposal for the project, and the mounts below the top.
func (m *made) look(account string, env ...string) (*surrounding, []string) {
	m.t.Helper()
	s, err := lookAround(&cli.Env{Environ: slices.Concat(m.env, env)}, m.at("work"),
		policy.Policy{}, account)
	if err != nil {
		m.t.Fatal(err)
	}
	var mounts []string
	for _, x := range s.Mounts {
		mounts = append(mounts, strings.TrimPrefix(x.Target, m.top+"/"))
	}
	return s, mounts
}

// wants compares the mounts and looks for a part of each sentence in what was left out.
func (m *made) wants(s *surrounding, mounts, want []string, out ...string) {
	m.t.Helper()
	if !slices.Equal(mounts, want) {
		m.t.Errorf("mounts %q, want %q; left out %q", mounts, want, s.LeftOut)
	}
	for _, part := range out {
		if !strings.Contains(strings.Join(s.LeftOut, "\n"), part) {
			m.t.Errorf("left out %q, want %q", s.LeftOut, part)
		}
	}
}

// No name of a file writes a line into a profile.
func TestNamesWriteNoLines(t *testing.T) {
	const evil = "x\n[[mount]]\nsource = \"\"\n#"
	m := makeUp(t, "home/bin/"+evil+" -> home/sdk/bin/tool", "home/sdk/bin/tool*",
		"home/dir"+evil+"/bin/tool*")
	s, mounts := m.look("", "PATH="+m.at("home/bin")+":"+m.at("home/dir"+evil+"/bin"))
	m.wants(s, mounts, []string{"home/bin"}, "cannot be printed")
	if path := s.Env["PATH"]; path != m.at("home/bin") {
		t.Errorf("PATH %q", path)
	}
	// Nor does a reason or a path of an edit.
	add := addition{syntax.AddMount(policy.Mount{Source: "/a\"\n", Target: "/b\n",
		Access: policy.Read}), evil}
	text, err := add.apply(nil)
	if err != nil || strings.Count(string(text), "[[mount]]\nsource") != 1 ||
		strings.Count(string(text), "\n") != 6 {
		t.Errorf("%v: %s", err, text)
	}
}

// $HOME may name another directory than the home of the account: both are kept out.
func TestBothHomes(t *testing.T) {
	m := makeUp(t, "account/.ssh/bin/tool*", "vault/bin/tool*", "home/.aws -> vault",
		"account/tools/one/bin/tool*")
	path := "PATH=" + strings.Join([]string{m.at("account/.ssh/bin"), m.at("vault/bin"),
		m.at("account"), m.at("account/tools/one/bin")}, ":")
	s, mounts := m.look(m.at("account"), path)
	m.wants(s, mounts, []string{"account/tools/one/bin"}, "it shows "+m.at("account/.ssh"),
		"it shows "+m.at("home/.aws"), "it holds your home directory")
	m.env = nil
	s, mounts = m.look(m.at("account"), path)
	if m.wants(s, mounts[:0], nil, "it shows "+m.at("account/.ssh")); s.home != m.at("account") {
		t.Errorf("home %s", s.home)
	}
	_, err := lookAround(&cli.Env{}, m.at("work"), policy.Policy{}, "")
	if err == nil || !strings.Contains(err.Error(), "your home directory is not known") {
		t.Errorf("without a home: %v", err)
	}
	_, err = lookAround(&cli.Env{Environ: []string{"HOME=" + m.at("home")}}, m.top, policy.Policy{},
		m.at("account"))
	if err == nil || !strings.Contains(err.Error(), "holds your home directory") {
		t.Errorf("around the homes: %v", err)
	}
}

// A variable proposes what looks like the thing that it names, and nothing of the system.
func TestVariablesAreNotTrusted(t *testing.T) {
	m := makeUp(t, "notes/secret", "jdk/bin/java*", "home/go/bin/go", "home/.pyenv/versions/x",
		"home/rust/toolchains/x", "home/plain/x", "mods/cache/download/x", "work/go.mod")
	s, mounts := m.look("", "JAVA_HOME="+m.at("jdk"), "GOROOT="+m.at("home/go"),
		"VIRTUAL_ENV="+m.at("notes"), "RUSTUP_HOME="+m.at("home/rust"), "GOMODCACHE="+m.at("mods"),
		"PATH="+m.at("home/plain")+":/etc:/proc/self:/root/.ssh")
	// What lies below /var, and in no home, is the system's.
	m.wants(s, mounts, []string{"home/.pyenv", "home/rust"},
		m.at("jdk")+" (JAVA_HOME): no toolchain belongs below /var",
		m.at("home/go")+" (GOROOT): it has no bin/go",
		m.at("notes")+" (VIRTUAL_ENV): it has no bin/python or bin/python3",
		"it lies directly below your home directory and has no bin",
		"no toolchain belongs below /etc")
	s, mounts = m.look("", "GOMODCACHE="+m.at("notes"), "CARGO_HOME="+m.at("notes"))
	m.wants(s, mounts, []string{"home/.pyenv"}, m.at("notes")+" (downloaded modules of Go)")
}

// Links lead to programs in directories of programs; those of a project only to its Python.
func TestLinksOfAProject(t *testing.T) {
	m := makeUp(t, "home/py/v3/bin/python3*", "home/private/x/bin/tool*", "home/notes/x/text",
		"home/notes/x/script*", "work/venv/bin/python -> home/py/v3/bin/python3",
		"work/venv/bin/tool -> home/private/x/bin/tool",
		"work/venv/bin/python2 -> home/private/x/bin/tool",
		"home/bin/text -> home/notes/x/text", "home/bin/script -> home/notes/x/script",
		"home/bin/tool -> home/private/y/bin/tool", "home/private/y/bin/tool*",
		"home/bin/data -> home/letters/x/bin/data", "home/letters/x/bin/data")
	s, mounts := m.look("", "VIRTUAL_ENV="+m.at("work/venv"),
		"PATH="+m.at("work/venv/bin")+":"+m.at("home/bin"))
	m.wants(s, mounts, []string{"home/py/v3/bin", "home/bin", "home/private/y/bin"},
		"it is not called bin, sbin or libexec")
	// By another name it is the project, too.
	if err := os.Symlink(m.at("work"), m.at("home/alias")); err != nil {
		t.Fatal(err)
	}
	if !s.inProject(m.at("home/alias/venv/bin")) || s.inProject(m.at("home/bin")) {
		t.Error("a directory of the project is told by all its names")
	}
}

// A toolchain is shown whole only where it is one.
func TestPrefixIsAToolchain(t *testing.T) {
	m := makeUp(t, "home/sdk/v1/bin/tool*", "home/sdk/v1/lib/x", "home/own/bin/tool*",
		"home/own/lib/x", "home/conda/bin/tool*", "home/conda/lib/x", "home/conda/conda-meta/x",
		"home/p/one/bin/tool*", "home/p/one/lib/x", "home/p/one/go.mod", "home/p/bin/tool*",
		"home/q/all/bin/tool*", "home/q/all/lib/x", "home/q/all/repository/.git/x",
		"home/sdk/open/bin/tool*", "home/sdk/open/lib/x", "home/sdk/env/bin/tool*",
		"home/sdk/env/.env", "home/sdk/env/lib/x")
	if err := os.Chmod(m.at("home/sdk/open/lib"), 0o777); err != nil {
		t.Fatal(err)
	}
	dirs := []string{"home/sdk/v1/bin", "home/own/bin", "home/conda/bin", "home/p/one/bin",
		"home/q/all/bin", "home/sdk/open/bin", "home/sdk/env/bin"}
	for i, dir := range dirs {
		dirs[i] = m.at(dir)
	}
	s, mounts := m.look("", "PATH="+strings.Join(dirs, ":"))
	m.wants(s, mounts, []string{"home/sdk/v1", "home/own/bin", "home/conda", "home/p/one/bin",
		"home/q/all/bin", "home/sdk/env/bin"}, "everyone can write to it")
	if !s.shared("/opt") {
		t.Error("/opt is a toolchain")
	}
}
