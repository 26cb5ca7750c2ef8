package profiles_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/profiles"
)

func load(t *testing.T, dir string) *profiles.Set {
	t.Helper()
	s, err := profiles.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestShipped(t *testing.T) {
	s := load(t, "")
	var names []string
	for _, p := range s.List() {
		names = append(names, p.Name)
		if p.Err != nil || p.About == "" || p.Origin != profiles.BuiltIn || len(p.Text) == 0 {
			t.Errorf("%s: %v, about %q, from %q", p.Name, p.Err, p.About, p.Origin)
		}
		if !p.Fragment && !strings.HasPrefix(string(p.Text), "# jail run ") &&
			!strings.HasPrefix(p.Name, "agent") && p.Name != "container" {
			t.Errorf("%s does not start with the run that it is meant for", p.Name)
		}
		// What a profile is for may be what a warning is about; nothing else may.
		network, about := slices.Contains([]string{"claude-code", "codex", "fetch", "python",
			"python-native"}, p.Name), map[string]string{"fetch": "fetch.allow",
			"build": "tools.native", "container": "tools.native", "claude-code": "tools.native",
			"codex": "tools.native", "image": "tools.", "worker": "tools.native"}[p.Name]
		home := map[string]string{"claude-code": "claude-home", "codex": "codex-home"}[p.Name]
		for _, w := range p.File.Policy.Warnings() {
			if home != "" && strings.Contains(w, "leaves in cache \""+home) {
				continue
			}
			if about == "" || !strings.HasPrefix(w, about) {
				t.Errorf("%s weakens: %s", p.Name, w)
			}
		}
		if len(p.File.Policy.Fetch.Allow) > 0 != network {
			t.Errorf("%s has network: %v", p.Name, p.File.Policy.Fetch)
		}
	}
	if want := []string{"agent", "agent-native", "base", "build", "claude-code", "codex", "container", "default",
		"fetch", "image", "python", "python-native", "readonly", "strict", "worker"}; !slices.Equal(names, want) {
		t.Errorf("shipped are %q, want %q", names, want)
	}
}

// What each shipped profile means, to a person.
func TestShippedMean(t *testing.T) {
	grep, module := policy.Tool{Bundle: "core-utils", Command: "grep"},
		policy.Module{Path: "/home/u/a.wasm"}
	read, write := policy.Open{Path: "/workspace/a", Want: policy.Read},
		policy.Open{Path: "/workspace/a", Want: policy.Write}
	tmp, env := policy.Open{Path: "/tmp/a", Want: policy.Write}, policy.EnvVar{Name: "A"}
	for name, want := range map[string]map[policy.Question]bool{
		"default":  {grep: true, module: true, read: true, write: true, tmp: true, env: true},
		"readonly": {grep: true, module: true, read: true, write: false, tmp: true, env: true},
		"strict":   {grep: false, module: true, read: false, write: false, tmp: false, env: false},
	} {
		p, err := load(t, "").Get(name)
		if err != nil {
			t.Error(err)
			continue
		}
		eff, err := policy.Resolve(policy.Layer{Name: "profile " + name, Source: p.Origin,
			Policy: p.File.Policy})
		if err != nil {
			t.Error(err)
			continue
		}
		for q, allowed := range want {
			if d := eff.Decide(q); d.Allowed != allowed {
				t.Errorf("%s: %s: %+v", name, q, d)
			}
		}
		for _, q := range []policy.Question{
			policy.Open{Path: "/etc/shadow", Want: policy.Read}, policy.Open{Path: "/",
				Want: policy.Read}, policy.Connect{Host: "example.com", Port: 443},
			policy.Native{Path: "/bin/sh"}, policy.Commit{Path: "a"},
			policy.Commit{Path: ".git/config"},
		} {
			if d := eff.Decide(q); d.Allowed {
				t.Errorf("%s: %s: %+v", name, q, d)
			}
		}
	}
	p, _ := load(t, "").Get("default")
	if p.File.Policy.Workspace.Commit != policy.CommitAsk {
		t.Errorf("commit of default is %s", p.File.Policy.Workspace.Commit)
	}
}

func TestGetErrors(t *testing.T) {
	s := load(t, "")
	if _, err := s.Get("nope"); !errors.Is(err, profiles.ErrNotFound) || !errors.Is(err,
		fs.ErrNotExist) {
		t.Errorf("no such profile: %v", err)
	}
	if _, err := s.Show("nope"); !errors.Is(err, profiles.ErrNotFound) {
		t.Errorf("no such profile: %v", err)
	}
	if _, err := s.Get("base"); !errors.Is(err, profiles.ErrFragment) {
		t.Errorf("a fragment: %v", err)
	}
	if p, err := s.Show("base"); err != nil || !p.Fragment {
		t.Errorf("a fragment can be shown: %v", err)
	}
	if _, _, err := s.Find("nope"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no such policy: %v", err)
	}
}

// operator makes an operator's directory with files in it.
func operator(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "profiles")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const small = "policy = 1\ninclude = [\"base\"]\n[tools]\nallow = [\"a/b\"]\n"

func TestOperator(t *testing.T) {
	dir := operator(t, map[string]string{
		"default.toml":      small,
		"mine.toml":         "policy = 1\nname = \"mine\"\nabout = \"Mine.\"\ninclude = [\"default\", \"tools/python\"]\n",
		"tools/python.toml": "policy = 1\n[tools]\nallow = [\"python/*\"]\n",
		"wrong.toml":        "policy = 1\nname = \"other\"\ninclude = [\"default\"]\n",
		"broken.toml":       "polcy = 1\n",
		"Upper.toml":        small,
		"README":            "not a profile",
	})
	s := load(t, dir)
	p, err := s.Get("default")
	if err != nil || p.Origin != filepath.Join(dir, "default.toml") ||
		p.File.Policy.Tools.String() != "allow [a/b] modules ∅ native ∅" {
		t.Errorf("the operator's default is not over the shipped one: %v, %+v", err, p)
	}
	if p, err = s.Get("mine"); err != nil || p.About != "Mine." ||
		p.File.Policy.Tools.Allow.String() != "[a/b python/*]" {
		t.Errorf("mine: %v, %s", err, p.File.Policy.Tools)
	}
	if p, err = s.Get("tools/python"); !errors.Is(err, profiles.ErrFragment) || !p.Fragment {
		t.Errorf("a fragment: %v", err)
	}
	for name, want := range map[string]string{
		"wrong":  `wrong.toml:2:8: name is "other", and the file is called "wrong"`,
		"broken": "broken.toml:1:1", "Upper": "lower-case",
	} {
		if _, err := s.Get(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	if _, err := s.Get("README"); !errors.Is(err, profiles.ErrNotFound) {
		t.Errorf("README: %v", err)
	}
	if load(t, filepath.Join(dir, "none")) == nil {
		t.Error("a directory that does not exist is no set")
	}
}

// T-520: what someone else could have written is refused, and the shipped profile of that
// name does not take its place.
func TestUntrustedFiles(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, path string) string{
		"everyone writes": func(t *testing.T, path string) string {
			return chmod(t, path, 0o646, "everyone can write")
		},
		"group writes": func(t *testing.T, path string) string {
			return chmod(t, path, 0o664, "group can write")
		},
		"link": func(t *testing.T, path string) string {
			must(t, os.Rename(path, path+".real"))
			must(t, os.Symlink(path+".real", path))
			return "symbolic link"
		},
		"hard link": func(t *testing.T, path string) string {
			must(t, os.Link(path, path+".other"))
			return "hard link"
		},
		"FIFO": func(t *testing.T, path string) string {
			must(t, os.Remove(path))
			must(t, syscall.Mkfifo(path, 0o644))
			return "FIFO"
		},
		"device": func(t *testing.T, path string) string {
			must(t, os.Remove(path))
			must(t, os.Symlink("/dev/zero", path))
			return "symbolic link"
		},
		"too large": func(t *testing.T, path string) string {
			must(t, os.Truncate(path, syntax.MaxBytes+1))
			return "larger than 1 MiB"
		},
		"owner": func(t *testing.T, path string) string {
			if os.Geteuid() != 0 {
				t.Skip("only root can give a file away")
			}
			must(t, os.Chown(path, 12345, 12345))
			return "uid 12345"
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := operator(t, map[string]string{"default.toml": small, "user.toml": small})
			path := filepath.Join(dir, "default.toml")
			// Control: as it is, the file is used.
			if p, err := load(t, dir).Get("default"); err != nil || p.Origin != path {
				t.Fatalf("before: %v", err)
			}
			want := spoil(t, path)
			s := load(t, dir)
			p, err := s.Get("default")
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(),
				path) {
				t.Errorf("%v, want %s and %q", err, path, want)
			}
			if p.File.Policy.String() != (policy.Policy{}).String() {
				t.Errorf("a file that is refused grants %s", p.File.Policy)
			}
			if _, err := s.Get("user"); err != nil {
				t.Errorf("another file is refused with it: %v", err)
			}
			if _, err := profiles.ReadTrusted(path); err == nil {
				t.Error("ReadTrusted reads it")
			}
		})
	}
}

func TestUntrustedDirectories(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, dir string) string{
		"everyone writes": func(t *testing.T, dir string) string {
			chmod(t, dir, 0o777, "")
			return dir
		},
		"sticky": func(t *testing.T, dir string) string {
			chmod(t, dir, 0o777|fs.ModeSticky, "")
			return dir
		},
		"group writes": func(t *testing.T, dir string) string {
			chmod(t, dir, 0o775, "")
			return dir
		},
		"parent": func(t *testing.T, dir string) string {
			chmod(t, filepath.Dir(dir), 0o777, "")
			return dir
		},
		"below": func(t *testing.T, dir string) string {
			chmod(t, filepath.Join(dir, "tools"), 0o777, "")
			return dir
		},
		"link": func(t *testing.T, dir string) string {
			must(t, os.Symlink(dir, dir+".link"))
			return dir + ".link"
		},
		"link below": func(t *testing.T, dir string) string {
			must(t, os.Rename(filepath.Join(dir, "tools"), dir+".tools"))
			must(t, os.Symlink(dir+".tools", filepath.Join(dir, "tools.toml")))
			// A link that ends in .toml is a file that is refused.
			return ""
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := operator(t, map[string]string{"default.toml": small, "tools/x.toml": small})
			load(t, dir)
			where := spoil(t, dir)
			if where == "" {
				if _, err := load(t, dir).Get("tools"); !errors.Is(err, profiles.ErrUntrusted) {
					t.Errorf("a link for a file: %v", err)
				}
				return
			}
			if _, err := profiles.Load(where); !errors.Is(err, profiles.ErrUntrusted) {
				t.Errorf("loaded, with error %v", err)
			}
		})
	}
}

func TestReadTrusted(t *testing.T) {
	dir := operator(t, map[string]string{"ceiling.toml": "policy = 1\n"})
	text, err := profiles.ReadTrusted(filepath.Join(dir, "ceiling.toml"))
	if err != nil || string(text) != "policy = 1\n" {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := profiles.ReadTrusted(filepath.Join(dir, "none.toml")); !errors.Is(err,
		fs.ErrNotExist) {
		t.Errorf("no such file: %v", err)
	}
	if _, err := profiles.ReadTrusted(dir); err == nil {
		t.Error("a directory is read")
	}
}

func chmod(t *testing.T, path string, mode fs.FileMode, want string) string {
	t.Helper()
	must(t, os.Chmod(path, mode))
	return want
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
