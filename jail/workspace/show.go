package workspace

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/jail-sandbox/jail/jail/gitrepo"
)

// ShowOptions say what Show passes on in addition to the changes.
type ShowOptions struct {
	// Live is as in CommitOptions.
	Live bool
	// Patch receives the differences as text, in the form of Options; nil for none.
	Patch   io.Writer
	Options PatchOptions
	// Git reads the repositories that have changes; nil leaves out Shown.Git.
	Git GitReader
	// Hunks, if not nil, is called with the hunks of each modified text file, after its change.
	Hunks func(FileHunks) error
}

// Shown is the result of Show.
type Shown struct {
	Summary
	// Digest of the change set, for CommitOptions.
	Digest string `json:"digest"`
	// Renames pairs deleted and added files with the same content, at most 1,000. They are hints.
	Renames []Rename `json:"renames,omitempty"`
	// Classes counts the changes with a risk of each class.
	Classes map[string]int `json:"classes,omitempty"`
	// Git has a report about each repository that changed.
	Git []gitrepo.Report `json:"git,omitempty"`
	// Damaged are files and directories that did not reach the disk completely. They are no
	// changes, and no commit takes them.
	Damaged []Name `json:"damaged,omitempty"`
}

// Rename is a hint that a file was moved.
type Rename struct {
	From Name `json:"from"`
	To   Name `json:"to"`
}

// Show calls emit with each change, directories before their entries, and passes on what the
// options ask for, in one pass. Its memory does not grow with the number of changes, except for the
// names of one directory at a time and at most 10,000 candidates for renames.
func (w *Workspace) Show(ctx context.Context, o ShowOptions, emit func(Change) error) (Shown,
	error) {
	d, r := newDigester(), &renames{}
	out := Shown{Classes: map[string]int{}}
	git := gitSurvey{}
	p := &patcher{w: w, terminal: o.Options.Terminal}
	if o.Patch != nil {
		p.out = bufio.NewWriterSize(o.Patch, 64<<10)
	}
	only, err := newChosen(o.Options.Paths)
	if err != nil {
		return Shown{}, err
	}
	for c, err := range w.changes(ctx, o.Live) {
		if err != nil {
			return Shown{}, err
		}
		// The digest names the whole change set.
		d.add(c)
		if !only.has(string(c.Path)) {
			continue
		}
		out.Summary.add(c)
		r.add(c)
		for _, risk := range c.Risks {
			out.Classes[string(risk.Class)]++
		}
		git.add(c)
		c.Scripts = p.scriptsOf(c)
		// The flush lets a receiver assign the text before this change to the earlier changes.
		if p.out != nil && c.Git != "" {
			if err := p.out.Flush(); err != nil {
				return Shown{}, err
			}
		}
		if err := emit(c); err != nil {
			return Shown{}, err
		}
		if o.Patch != nil {
			err := p.change(c)
			// With this flush the receiver knows to which change the text belongs.
			if err == nil && (o.Hunks != nil || c.Git != "") {
				err = p.out.Flush()
			}
			if err != nil {
				return Shown{}, w.wrap("patch", err)
			}
		}
		if o.Hunks != nil {
			hunks, err := p.hunksOf(c)
			if err == nil && len(hunks) > 0 {
				err = o.Hunks(FileHunks{c.Path, hunks})
			}
			if err != nil {
				return Shown{}, w.wrap("hunks", err)
			}
		}
	}
	if p.out != nil {
		if err := p.out.Flush(); err != nil {
			return Shown{}, err
		}
	}
	if err := only.missed(); err != nil {
		return Shown{}, err
	}
	out.Digest, out.Damaged = d.sum(), w.damaged()
	if out.Git, err = git.explain(ctx, w, o.Git); err != nil {
		return Shown{}, w.wrap("git", err)
	}
	out.Renames, err = r.find(ctx, w)
	return out, w.wrap("renames", err)
}

const (
	maxRenameCandidates = 10000
	maxRenames          = 1000
	// maxRenameBytes bounds the bytes of deleted files that are read to find renames.
	maxRenameBytes = 256 << 20
)

// renames pairs deleted and added files with the same content.
type renames struct {
	// added files by size and hash.
	added   map[int64]map[string]Name
	count   int
	deleted []Change
}

func (r *renames) add(c Change) {
	switch {
	case r.count >= maxRenameCandidates:
	case c.Kind == Added && c.After.Type == File && c.After.Size > 0 && c.After.SHA256 != "":
		if r.added == nil {
			r.added = map[int64]map[string]Name{}
		}
		if r.added[c.After.Size] == nil {
			r.added[c.After.Size] = map[string]Name{}
		}
		r.added[c.After.Size][c.After.SHA256] = c.Path
		r.count++
	case c.Kind == Deleted && c.Before.Type == File && c.Before.Size > 0:
		r.deleted = append(r.deleted, c)
		r.count++
	}
}

// find returns the pairs of deleted and added files with the same content. It reads the deleted
// files that have the size of an added one, with the caller's rights.
func (r *renames) find(ctx context.Context, w *Workspace) (out []Rename, err error) {
	k := &walker{ctx: ctx, as: w.meta.Caller, meta: &w.meta}
	budget := int64(maxRenameBytes)
	for _, c := range r.deleted {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		same := r.added[c.Before.Size]
		if len(same) == 0 || c.Before.Size > budget || len(out) >= maxRenames {
			continue
		}
		budget -= c.Before.Size
		dir, name := split(string(c.Path))
		at, err := k.openDirAt(w.source, dir)
		if err != nil {
			// Renames are only hints, so an unreadable file is skipped.
			continue
		}
		now, st, err := k.nodeIn(at, name)
		at.Close()
		if err != nil || st == nil || st.Ino != c.seen.Ino {
			continue
		}
		if to, ok := same[now.SHA256]; ok {
			out = append(out, Rename{c.Path, to})
			delete(same, now.SHA256)
		}
	}
	return out, nil
}

// Script is a package manager's command, such as an npm script, that a change affects.
type Script struct {
	// Name is the key of the command in the file: scripts.postinstall, bin.tool.
	Name string `json:"name"`
	// Before is the old command, nil for a new one.
	Before *string `json:"before,omitempty"`
	// After is the new command, nil for a removed one.
	After *string `json:"after,omitempty"`
}

// Bounds of the scripts of one file: its hunks have the rest.
const (
	maxScripts = 100
	// Bytes of each command.
	maxScriptText = 4 << 10
)

// scriptFiles maps the names of JSON files with commands to the keys under which they have them.
var scriptFiles = map[string][]string{
	// For npm, yarn, pnpm, bun: docs.npmjs.com/cli/using-npm/scripts.
	"package.json":  {"scripts", "bin"},
	"composer.json": {"scripts", "bin"},
	"deno.json":     {"tasks"},
}

// scriptsOf returns the commands that a change adds, changes or removes. It returns nil if there
// are none or the file cannot be read.
func (p *patcher) scriptsOf(c Change) []Script {
	tables := scriptFiles[path.Base(string(c.Path))]
	if tables == nil || c.Refused != "" || c.hidden {
		return nil
	}
	before, after, err := p.sides(c)
	if err != nil {
		return nil
	}
	return compareScripts(commands(before, tables), commands(after, tables))
}

func compareScripts(was, is map[string]string) (out []Script) {
	all := maps.Clone(was)
	maps.Copy(all, is)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		old, had := was[name]
		now, has := is[name]
		if had == has && old == now || len(out) == maxScripts {
			continue
		}
		s := Script{Name: name}
		if had {
			s.Before = &old
		}
		if has {
			s.After = &now
		}
		out = append(out, s)
	}
	return out
}

// commands returns the commands of one side by "table.name". A value that is no string is JSON.
func commands(s *side, tables []string) map[string]string {
	out := map[string]string{}
	if s == nil {
		return out
	}
	var file map[string]json.RawMessage
	if json.Unmarshal([]byte(s.text), &file) != nil {
		return out
	}
	for _, table := range tables {
		var entries map[string]json.RawMessage
		if json.Unmarshal(file[table], &entries) != nil {
			entries = map[string]json.RawMessage{"": file[table]}
		}
		for name, raw := range entries {
			place := table
			if name != "" {
				place += "." + name
			}
			if text := command(raw); text != "" {
				out[place] = text
			}
		}
	}
	return out
}

func command(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		text = string(raw)
	}
	return text[:min(len(text), maxScriptText)]
}

// List returns the changes of a workspace. live is as in CommitOptions.
func List(ctx context.Context, w *Workspace, live bool) (all []Change, err error) {
	for c, err := range w.changes(ctx, live) {
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// A Difference is a path that differs between two shadows, A and B, of one directory. A side is nil
// if that shadow does not have the path.
type Difference struct {
	Path Name  `json:"path"`
	A    *Node `json:"a,omitempty"`
	B    *Node `json:"b,omitempty"`
}

// Differences returns the paths that differ between two shadows of one directory, of which a and b
// are the changes.
func Differences(a, b []Change) (all []Difference) {
	other := map[Name]Change{}
	for _, c := range b {
		other[c.Path] = c
	}
	for _, c := range a {
		d := Difference{c.Path, c.After, c.Before}
		if o, both := other[c.Path]; both {
			d.B = o.After
			delete(other, c.Path)
		}
		if !d.A.same(d.B) {
			all = append(all, d)
		}
	}
	for _, c := range other {
		if !c.Before.same(c.After) {
			all = append(all, Difference{c.Path, c.Before, c.After})
		}
	}
	slices.SortFunc(all, func(a, b Difference) int { return comparePaths(a.Path, b.Path) })
	return all
}

// comparePaths orders paths as a walk lists them: the entries of a directory come right after the
// directory.
func comparePaths(a, b Name) int {
	key := func(n Name) string { return strings.ReplaceAll(string(n), "/", "\x00") }
	return strings.Compare(key(a), key(b))
}

// Texts maps paths to the texts of files in one shadow.
type Texts map[Name]string

// maxTexts bounds the texts of one comparison, in bytes.
const maxTexts = 16 << 20

// TextsOf reads the texts of the files among nodes from the shadow. It leaves out files that are
// too long, cannot be read, or have changed since nodes were made. live is as in CommitOptions.
func TextsOf(ctx context.Context, w *Workspace, live bool, nodes map[Name]*Node) (Texts, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := (opening{w}).openFor(live); err != nil {
		return nil, w.wrap("compare", err)
	}
	p := &patcher{w: w}
	read := p.readReal
	if !w.meta.State.recordOnly() {
		read = func(path Name, length int64) (string, error) {
			text, err := p.readUpper(path, length)
			if missing(err) {
				return p.readReal(path, length)
			}
			return text, err
		}
	}
	all, room := Texts{}, int64(maxTexts)
	for path, n := range nodes {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if n == nil || n.Type != File || n.Size > maxPatched || n.Size > room {
			continue
		}
		text, err := read(path, n.Size)
		if errors.Is(err, errNoText) {
			continue
		}
		if err != nil {
			return nil, w.wrap("compare", err)
		}
		if n.SHA256 != "" && textNode(text, 0).SHA256 != n.SHA256 {
			continue
		}
		room -= n.Size
		all[path] = text
	}
	return all, nil
}

// WriteDifferences writes the differences as a patch that turns A into B. a and b have the texts of
// the files. terminal is as in PatchOptions.
func WriteDifferences(out io.Writer, all []Difference, a, b Texts, terminal bool) error {
	p := &patcher{out: bufio.NewWriter(out), terminal: terminal}
	for _, d := range all {
		word := string(Added)
		switch {
		case d.A != nil && d.B != nil:
			word = "differs"
		case d.B == nil:
			word = string(Deleted)
		}
		c := Change{Path: d.Path, Before: d.A, After: d.B}
		if err := p.difference(c, word, a.read, b.read); err != nil {
			return err
		}
	}
	return p.out.Flush()
}

func (t Texts) read(path Name, _ int64) (string, error) {
	text, ok := t[path]
	if !ok {
		return "", errNoText
	}
	return text, nil
}

// A Row has the changes of one path in several shadows.
type Row struct {
	Path Name `json:"path"`
	// Cells has one change per shadow, nil if the shadow did not change the path.
	Cells []*Change `json:"cells"`
}

// Beside returns one Row for each path that a shadow changed, sorted by path.
func Beside(shadows [][]Change) []Row {
	at := map[Name]int{}
	rows := []Row{}
	for i, changes := range shadows {
		for _, c := range changes {
			n, ok := at[c.Path]
			if !ok {
				n = len(rows)
				at[c.Path] = n
				rows = append(rows, Row{c.Path, make([]*Change, len(shadows))})
			}
			rows[n].Cells[i] = &c
		}
	}
	slices.SortFunc(rows, func(a, b Row) int { return comparePaths(a.Path, b.Path) })
	return rows
}
