// Package codetools implements tools with which a coding agent reads, searches and changes files
// and runs programs in a session of jail. Each call is an invocation in a jail, on the session's
// shadow. The MCP server and the tool loop of jail agent chat offer these tools.
package codetools

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/stdio"
	"github.com/jail-sandbox/jail/supervisor/toolsession"
)

// Bounds of results: default number of lines, and maximal number of file names.
const (
	defaultLines = 2000
	maxNames     = 1000
)

// Tools are the tools of a session.
type Tools struct {
	Session *toolsession.Session
	// changing is held while a file is changed, since an edit reads the file first.
	changing sync.Mutex
}

// run is Session.Run with the error converted by Plain.
func (t *Tools) run(ctx context.Context, c toolsession.Call) (toolsession.Outcome, error) {
	o, err := t.Session.Run(ctx, c)
	return o, Plain(err)
}

// Plain returns the message and hint of err as an error for clients and models, nil for nil.
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

// A ReadInput is the input of Read: a file and a range of lines.
type ReadInput struct {
	FilePath string `json:"file_path" jsonschema:"the file, in the directory or by its absolute path"`
	Offset   int    `json:"offset,omitempty" jsonschema:"the first line, from 1"`
	Limit    int    `json:"limit,omitempty" jsonschema:"how many lines"`
}

// A ReadOutput is the result of Read. Lines is the number of lines.
type ReadOutput struct {
	Content   string `json:"content"`
	FirstLine int    `json:"first_line"`
	Lines     int    `json:"lines"`
	Truncated bool   `json:"truncated" jsonschema:"there is more of the file"`
}

// Shown returns the text that a model gets as the result.
func (o ReadOutput) Shown() string { return o.Content }

// Read returns lines of a text file, defaultLines if Limit is 0.
func (t *Tools) Read(ctx context.Context, in ReadInput) (ReadOutput, error) {
	var o ReadOutput
	if in.Offset < 0 || in.Limit < 0 {
		return o, errors.New("offset and limit are numbers of lines from 1 on")
	}
	o.FirstLine = max(in.Offset, 1)
	limit := cmp.Or(in.Limit, defaultLines)
	// Read one line more to see whether there is more.
	last := strconv.Itoa(o.FirstLine + limit)
	content, cut, err := t.content(ctx, in.FilePath, toolsession.MaxShown, "sed", "-n", "-e",
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

// content runs a program on a text file, and returns its output, at most most bytes, and whether
// there is more.
func (t *Tools) content(ctx context.Context, name string, most int, program ...string) (string, bool,
	error) {
	if name == "" {
		return "", false, errors.New("file_path is empty")
	}
	o, err := t.run(ctx, toolsession.Call{Tool: program[0], Most: most,
		Limits: toolsession.FileLimits,
		Args:   append(program[1:], "--", t.Session.Within(name))})
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

// failed returns the error for a program whose exit code is not 0.
func failed(what string, o toolsession.Outcome) error { return fmt.Errorf("%s: %s", what, o.Why()) }

// A WriteInput is the input of Write: a file and its whole content.
type WriteInput struct {
	FilePath string `json:"file_path" jsonschema:"the file, in the directory or by its absolute path"`
	Content  string `json:"content"`
}

// A WriteOutput is the result of Write.
type WriteOutput struct {
	FilePath string `json:"file_path"`
	Bytes    int    `json:"bytes"`
}

// Shown returns the text that a model gets as the result.
func (o WriteOutput) Shown() string { return fmt.Sprintf("wrote %d bytes to %s", o.Bytes, o.FilePath) }

// Write writes a whole file, and creates missing directories.
func (t *Tools) Write(ctx context.Context, in WriteInput) (WriteOutput, error) {
	o := WriteOutput{FilePath: in.FilePath, Bytes: len(in.Content)}
	if in.FilePath == "" {
		return o, errors.New("file_path is empty")
	}
	t.changing.Lock()
	defer t.changing.Unlock()
	if err := t.put(ctx, in.FilePath, in.Content); err != nil {
		return o, err
	}
	return o, nil
}

// put writes a file, and creates its directory if that is missing.
func (t *Tools) put(ctx context.Context, name, content string) error {
	if len(content) > toolsession.MaxWritten {
		return fmt.Errorf("%s: %d bytes; at most %d can be written at once", name, len(content),
			toolsession.MaxWritten)
	}
	at := t.Session.Within(name)
	o, err := t.Session.Write(ctx, at, []byte(content))
	if err == nil && o.ExitCode != 0 && o.Limit == nil && path.Dir(at) != "." {
		made, mkdirErr := t.run(ctx, toolsession.Call{Tool: "mkdir",
			Args: []string{"-p", "--", path.Dir(at)}})
		switch {
		case mkdirErr != nil:
			return mkdirErr
		case made.ExitCode != 0:
			return failed("write "+name, made)
		}
		o, err = t.Session.Write(ctx, at, []byte(content))
	}
	if err == nil && o.ExitCode != 0 {
		return failed("write "+name, o)
	}
	return Plain(err)
}

// An EditInput is the input of Edit: a replacement in a file.
type EditInput struct {
	FilePath   string `json:"file_path" jsonschema:"the file, in the directory or by its absolute path"`
	OldString  string `json:"old_string" jsonschema:"the text to replace, exactly as it stands"`
	NewString  string `json:"new_string"`
	ReplaceAll bool   `json:"replace_all,omitempty" jsonschema:"replace every occurrence"`
}

// An EditOutput is the result of Edit, with the number of replacements.
type EditOutput struct {
	FilePath     string `json:"file_path"`
	Replacements int    `json:"replacements"`
}

// Shown returns the text that a model gets as the result.
func (o EditOutput) Shown() string {
	return fmt.Sprintf("replaced %d in %s", o.Replacements, o.FilePath)
}

// Edit replaces a text in a file. Unless ReplaceAll is set, the text must occur exactly once.
func (t *Tools) Edit(ctx context.Context, in EditInput) (EditOutput, error) {
	o := EditOutput{FilePath: in.FilePath}
	switch {
	case in.OldString == "":
		return o, errors.New("old_string is empty: write makes a new file")
	case in.OldString == in.NewString:
		return o, errors.New("old_string and new_string are the same")
	case !utf8.ValidString(in.NewString):
		return o, errors.New("new_string is no text in UTF-8")
	}
	t.changing.Lock()
	defer t.changing.Unlock()
	content, cut, err := t.content(ctx, in.FilePath, toolsession.MaxWritten, "head", "-c",
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
	if err := t.put(ctx, in.FilePath,
		strings.ReplaceAll(content, in.OldString, in.NewString)); err != nil {
		return o, err
	}
	return o, nil
}

// A GlobInput is the input of Glob: a pattern of paths.
type GlobInput struct {
	Pattern string `json:"pattern" jsonschema:"such as **/*.go"`
	Path    string `json:"path,omitempty" jsonschema:"the directory to search, without it the whole directory"`
}

// A GlobOutput is the result of Glob: the matching files, sorted.
type GlobOutput struct {
	Files     []string `json:"files"`
	Truncated bool     `json:"truncated" jsonschema:"there are more"`
}

// Shown returns the text that a model gets as the result.
func (o GlobOutput) Shown() string { return strings.Join(o.Files, "\n") }

// Glob lists the files whose path matches a pattern, at most 1000.
func (t *Tools) Glob(ctx context.Context, in GlobInput) (GlobOutput, error) {
	o := GlobOutput{Files: []string{}}
	pattern, err := policy.ParseGlob(strings.TrimPrefix(in.Pattern, "./"))
	if err != nil {
		return o, err
	}
	root := t.Session.Within(in.Path)
	found, err := t.run(ctx, toolsession.Call{Tool: "find", Most: toolsession.MaxWritten,
		Args: []string{root, "-name", ".git", "-prune", "-o", "-type", "f", "-print0"}})
	if err != nil {
		return o, err
	}
	if found.ExitCode != 0 && found.Out.Len() == 0 {
		return o, failed("search "+in.Path, found)
	}
	// Drop an incomplete name after the last NUL.
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

// A GrepInput is the input of Grep: an expression and where to search.
type GrepInput struct {
	Pattern    string `json:"pattern" jsonschema:"an extended regular expression"`
	Path       string `json:"path,omitempty" jsonschema:"the file or directory to search"`
	Glob       string `json:"glob,omitempty" jsonschema:"only files of such a name, as *.go"`
	OutputMode string `json:"output_mode,omitempty" jsonschema:"content (lines with their numbers), files_with_matches (default) or count"`
}

// A GrepOutput is the result of Grep.
type GrepOutput struct {
	Text      string `json:"text"`
	Matches   int    `json:"matches" jsonschema:"lines of the text"`
	Truncated bool   `json:"truncated" jsonschema:"there are more"`
}

// Shown returns the text that a model gets as the result.
func (o GrepOutput) Shown() string { return o.Text }

// Grep searches files for an extended regular expression.
func (t *Tools) Grep(ctx context.Context, in GrepInput) (GrepOutput, error) {
	var o GrepOutput
	mode, ok := map[string]string{"": "-l", "files_with_matches": "-l", "content": "-n",
		"count": "-c"}[in.OutputMode]
	if !ok {
		return o, fmt.Errorf("output_mode %s is none of content, files_with_matches and count",
			strconv.Quote(in.OutputMode))
	}
	// Skip git's own files: they would crowd out the files of the user.
	args := []string{"-r", "-E", mode, "--exclude-dir=.git"}
	if in.Glob != "" {
		args = append(args, "--include="+in.Glob)
	}
	found, err := t.run(ctx, toolsession.Call{Tool: "grep",
		Args: append(args, "-e", in.Pattern, "--", t.Session.Within(in.Path))})
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
		// With -c, grep lists files without a match, too.
		if line = strings.TrimPrefix(line, "./"); mode == "-c" && strings.HasSuffix(line, ":0\n") {
			continue
		}
		b.WriteString(line)
		o.Matches++
	}
	o.Text = b.String()
	return o, nil
}

// A DiffInput is the input of Diff: which changes to show.
type DiffInput struct {
	Paths []string `json:"paths,omitempty" jsonschema:"only changes at and below these, or that match these patterns"`
	Stat  bool     `json:"stat,omitempty" jsonschema:"only the list of paths"`
}

// A DiffOutput is the result of Diff: the changes of a shadow relative to the real directory.
type DiffOutput struct {
	Added     int    `json:"added"`
	Modified  int    `json:"modified"`
	Deleted   int    `json:"deleted"`
	Digest    string `json:"digest"`
	Text      string `json:"text"`
	Truncated bool   `json:"truncated" jsonschema:"there is more text"`
}

// Shown returns the text that a model gets as the result.
func (o DiffOutput) Shown() string { return o.Text }

// Changes returns the changes of a session's shadow relative to the real directory.
func Changes(ctx context.Context, s *toolsession.Session, in DiffInput) (o DiffOutput, err error) {
	list := stdio.Kept{Most: toolsession.MaxShown}
	patch := stdio.Kept{Most: toolsession.MaxShown}
	kind := api.PatchPlain
	if in.Stat {
		kind = ""
	}
	for l, err := range s.Client().Changes(ctx, s.ID(), kind, in.Paths...) {
		switch {
		case err != nil:
			return o, err
		case l.Change != nil && !l.Change.Folds():
			line := fmt.Sprintf("%s %s", l.Change.Kind, l.Change.Path)
			if why := l.Change.Conflict; why != "" {
				line += ": conflict: " + why
			} else if l.Change.Protected != "" {
				line += ": held back: " + l.Change.Protected
			}
			fmt.Fprintln(&list, line)
		case l.Patch != nil:
			patch.Write(l.Patch)
		case l.Summary != nil:
			o.Added, o.Modified, o.Deleted = l.Summary.Added, l.Summary.Modified, l.Summary.Deleted
			o.Digest = l.Summary.Digest
			for _, g := range l.Summary.Git {
				for _, what := range g.Lines {
					fmt.Fprintln(&list, "git: "+what)
				}
			}
		}
	}
	o.Text = list.String()
	if patch.Len() > 0 {
		o.Text += "\n" + patch.String()
	}
	o.Truncated = list.Cut || patch.Cut
	return o, nil
}

// Diff is Changes with the error converted by Plain.
func (t *Tools) Diff(ctx context.Context, in DiffInput) (DiffOutput, error) {
	o, err := Changes(ctx, t.Session, in)
	return o, Plain(err)
}

// Schema returns the JSON Schema of a type. Slices have the type array instead of null or array,
// since some clients and models accept only one type per value.
func Schema[T any]() *jsonschema.Schema {
	out, err := jsonschema.For[T](nil)
	if err != nil {
		panic("codetools: bug: " + err.Error())
	}
	listsAreLists(out)
	return out
}

func listsAreLists(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if slices.Equal(s.Types, []string{"null", "array"}) {
		s.Type, s.Types = "array", nil
	}
	listsAreLists(s.Items)
	for _, p := range s.Properties {
		listsAreLists(p)
	}
}
