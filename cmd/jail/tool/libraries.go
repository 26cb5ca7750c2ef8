package tool

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/runners/native"
)

// libraries are the files that programs of this host need to start, by the paths that they use.
type libraries struct {
	Programs []string `json:"programs"`
	// the programs, their loaders, libraries and interpreters
	Files   []string  `json:"files"`
	Missing []missing `json:"missing"`

	seen map[string]bool
}

type missing struct {
	// a library, or the path of an interpreter
	Name string `json:"name"`
	By   string `json:"by"` // the file that names it
}

// maxLibraries bounds the search. Programs of distributions have fewer libraries.
const maxLibraries = 2000

// findLibraries reads the ELF headers of programs, which are paths or names on search. It executes
// nothing, unlike ldd, which runs the program's loader.
func findLibraries(search string, programs []string) (*libraries, error) {
	l := &libraries{Programs: []string{}, Missing: []missing{}, seen: map[string]bool{}}
	for _, name := range programs {
		path, err := onPath(search, name)
		if err != nil {
			return nil, err
		}
		l.Programs = append(l.Programs, path)
		if err := l.program(path, search, 0); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	l.Files = slices.Sorted(maps.Keys(l.seen))
	return l, nil
}

// onPath returns the absolute path of a program: name itself, or found on search.
func onPath(search, name string) (string, error) {
	if strings.Contains(name, "/") {
		path, err := filepath.Abs(name)
		if err == nil {
			_, err = os.Stat(path)
		}
		return path, err
	}
	for _, dir := range filepath.SplitList(search) {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && filepath.IsAbs(path) &&
			info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s: %w on PATH", name, fs.ErrNotExist)
}

func (l *libraries) program(path, search string, depth int) error {
	if l.seen[path] {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	p, err := native.Read(f)
	if err != nil {
		return err
	}
	l.seen[path] = true
	if p.Interpreter != "" {
		if _, err := os.Stat(p.Interpreter); err != nil {
			l.Missing = append(l.Missing, missing{p.Interpreter, path})
		} else if !p.Script {
			// This is the loader, which has no libraries.
			l.seen[p.Interpreter] = true
		} else if depth >= native.MaxChain {
			return errors.New("its interpreters are scripts without end")
		} else {
			l.Programs = append(l.Programs, p.Interpreter)
			if err := l.program(p.Interpreter, search, depth+1); err != nil {
				return err
			}
		}
	}
	if p.Script {
		return l.env(path, p.Interpreter, search, depth)
	}
	return l.needed(path, nil)
}

// env follows the program NAME of a script that begins with `#!/usr/bin/env NAME`.
func (l *libraries) env(path, interpreter, search string, depth int) error {
	if filepath.Base(interpreter) != "env" || depth >= native.MaxChain {
		return nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	line, _, _ := strings.Cut(string(text[:min(len(text), 256)]), "\n")
	for _, word := range strings.Fields(line)[1:] {
		if strings.HasPrefix(word, "-") || strings.Contains(word, "=") || word == interpreter {
			continue
		}
		found, err := onPath(search, word)
		if err != nil {
			l.Missing = append(l.Missing, missing{word, path})
			return nil
		}
		l.Programs = append(l.Programs, found)
		return l.program(found, search, depth+1)
	}
	return nil
}

// needed adds the libraries that a file needs (DT_NEEDED), from the directories that ld.so(8)
// searches. inherited has the DT_RPATH of the files that need this one.
func (l *libraries) needed(path string, inherited []string) error {
	f, err := elf.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	names, err := f.ImportedLibraries()
	if err != nil {
		// A file without a dynamic section needs no libraries.
		return nil //nolint:nilerr
	}
	at := filepath.Dir(path)
	if real, err := filepath.EvalSymlinks(path); err == nil {
		at = filepath.Dir(real)
	}
	own := func(tag elf.DynTag) (dirs []string) {
		values, _ := f.DynString(tag)
		for _, v := range values {
			for _, dir := range strings.Split(v, ":") {
				dir = strings.NewReplacer("${ORIGIN}", at, "$ORIGIN", at).Replace(dir)
				// A relative directory would be in the workspace.
				if filepath.IsAbs(dir) {
					dirs = append(dirs, filepath.Clean(dir))
				}
			}
		}
		return dirs
	}
	dirs, rpath := own(elf.DT_RUNPATH), inherited
	if len(dirs) == 0 {
		rpath = append(own(elf.DT_RPATH), inherited...)
		dirs = rpath
	}
	for _, name := range names {
		found := ""
		for _, dir := range slices.Concat(dirs, loaderDirs()) {
			candidate := filepath.Join(dir, name)
			if fits(candidate, f) {
				found = candidate
				break
			}
		}
		switch {
		case found == "":
			l.Missing = append(l.Missing, missing{name, path})
		case l.seen[found]:
		case len(l.seen) > maxLibraries:
			return fmt.Errorf("it names more than %d libraries", maxLibraries)
		default:
			l.seen[found] = true
			if err := l.needed(found, rpath); err != nil {
				return err
			}
		}
	}
	return nil
}

// fits reports whether a library has the class and machine of the file that needs it. Loaders skip
// others.
func fits(path string, by *elf.File) bool {
	f, err := elf.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	return f.Class == by.Class && f.Machine == by.Machine
}

// loaderDirs returns the default directories of loaders, with those in ld.so.conf.
func loaderDirs() []string {
	dirs := []string{"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu",
		"/usr/lib/aarch64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"}
	// The pattern is constant and valid, so there is no error.
	confs, _ := filepath.Glob("/etc/ld.so.conf.d/*.conf")
	for _, conf := range append([]string{"/etc/ld.so.conf"}, confs...) {
		text, err := os.ReadFile(conf)
		if err != nil {
			// A missing or unreadable file names no directories.
			continue
		}
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSpace(line)
			if filepath.IsAbs(line) && !slices.Contains(dirs, line) {
				dirs = append(dirs, line)
			}
		}
	}
	return dirs
}

// policy returns the lines of a policy file that grant all of it.
func (l *libraries) policy() string {
	var b strings.Builder
	fmt.Fprintf(&b, "[tools]\nnative = [")
	for i, p := range l.Programs {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%q", p)
	}
	b.WriteString("]\n\n[syscalls]\ngroups = [\"native\"]\n")
	files := l.Files
	if _, err := os.Stat("/etc/ld.so.cache"); err == nil {
		files = append(slices.Clone(files), "/etc/ld.so.cache")
	}
	for _, path := range files {
		access := "read+exec"
		if path == "/etc/ld.so.cache" {
			access = "read"
		}
		fmt.Fprintf(&b, "\n[[mount]]\nsource = %q\ntarget = %q\naccess = %q\n", path, path, access)
	}
	return b.String()
}

func newLibs(env *cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "libs PROGRAM...",
		Short: "print the policy lines that grant programs of the host, with their interpreters " +
			"and libraries",
		Long: "Find the loaders, libraries and interpreters of programs of this host, without " +
			"running them, and print the lines of a policy that grant only these\n" +
			"files. Files that a program opens by itself (modules, data, plug-ins) are not found: " +
			"grant their directory, too.",
		Example: "  jail tool libs /usr/bin/jq >> jq.toml",
		Args:    command.AtLeast("PROGRAM"),
	}
	var asJSON bool
	command.JSON(cmd, &asJSON, "print an object: programs, files, missing")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		found, err := findLibraries(os.Getenv("PATH"), args)
		if err != nil {
			return exit.NotFound("name a program by its path, or by a name on PATH", "%v", err)
		}
		if asJSON {
			return env.PrintJSON(found)
		}
		for _, m := range found.Missing {
			output.Say(env.Stderr, "warning",
				fmt.Sprintf("%s needs %s, which is not on this host", m.By, m.Name))
		}
		_, err = fmt.Fprint(env.Stdout, found.policy())
		return err
	}
	return cmd
}
