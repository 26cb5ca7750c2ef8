package inherit

import (
	"cmp"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	// maxConfig bounds the bytes of a git configuration that is read here.
	maxConfig = 1 << 20
	// gitWait bounds how long a run waits for git.
	gitWait = 10 * time.Second
)

// gitPrograms are the paths of git. PATH is not used: it may name a directory of the workspace,
// whose programs must never run outside a jail.
var gitPrograms = []string{"/usr/bin/git", "/usr/local/bin/git", "/run/current-system/sw/bin/git"}

// systemConfig is git's configuration for the host.
var systemConfig = "/etc/gitconfig"

// settings are git's settings that name a person, such as "user.name".
type settings map[string]string

// identity returns the variables that name the caller to git and are missing from environ, with the
// values that git would use in dir: git(1), git-config(1).
func identity(environ []string, dir string) (all []string) {
	have := func(name string) (string, bool) {
		i := slices.IndexFunc(environ, func(v string) bool { return strings.HasPrefix(v, name+"=") })
		if i < 0 {
			return "", false
		}
		return environ[i][len(name)+1:], true
	}
	var found settings
	for _, x := range []struct{ variable, own, shared string }{
		{"GIT_AUTHOR_NAME", "author.name", "user.name"},
		{"GIT_AUTHOR_EMAIL", "author.email", "user.email"},
		{"GIT_COMMITTER_NAME", "committer.name", "user.name"},
		{"GIT_COMMITTER_EMAIL", "committer.email", "user.email"},
	} {
		if _, ok := have(x.variable); ok {
			continue
		}
		if found == nil {
			var ok bool
			if found, ok = readSettings(have, environ, dir); !ok {
				found = askGit(environ, dir)
			}
		}
		value := cmp.Or(found[x.own], found[x.shared])
		if mail, _ := have("EMAIL"); value == "" && x.shared == "user.email" {
			value = mail
		}
		if value != "" {
			all = append(all, x.variable+"="+value)
		}
	}
	return all
}

// askGit asks git for the settings. It returns none if git is missing.
func askGit(environ []string, dir string) settings {
	found := settings{}
	for _, program := range gitPrograms {
		if _, err := os.Stat(program); err != nil {
			continue
		}
		// Without a match git fails and writes nothing.
		for entry := range strings.SplitSeq(outputOf(environ, dir, program, "config", "--null",
			"--get-regexp", `^(user|author|committer)\.(name|email)$`), "\x00") {
			name, value, _ := strings.Cut(entry, "\n")
			found[name] = value
		}
		break
	}
	return found
}

// outputOf returns the standard output of a program, or "" if it fails. It avoids os/exec, which
// makes the front start slower.
func outputOf(environ []string, dir string, args ...string) string {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return ""
	}
	defer null.Close()
	from, to, err := os.Pipe()
	if err != nil {
		return ""
	}
	defer from.Close()
	p, err := os.StartProcess(args[0], args,
		&os.ProcAttr{Dir: dir, Env: environ, Files: []*os.File{null, to, null}})
	to.Close()
	if err != nil {
		return ""
	}
	// The pipe is closed too, since children of a killed git may hold it open.
	timer := time.AfterFunc(gitWait, func() { p.Kill(); from.Close() })
	defer timer.Stop()
	out, err := io.ReadAll(io.LimitReader(from, maxConfig))
	if _, waitErr := p.Wait(); err != nil || waitErr != nil {
		return ""
	}
	return string(out)
}

// readSettings reads the settings without git, whose start takes longer than the rest of a request.
// ok is false for what only git understands: includes, quotes, worktrees, other repositories.
func readSettings(have func(string) (string, bool), environ []string, dir string) (settings, bool) {
	if slices.ContainsFunc(environ, func(v string) bool {
		return strings.HasPrefix(v, "GIT_CONFIG") || strings.HasPrefix(v, "GIT_DIR=") ||
			strings.HasPrefix(v, "GIT_CEILING") || strings.HasPrefix(v, "GIT_COMMON_DIR=") ||
			strings.HasPrefix(v, "GIT_DISCOVERY")
	}) {
		return nil, false
	}
	files := []string{systemConfig}
	home, _ := have("HOME")
	if config, _ := have("XDG_CONFIG_HOME"); config != "" {
		files = append(files, filepath.Join(config, "git/config"))
	} else if home != "" {
		files = append(files, filepath.Join(home, ".config/git/config"))
	}
	if home != "" {
		files = append(files, filepath.Join(home, ".gitconfig"))
	}
	found := settings{}
	repository, ok := repositoryOf(dir)
	if repository != "" {
		files = append(files, filepath.Join(repository, "config"))
	}
	for _, file := range files {
		ok = ok && found.read(file)
	}
	return found, ok
}

// repositoryOf returns the .git directory of the repository that holds dir, or "". ok is false for
// one that git treats specially: a worktree, a bare repository, or another user's.
func repositoryOf(dir string) (repository string, ok bool) {
	for {
		at := filepath.Join(dir, ".git")
		var st syscall.Stat_t
		if err := syscall.Lstat(at, &st); err == nil {
			return at, st.Mode&syscall.S_IFMT == syscall.S_IFDIR && int(st.Uid) == os.Geteuid()
		}
		if _, err := os.Lstat(filepath.Join(dir, "objects")); err == nil {
			return "", false
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", true
		}
		dir = up
	}
}

// read adds the settings of a file, which may be missing. It reports whether it understood the
// whole file.
func (s settings) read(file string) bool {
	info, err := os.Stat(file)
	if err != nil {
		return os.IsNotExist(err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxConfig {
		return false
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return false
	}
	section := ""
	for line := range strings.SplitSeq(string(text), "\n") {
		line = strings.TrimSpace(line)
		switch {
		case line == "", line[0] == '#', line[0] == ';':
			continue
		case strings.HasSuffix(line, `\`):
			return false
		case line[0] == '[':
			if section = strings.ToLower(line); !strings.HasSuffix(section, "]") ||
				strings.HasPrefix(section, "[include") ||
				strings.HasPrefix(section, "[extensions") {
				return false
			}
			continue
		}
		key, value, _ := strings.Cut(line, "=")
		name := strings.Trim(section, "[ ]") + "." + strings.ToLower(strings.TrimSpace(key))
		switch name {
		case "user.name", "user.email", "author.name", "author.email", "committer.name",
			"committer.email":
			if strings.ContainsAny(value, "\"\\#;") {
				return false
			}
			s[name] = strings.TrimSpace(value)
		}
	}
	return true
}
