package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jail-sandbox/jail/supervisor/loop"
	"github.com/jail-sandbox/jail/supervisor/stdio"
	"github.com/jail-sandbox/jail/supervisor/toolsession"
)

// Bounds of the five tools: lines, entries and matches, seconds, and bytes.
const (
	defaultLimit   = 500
	maxEntries     = 500
	defaultTimeout = 60
	maxCommand     = 1 << 20
	maxMatches     = 100
	maxSearch      = 2 << 20
)

// toolbox returns the five tools. Each call is an invocation in the session.
func (w *worker) toolbox() *loop.Toolbox {
	b := &loop.Toolbox{}
	loop.AddTool(b, "read_file", "Read lines of a file, each as N|text.", w.readFile)
	loop.AddTool(b, "write_file", "Write a whole file, and the directories that it needs.",
		w.writeFile)
	loop.AddTool(b, "list_directory", "List a directory. Directories end in /.", w.listDirectory)
	loop.AddTool(b, "run_command", "Run a shell command.", w.runCommand)
	loop.AddTool(b, "search_files", "Search files for an extended regular expression.", w.searchFiles)
	return b
}

// outside is the exit code of within for a path outside of the workspace.
const outside = 93

// within is the beginning of a script: it sets p to the real path of $2 and exits unless that is in
// the workspace, $1. It is a hint for the model, not a security boundary: that is the jail.
const within = `p=$(realpath -m -- "$2") || exit 1
case "$p" in "$1"|"$1"/*) ;; *) exit 93 ;; esac
shift 2
`

// fileLimits are the limits of tools that read and write files.
var fileLimits = append(slices.Clone(toolsession.FileLimits), noNetwork)

// script runs the shell script text with p set to the path at, and args as $1 and so on. c holds
// other fields of the call. It returns an error for a path outside of the workspace.
func (w *worker) script(ctx context.Context, c toolsession.Call, text, at string,
	args ...string) (toolsession.Outcome, error) {
	if at == "" {
		return toolsession.Outcome{}, errors.New("path is empty")
	}
	if strings.ContainsRune(at, 0) {
		return toolsession.Outcome{}, errors.New("path has a zero byte")
	}
	if !path.IsAbs(at) {
		at = w.root + "/" + at
	}
	if c.Limits == nil {
		c.Limits = fileLimits
	}
	c.Tool, c.Cwd = "sh", w.root
	c.Args = append([]string{"-c", within + text, "sh", w.root, at}, args...)
	o, err := w.run(ctx, c)
	if err == nil && o.ExitCode == outside && o.ErrOut.Len() == 0 && o.Out.Len() == 0 {
		err = fmt.Errorf("path %s is not beneath %s", at, w.root)
	}
	return o, err
}

type readFileInput struct {
	Path   string `json:"path"`
	Offset int    `json:"offset,omitempty" jsonschema:"the first line, from 1"`
	Limit  int    `json:"limit,omitempty" jsonschema:"how many lines, 500 without it"`
}

func (w *worker) readFile(ctx context.Context, in readFileInput) (string, error) {
	if in.Offset < 0 || in.Limit < 0 {
		return "", errors.New("offset and limit are numbers from 1")
	}
	first, limit := max(in.Offset, 1), cmp.Or(in.Limit, defaultLimit)
	o, err := w.script(ctx, toolsession.Call{}, `[ -f "$p" ] || { echo "no such file" >&2; exit 1; }
exec awk -v a="$1" -v b="$2" 'NR >= a && NR <= b; END { print NR > "/dev/stderr" }' "$p"`, in.Path,
		strconv.Itoa(first), strconv.Itoa(first+limit-1))
	cut := o.Out.Cut || o.Truncated
	switch {
	case err != nil:
		return "", err
	case o.ExitCode != 0 && !cut:
		return "", fmt.Errorf("read %s: %s", in.Path, o.Why())
	case !o.Out.IsText():
		return "", fmt.Errorf("read %s: it is no text", in.Path)
	}
	var b strings.Builder
	n := first
	for line := range strings.Lines(o.Out.String()) {
		if cut && !strings.HasSuffix(line, "\n") {
			break
		}
		fmt.Fprintf(&b, "%d|%s\n", n, strings.TrimSuffix(line, "\n"))
		n++
	}
	total, err := strconv.Atoi(strings.TrimSpace(o.ErrOut.String()))
	switch {
	case cut || err != nil:
		fmt.Fprintf(&b, "[lines %d to %d are shown, and there are more]\n", first, n-1)
	case first > max(total, 1):
		return "", fmt.Errorf("offset %d: %s has %d lines", in.Offset, in.Path, total)
	case n-1 < total:
		fmt.Fprintf(&b, "[lines %d to %d of %d are shown]\n", first, n-1, total)
	}
	return b.String(), nil
}

type writeFileInput struct {
	Path    string `json:"path"`
	Content string `json:"content"`
}

func (w *worker) writeFile(ctx context.Context, in writeFileInput) (string, error) {
	if len(in.Content) > toolsession.MaxWritten {
		return "", fmt.Errorf("write %s: %d bytes; at most %d can be written at once", in.Path,
			len(in.Content), toolsession.MaxWritten)
	}
	o, err := w.script(ctx, toolsession.Call{In: []byte(in.Content)},
		`mkdir -p -- "$(dirname -- "$p")" && exec cat > "$p"`, in.Path)
	switch {
	case err != nil:
		return "", err
	case o.ExitCode != 0:
		return "", fmt.Errorf("write %s: %s", in.Path, o.Why())
	}
	return fmt.Sprintf("wrote %d bytes to %s", len(in.Content), in.Path), nil
}

type listInput struct {
	Path      string   `json:"path"`
	Recursive bool     `json:"recursive,omitempty"`
	Ignore    []string `json:"ignore,omitempty" jsonschema:"names to leave out, without it node_modules, .git, dist and build"`
}

func (w *worker) listDirectory(ctx context.Context, in listInput) (string, error) {
	ignore := in.Ignore
	if ignore == nil {
		ignore = []string{"node_modules", ".git", "dist", "build"}
	}
	args := []string{"-mindepth", "1"}
	if !in.Recursive {
		args = append(args, "-maxdepth", "1")
	}
	for _, name := range ignore {
		args = append(args, "-name", name, "-prune", "-o")
	}
	args = append(args, "-printf", `%y%P\0`)
	o, err := w.script(ctx, toolsession.Call{Most: maxSearch},
		`[ -d "$p" ] || { echo "no such directory" >&2; exit 1; }
exec find "$p" "$@"`, in.Path, args...)
	cut := o.Out.Cut || o.Truncated
	switch {
	case err != nil:
		return "", err
	case o.ExitCode != 0 && o.Out.Len() == 0:
		return "", fmt.Errorf("list %s: %s", in.Path, o.Why())
	}
	var names []string
	entries := strings.Split(o.Out.Buffer.String(), "\x00")
	// The element after the last NUL is empty or an incomplete name.
	for _, entry := range entries[:len(entries)-1] {
		name := strings.ToValidUTF8(entry[1:], "\uFFFD")
		if entry[0] == 'd' {
			name += "/"
		}
		names = append(names, name)
	}
	slices.Sort(names)
	if n := len(names); in.Recursive && n > maxEntries {
		names = append(names[:maxEntries], fmt.Sprintf("[%d of %d entries are shown]", maxEntries, n))
	} else if cut {
		names = append(names, fmt.Sprintf("[%d entries are shown, and there are more]", n))
	}
	if len(names) == 0 {
		return "(empty)", nil
	}
	return strings.Join(names, "\n"), nil
}

// checkCommand refuses these, as a hint for the model and not as a security boundary.
var (
	refusedTexts    = []string{"rm -rf /", "sudo", "chmod 777", ":(){", "mkfs"}
	refusedPatterns = []*regexp.Regexp{regexp.MustCompile(`;\s*rm -rf`),
		regexp.MustCompile(`\|\s*(ba|da|z)?sh\b`), regexp.MustCompile("`"),
		regexp.MustCompile(`\$\(`), regexp.MustCompile(`>\s*/etc`),
		regexp.MustCompile(`curl\b.*\|\s*(ba)?sh\b`)}
)

// checkCommand returns an error if a command is empty or contains a refused text or pattern.
func checkCommand(command string) error {
	for _, text := range refusedTexts {
		if strings.Contains(command, text) {
			return fmt.Errorf("the command is refused: it contains %q", text)
		}
	}
	for _, pattern := range refusedPatterns {
		if found := pattern.FindString(command); found != "" {
			return fmt.Errorf("the command is refused: it contains %q", found)
		}
	}
	if strings.TrimSpace(command) == "" {
		return errors.New("command is empty")
	}
	return nil
}

type commandInput struct {
	Command string `json:"command"`
	Cwd     string `json:"cwd,omitempty" jsonschema:"where it starts, without it /workspace"`
	Timeout int    `json:"timeout,omitempty" jsonschema:"seconds until it is ended, 60 without it"`
}

func (w *worker) runCommand(ctx context.Context, in commandInput) (string, error) {
	if err := checkCommand(in.Command); err != nil {
		return "", err
	}
	timeout := cmp.Or(in.Timeout, defaultTimeout)
	if timeout < 0 || timeout > 24*3600 {
		return "", fmt.Errorf("timeout %d is no number of seconds from 1 to 86400", in.Timeout)
	}
	o, err := w.script(ctx, toolsession.Call{Most: maxCommand,
		Limits: []string{fmt.Sprintf("wall=%ds", timeout), noNetwork}}, `cd -- "$p" || exit 1
exec sh -c "$1"`, cmp.Or(in.Cwd, w.root), in.Command)
	switch {
	case err != nil:
		return "", err
	case o.Limit != nil && o.Limit.Name == "wall":
		return "", fmt.Errorf("the command was ended after %d seconds\n%s", timeout, streams(o))
	case o.Limit != nil:
		return "", fmt.Errorf("the command was ended by the limit %s\n%s", o.Limit.Name, streams(o))
	case o.ExitCode != 0:
		return "", fmt.Errorf("the command ended with exit code %d\n%s", o.ExitCode, streams(o))
	}
	return streams(o), nil
}

// streams returns the output and errors of a command with headings, at most maxCommand bytes.
func streams(o toolsession.Outcome) string {
	var b strings.Builder
	for _, s := range []struct {
		name string
		kept *stdio.Kept
	}{{"stdout", &o.Out}, {"stderr", &o.ErrOut}} {
		text := s.kept.String()
		if text == "" {
			continue
		}
		cut := s.kept.Cut
		if room := maxCommand - b.Len(); len(text) > room {
			text, cut = strings.ToValidUTF8(text[:max(room, 0)], ""), true
		}
		fmt.Fprintf(&b, "%s:\n%s", s.name, text)
		if !strings.HasSuffix(text, "\n") {
			b.WriteByte('\n')
		}
		if cut || o.Truncated {
			b.WriteString("[there was more]\n")
		}
	}
	if b.Len() == 0 {
		return "(the command wrote nothing)"
	}
	return b.String()
}

type searchInput struct {
	Pattern       string `json:"pattern" jsonschema:"an extended regular expression"`
	Path          string `json:"path,omitempty" jsonschema:"a file or directory, without it /workspace"`
	FilePattern   string `json:"file_pattern,omitempty" jsonschema:"only files of such a name, as *.go"`
	CaseSensitive bool   `json:"case_sensitive,omitempty"`
}

func (w *worker) searchFiles(ctx context.Context, in searchInput) (string, error) {
	args := []string{"-rnEIH", "--exclude-dir=.git"}
	if !in.CaseSensitive {
		args = append(args, "-i")
	}
	if in.FilePattern != "" {
		args = append(args, "--include="+in.FilePattern)
	}
	o, err := w.script(ctx, toolsession.Call{Most: maxSearch},
		`[ -e "$p" ] || { echo "no such file or directory" >&2; exit 2; }
exec grep "$@" -- "$p"`, cmp.Or(in.Path, w.root), append(args, "-e", in.Pattern)...)
	switch {
	case err != nil:
		return "", err
	case o.ExitCode > 1 && o.Out.Len() == 0:
		return "", fmt.Errorf("search: %s", o.Why())
	}
	var b strings.Builder
	n, more := 0, o.Out.Cut || o.Truncated
	for line := range strings.Lines(o.Out.String()) {
		if more && !strings.HasSuffix(line, "\n") {
			break
		}
		if n == maxMatches {
			more = true
			break
		}
		b.WriteString(strings.TrimPrefix(line, w.root+"/"))
		n++
	}
	switch {
	case n == 0:
		return "no matches", nil
	case more:
		fmt.Fprintf(&b, "[%d matches are shown, and there are more]\n", n)
	}
	return b.String(), nil
}
