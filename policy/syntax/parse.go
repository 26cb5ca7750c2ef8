package syntax

import (
	"errors"
	"io/fs"
	"slices"
	"strings"

	"github.com/jail-sandbox/jail/policy"
)

const (
	maxIncludeDepth = 16
	// files that one policy is made of
	maxIncludes = 64
)

// Finder returns the source and text of a policy by its name. The error is fs.ErrNotExist if there
// is none.
type Finder func(name string) (source string, text []byte, err error)

// File is a parsed policy file with all its includes.
type File struct {
	Kind   Kind
	Source string
	// "" if the file has none
	Name    string
	About   string
	Include []string
	Policy  policy.Policy
	// At has the position of each key, as "limits.memory", and of list items by number and by text,
	// as a Decision names them: `tools.allow[0]` and `tools.allow "core-utils/*"`. Inherited keys
	// have their position in the included file, and their items only the entry by text.
	At map[string]Position
	// Tools are the sections of tools. Their keys in At begin with `tool."PATTERN".`.
	Tools []policy.ForTool
	// Version is the version of the file, for hosts that require signatures; 0 if it has none.
	Version int64
	// Host is a ceiling's settings for policy files; zero for other kinds.
	Host Host
}

// Layer returns the policy as a layer for a run.
func (f File) Layer(name, source string) policy.Layer {
	return policy.Layer{Name: name, Source: source, Policy: f.Policy, Tools: f.Tools}
}

// Parse parses a policy without variables. The error has the type Errors and holds all errors.
func Parse(kind Kind, source string, text []byte, find Finder) (File, error) {
	return ParseFor(Places{}, kind, source, text, find)
}

// ParseFor is Parse for a caller, whose places replace the variables.
func ParseFor(places Places, kind Kind, source string, text []byte, find Finder) (File, error) {
	var errs Errors
	p := &parser{kind: kind, find: find, places: places, errs: &errs, done: map[string]*draft{},
		texts: map[string][]byte{}}
	d, include := p.one(source, text, nil)
	if d == nil {
		return File{}, errs.sorted().quoted(p.texts)
	}
	// Missing keys can only be reported if all of the policy was read.
	if len(errs) == 0 {
		p.finish(source, d)
	}
	if len(errs) > 0 {
		return File{}, errs.sorted().quoted(p.texts)
	}
	return File{kind, source, d.name, d.about, include, d.policy.Normal(), d.at, d.sections(),
		d.version, d.host}, nil
}

type parser struct {
	kind   Kind
	find   Finder
	places Places
	errs   *Errors
	// the drafts of the files included so far; nil for a refused one
	done map[string]*draft
	// the texts of the files, for errors
	texts map[string][]byte
}

// one parses a file and merges its includes into it. path has the names of the including files.
func (p *parser) one(source string, text []byte, path []string) (*draft, []string) {
	// Errors of this file are counted separately, so that another file's do not hide them.
	var errs Errors
	p.texts[source] = text[:min(len(text), MaxBytes)]
	root := parseTree(source, text, &errs)
	if root == nil {
		p.errs.join(errs)
		return nil, nil
	}
	d := &draft{at: map[string]Position{}}
	r := &reader{values{d, &errs}, p.kind, len(path) > 0, p.places}
	r.file(root)
	p.errs.join(errs)
	var names []string
	base := &draft{at: map[string]Position{}}
	whole := true
	for _, inc := range d.include {
		names = append(names, inc.name)
		got := p.included(inc, path)
		if got == nil {
			whole = false
			continue
		}
		// Of two includes, the later one overrides the earlier.
		got = got.clone()
		got.inherit(base)
		base = got
	}
	// An include that could not be read may hold the item.
	if whole {
		d.takeOut(base, p.errs)
	}
	d.inherit(base)
	return d, names
}

func (p *parser) included(inc included, path []string) *draft {
	for i, name := range path {
		if name == inc.name {
			p.errs.add(inc.pos, "", "include goes round in a circle: %s",
				strings.Join(append(path[i:], inc.name), " includes "))
			return nil
		}
	}
	if d, ok := p.done[inc.name]; ok {
		return d
	}
	switch {
	case len(path) >= maxIncludeDepth:
		p.errs.add(inc.pos, "", "include goes deeper than %d files", maxIncludeDepth)
		return nil
	case len(p.done) >= maxIncludes:
		p.errs.add(inc.pos, "", "the policy is made of more than %d files", maxIncludes)
		return nil
	case p.find == nil:
		p.errs.add(inc.pos, "", "include has no meaning here")
		return nil
	}
	source, text, err := p.find(inc.name)
	if err != nil {
		why := err.Error()
		if errors.Is(err, fs.ErrNotExist) {
			why = "there is no such policy"
		}
		p.errs.add(inc.pos, "", "include %q: %s", inc.name, why)
		return nil
	}
	d, _ := p.one(source, text, append(path[:len(path):len(path)], inc.name))
	p.done[inc.name] = d
	return d
}

// finish sets the defaults and checks the policy as a whole.
func (p *parser) finish(source string, d *draft) {
	if p.kind == Profile {
		p.complete(source, d)
		for i := range *p.errs {
			(*p.errs)[i].Incomplete = true
		}
	}
	d.fill(p.kind)
	for _, t := range d.tools {
		t.fill(Request)
	}
	if len(*p.errs) > 0 {
		return
	}
	// Each key was checked before. Left are conflicting mounts and lists that are too long.
	for _, t := range d.tools {
		if err := t.policy.Check(); err != nil {
			for line := range strings.SplitSeq(err.Error(), "\n") {
				p.errs.add(d.at[strings.TrimSuffix(t.section.prefix, ".")], "", "%s%s",
					t.section.prefix, line)
			}
		}
	}
	if err := d.policy.Check(); err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			p.errs.add(d.placeOf(source, line), "", "%s", line)
		}
	}
}

// placeOf returns the position of the key with which a message of policy.Check begins.
func (d *draft) placeOf(source, message string) Position {
	key, _, _ := strings.Cut(message, ":")
	for i, pos := range d.mountAt {
		if key == indexed("mount", i) {
			return pos
		}
	}
	key, _, _ = strings.Cut(key, " ")
	if pos, ok := d.at[key]; ok {
		return pos
	}
	return Position{source, 1, 1}
}

// complete reports the keys that a profile must have and lacks.
func (p *parser) complete(source string, d *draft) {
	missing := func(section string, names []string) {
		var absent []string
		for _, name := range names {
			if !d.has(section+"."+name) && !slices.Contains(policy.OptionalLimits(), name) {
				absent = append(absent, name)
			}
		}
		if len(absent) > 0 {
			p.errs.add(d.sectionAt(source, section), "add `include = [\"base\"]`, or set them",
				"limits are missing, and a limit that is missing grants nothing: [%s] has no %s",
				section, strings.Join(absent, ", "))
		}
	}
	missing("limits", policy.LimitNames())
	if len(d.policy.Fetch.Allow) > 0 {
		missing("fetch.limits", policy.FetchLimitNames())
	}
	t, s := d.policy.Tools, d.policy.Syscalls
	if (len(t.Allow) > 0 || len(t.Modules) > 0) && !s.Has(policy.GroupWASI) {
		p.errs.add(d.sectionAt(source, "syscalls"),
			"add `include = [\"base\"]`, or groups = [\"wasi\"] in [syscalls]",
			"tools.allow and tools.modules need the system calls of the group wasi")
	}
	for key, list := range map[string]policy.Globs{"tools.native": t.Native,
		"tools.images": t.Images} {
		if len(list) > 0 && !s.Has(policy.GroupNative) {
			p.errs.add(d.sectionAt(source, "syscalls"), "add \"native\" to groups in [syscalls]",
				"%s needs the system calls of the group native", key)
		}
	}
}

func (d *draft) sectionAt(source, section string) Position {
	if pos, ok := d.at[section]; ok && pos.File == source {
		return pos
	}
	return Position{source, 1, 1}
}
