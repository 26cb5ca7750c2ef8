// Package codetools are the tools by which a coding agent reads, searches, changes and runs things
// in a session of jail: each call is an invocation in a jail, over the session's shadow. The server
// of the Model Context Protocol and the tool loop of jail agent chat offer them.
package codetools

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/toolsession"
)

// Bounds of lists.
const (
	defaultLines = 2000
	maxNames     = 1000
)

// Files are the tools that read and change files.
type Files struct {
	session *toolsession.Session
	// changing is held while a file is changed: an edit reads it before.
	changing sync.Mutex
}

// NewFiles returns the tools of a session.
func NewFiles(s *toolsession.Session) *Files { return &Files{session: s} }

// run is Session.Run with an error in the words that a model gets.
func run(ctx context.Context, s *toolsession.Session, c toolsession.Call) (toolsession.Outcome,
	error) {
	o, err := s.Run(ctx, c)
	return o, Plain(err)
}

// Plain is an error in the words that a client gets: what is wrong, and what to do.
func Plain(err error) error {
	if err == nil {
		return nil
	}
	p := problem.From(err)
	if p.Hint == "" {
		return errors.New(p.Message)
	}
	return errors.New(p.Message + "; " + p.Hint)
}

// A ReadInput names lines of a file.
type ReadInput struct {
	FilePath string `json:"file_path" jsonschema:"the file, in the directory or by its absolute path"`
	Offset   int    `json:"offset,omitempty" jsonschema:"the first line, from 1"`
	Limit    int    `json:"limit,omitempty" jsonschema:"how many lines"`
}

// A ReadOutput is those lines.
type ReadOutput struct {
	Content   string `json:"content"`
	FirstLine int    `json:"first_line"`
	Lines     int    `json:"lines"`
	Truncated bool   `json:"truncated" jsonschema:"there is more of the file"`
}

// Shown is what a model reads.
func (o ReadOutput) Shown() string { return o.Content }

// Read returns lines of a text file.
func (f *Files) Read(ctx context.Context, in ReadInput) (ReadOutput, error) {
	var o ReadOutput
	if in.Offset < 0 || in.Limit < 0 {
		return o, errors.New("offset and limit are numbers of lines from 1 on")
	}
	o.FirstLine = max(in.Offset, 1)
	limit := in.Limit
	if limit == 0 {
		limit = defaultLines
	}
	// One line more shows whether there is more.
	last := strconv.Itoa(o.FirstLine + limit)
	content, cut, err := f.content(ctx, in.FilePath, toolsession.MaxShown, "sed", "-n", "-e",
		strconv.Itoa(o.FirstLine)+","+last+"p", "-e", last+"q")
	if err != nil {
		return o, err
	}
	var b strings.Builder
	for l := range strings.Lines(content) {
		if o.Lines == limit {
			cut = true
			break
		}
		b.WriteString(l)
		o.Lines++
	}
	if o.Lines == 0 && o.FirstLine > 1 {
		return o, fmt.Errorf("offset %d: %s has fewer lines", in.Offset, in.FilePath)
	}
	o.Content, o.Truncated = b.String(), cut
	return o, nil
}

// content returns what a program writes of a text file, at most so many bytes, and whether there is
// more.
func (f *Files) content(ctx context.Context, name string, most int, program ...string) (string, bool,
	error) {
	if name == "" {
		return "", false, errors.New("file_path is empty")
	}
	o, err := run(ctx, f.session, toolsession.Call{Tool: program[0], Most: most,
		Limits: toolsession.FileLimits,
		Args:   append(program[1:], "--", f.session.Within(name))})
	cut := o.Out.Cut || o.Truncated
	switch {
	case err != nil:
		return "", false, err
	case o.ExitCode != 0 && !cut:
		return "", false, failed("read "+name, o)
	case !o.Out.IsText():
		return "", false, fmt.Errorf("%s is no text in UTF-8", name)
	}
	return o.Out.String(), cut, nil
}

// failed is the error for a tool that did not end with 0.
func failed(what string, o toolsession.Outcome) error { return fmt.Errorf("%s: %s", what, o.Why()) }

// A WriteInput is a whole file.
type WriteInput struct {
	FilePath string `json:"file_path" jsonschema:"the file, in the directory or by its absolute path"`
	Content  string `json:"content"`
}

// A WriteOutput says what was written.
type WriteOutput struct {
	FilePath string `json:"file_path"`
	Bytes    int    `json:"bytes"`
}

// Shown is what a model reads.
func (o WriteOutput) Shown() string { return fmt.Sprintf("wrote %d bytes to %s", o.Bytes, o.FilePath) }

// Write writes a whole file, and makes the directories that it needs.
func (f *Files) Write(ctx context.Context, in WriteInput) (WriteOutput, error) {
	o := WriteOutput{FilePath: in.FilePath, Bytes: len(in.Content)}
	if in.FilePath == "" {
		return o, errors.New("file_path is empty")
	}
	f.changing.Lock()
	defer f.changing.Unlock()
	if err := f.put(ctx, in.FilePath, in.Content); err != nil {
		return o, err
	}
	return o, nil
}

// put writes a file, and makes its directory if that is not there.
func (f *Files) put(ctx context.Context, name, content string) error {
	if len(content) > toolsession.MaxWritten {
		return fmt.Errorf("%s: %d bytes; at most %d can be written at once", name, len(content),
			toolsession.MaxWritten)
	}
	at := f.session.Within(name)
	o, err := f.session.Write(ctx, at, []byte(content))
	if err == nil && o.ExitCode != 0 && o.Limit == nil && path.Dir(at) != "." {
		made, mkdirErr := run(ctx, f.session, toolsession.Call{Tool: "mkdir",
			Args: []string{"-p", "--", path.Dir(at)}})
		switch {
		case mkdirErr != nil:
			return mkdirErr
		case made.ExitCode != 0:
			return failed("write "+name, made)
		}
		o, err = f.session.Write(ctx, at, []byte(content))
	}
	if err == nil && o.ExitCode != 0 {
		return failed("write "+name, o)
	}
	return Plain(err)
}

// An EditInput is a replacement in a file.
type EditInput struct {
	FilePath   string `json:"file_path" jsonschema:"the file, in the directory or by its absolute path"`
	OldString  string `json:"old_string" jsonschema:"the text to replace, exactly as it stands"`
	NewString  string `json:"new_string"`
	ReplaceAll bool   `json:"replace_all,omitempty" jsonschema:"replace every occurrence"`
}

// An EditOutput says what was replaced.
type EditOutput struct {
	FilePath     string `json:"file_path"`
	Replacements int    `json:"replacements"`
}

// Shown is what a model reads.
func (o EditOutput) Shown() string {
	return fmt.Sprintf("replaced %d in %s", o.Replacements, o.FilePath)
}

// Edit replaces a text in a file. Unless ReplaceAll is set, the text must occur exactly once.
func (f *Files) Edit(ctx context.Context, in EditInput) (EditOutput, error) {
	o := EditOutput{FilePath: in.FilePath}
	switch {
	case in.OldString == "":
		return o, errors.New("old_string is empty: write makes a new file")
	case in.OldString == in.NewString:
		return o, errors.New("old_string and new_string are the same")
	case !utf8.ValidString(in.NewString):
		return o, errors.New("new_string is no text in UTF-8")
	}
	f.changing.Lock()
	defer f.changing.Unlock()
	content, cut, err := f.content(ctx, in.FilePath, toolsession.MaxWritten, "head", "-c",
		strconv.Itoa(toolsession.MaxWritten+1))
	switch n := strings.Count(content, in.OldString); {
	case err != nil:
		return o, err
	case cut:
		return o, fmt.Errorf("%s is larger than %d bytes or than the limit output", in.FilePath,
			toolsession.MaxWritten)
	case n == 0:
		return o, fmt.Errorf("old_string does not occur in %s", in.FilePath)
	case n > 1 && !in.ReplaceAll:
		return o, fmt.Errorf("old_string occurs %d times in %s: add lines around it, or set "+
			"replace_all", n, in.FilePath)
	default:
		o.Replacements = n
	}
	if err := f.put(ctx, in.FilePath,
		strings.ReplaceAll(content, in.OldString, in.NewString)); err != nil {
		return o, err
	}
	return o, nil
}

// A GlobInput is a pattern of names.
type GlobInput struct {
	Pattern string `json:"pattern" jsonschema:"such as **/*.go"`
	Path    string `json:"path,omitempty" jsonschema:"the directory to search, without it the whole directory"`
}

// A GlobOutput is the files that have such names.
type GlobOutput struct {
	Files     []string `json:"files"`
	Truncated bool     `json:"truncated" jsonschema:"there are more"`
}

// Shown is what a model reads.
func (o GlobOutput) Shown() string { return strings.Join(o.Files, "\n") }

// Glob lists the files whose path matches a pattern, at most 1000.
func (f *Files) Glob(ctx context.Context, in GlobInput) (GlobOutput, error) {
	o := GlobOutput{Files: []string{}}
	pattern, err := policy.ParseGlob(strings.TrimPrefix(in.Pattern, "./"))
	if err != nil {
		return o, err
	}
	root := f.session.Within(in.Path)
	found, err := run(ctx, f.session, toolsession.Call{Tool: "find", Most: toolsession.MaxWritten,
		Args: []string{root, "-name", ".git", "-prune", "-o", "-type", "f", "-print0"}})
	if err != nil {
		return o, err
	}
	if found.ExitCode != 0 && found.Out.Len() == 0 {
		return o, failed("search "+in.Path, found)
	}
	// What follows the last end of a name is a part of one.
	whole := found.Out.Bytes()[:bytes.LastIndexByte(found.Out.Bytes(), 0)+1]
	for name := range bytes.SplitSeq(whole, []byte{0}) {
		rel := strings.TrimPrefix(strings.TrimPrefix(string(name), root), "/")
		if rel != "" && pattern.Match(rel) {
			o.Files = append(o.Files, strings.ToValidUTF8(path.Join(root, rel), "\uFFFD"))
		}
	}
	slices.Sort(o.Files)
	if o.Truncated = found.Out.Cut || found.Truncated || len(o.Files) > maxNames; len(o.Files) > maxNames {
		o.Files = o.Files[:maxNames]
	}
	return o, nil
}

// A GrepInput is an expression and where to search it.
type GrepInput struct {
	Pattern    string `json:"pattern" jsonschema:"an extended regular expression"`
	Path       string `json:"path,omitempty" jsonschema:"the file or directory to search"`
	Glob       string `json:"glob,omitempty" jsonschema:"only files of such a name, as *.go"`
	OutputMode string `json:"output_mode,omitempty" jsonschema:"content (lines with their numbers), files_with_matches (default) or count"`
}

// A GrepOutput is what was found.
type GrepOutput struct {
	Text      string `json:"text"`
	Matches   int    `json:"matches" jsonschema:"lines of the text"`
	Truncated bool   `json:"truncated" jsonschema:"there are more"`
}

// Shown is what a model reads.
func (o GrepOutput) Shown() string { return o.Text }

// Grep searches files for an extended regular expression.
func (f *Files) Grep(ctx context.Context, in GrepInput) (GrepOutput, error) {
	var o GrepOutput
	mode, ok := map[string]string{"": "-l", "files_with_matches": "-l", "content": "-n",
		"count": "-c"}[in.OutputMode]
	if !ok {
		return o, fmt.Errorf("output_mode %s is none of content, files_with_matches and count",
			strconv.Quote(in.OutputMode))
	}
	// Git's own files are no text of anybody, and would take the room of what is.
	args := []string{"-r", "-E", mode, "--exclude-dir=.git"}
	if in.Glob != "" {
		args = append(args, "--include="+in.Glob)
	}
	found, err := run(ctx, f.session, toolsession.Call{Tool: "grep",
		Args: append(args, "-e", in.Pattern, "--", f.session.Within(in.Path))})
	switch {
	case err != nil:
		return o, err
	case found.ExitCode > 1 && found.Out.Len() == 0:
		return o, failed("search", found)
	}
	var b strings.Builder
	o.Truncated = found.Out.Cut || found.Truncated
	for line := range strings.Lines(found.Out.String()) {
		if o.Truncated && !strings.HasSuffix(line, "\n") {
			break
		}
		// A file without a match is no match.
		if line = strings.TrimPrefix(line, "./"); mode == "-c" && strings.HasSuffix(line, ":0\n") {
			continue
		}
		b.WriteString(line)
		o.Matches++
	}
	o.Text = b.String()
	return o, nil
}
