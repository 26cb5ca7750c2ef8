package gitrepo

import (
	"bytes"
	"compress/zlib"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// Want names a branch or tag to take from the shadow, like a refspec of git fetch.
type Want struct {
	// From is the ref in the shadow, Into the one in the real repository; "" is the same name.
	From string `json:"from"`
	Into string `json:"into,omitempty"`
	// Force also takes what is not a fast-forward.
	Force bool `json:"force,omitempty"`
}

// ParseWant parses a Want of the form [+]REF[:NAME].
func ParseWant(text string) (w Want, err error) {
	text, w.Force = strings.CutPrefix(text, "+")
	w.From, w.Into, _ = strings.Cut(text, ":")
	for _, name := range []string{w.From, w.Into} {
		if name != "" && !ValidRef("refs/heads/"+strings.TrimPrefix(name, "refs/heads/")) {
			return w, fmt.Errorf("%q is no name of a branch or tag", clean(name, 100))
		}
	}
	if w.From == "" {
		return w, errors.New("no branch is named")
	}
	return w, nil
}

// Taken is the result of Take: the objects that the real side lacks, and the change of the ref.
type Taken struct {
	// Ref is the full name of the real side's ref. Before is its value, "" for a new ref.
	Ref    string `json:"ref"`
	Before string `json:"before,omitempty"`
	After  string `json:"after"`
	// Line describes the change of the ref for people.
	Line    string        `json:"line"`
	Objects []TakenObject `json:"objects"`
}

// TakenObject is an object that the real side lacks. Take has checked its content.
type TakenObject struct {
	Name string `json:"name"`
	// SHA256 of the object's file, if the object is loose in the shadow; else "".
	SHA256 string `json:"sha256,omitempty"`
	// File is the content of a loose object's file, if the object is packed in the shadow.
	File []byte `json:"-"`
}

// Path returns the path of the object's loose file, relative to the git directory. It returns false
// if Name is no object id.
func (o TakenObject) Path() (string, bool) {
	name, ok := parseOID(o.Name)
	return loosePath(name), ok
}

// Valid reports whether a Taken from another process has a well-formed ref and well-formed ids.
func (t Taken) Valid() bool {
	_, after := parseOID(t.After)
	return validTarget(t.Ref) && after && clean(t.Line, 600) == t.Line &&
		!slices.ContainsFunc(t.Objects, func(o TakenObject) bool {
			_, ok := parseOID(o.Name)
			return !ok
		})
}

func validTarget(ref string) bool {
	return ValidRef(ref) && (strings.HasPrefix(ref, "refs/heads/") ||
		strings.HasPrefix(ref, "refs/tags/"))
}

// Bounds of Take.
const (
	MaxTaken      = 50000    // objects
	MaxTakenBytes = 64 << 20 // of objects of packs, deflated
	maxTreeDepth  = 500
)

// Refusal is an error of Take: a sentence that says why the branch cannot be taken.
type Refusal string

func (r Refusal) Error() string { return string(r) }

// CleanRefusal returns a Refusal for the text from another process, cleaned and cut off.
func CleanRefusal(text string) Refusal { return Refusal(clean(text, 600)) }

func refuse(format string, args ...any) error { return Refusal(fmt.Sprintf(format, args...)) }

// Take finds the objects that the real side needs for want. It checks each as git fsck --strict
// does, and that none that the ref reaches is missing. Its errors but context.Canceled are a
// Refusal.
func Take(ctx context.Context, files Files, want Want) (Taken, error) {
	r, err := openRepository(ctx, files)
	if err == nil {
		defer r.Close()
		t := &taker{repository: r, seen: map[oid]bool{}}
		if err = t.take(want); err == nil {
			return t.taken, nil
		}
	}
	refusal := Refusal("")
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		err = refuse("it takes too long to read")
	case errors.As(err, &refusal), errors.Is(err, context.Canceled):
	default:
		err = refuse("%s", clean(err.Error(), 300))
	}
	return Taken{}, err
}

type taker struct {
	*repository
	taken Taken
	// seen are the trees and blobs that were visited.
	seen  map[oid]bool
	bytes int
}

func (t *taker) take(want Want) error {
	theirs, err := t.refs(Shadow)
	if err != nil {
		return err
	}
	ours, err := t.refs(Real)
	if err != nil {
		return err
	}
	from, into, err := resolve(want, theirs)
	if err != nil {
		return err
	}
	tip, ok := parseOID(theirs[from])
	if !ok {
		return refuse("%s names no object", from)
	}
	t.taken.Ref, t.taken.Before, t.taken.After = into, ours[into], tip.String()
	if t.taken.Before == t.taken.After {
		return refuse("%s is at %s already", into, tip.String()[:7])
	}
	if err := t.mayMove(into, ours); err != nil {
		return err
	}
	commit, err := t.tags(into, tip)
	if err != nil {
		return err
	}
	if err := t.fastForward(want, into, commit); err != nil {
		return err
	}
	if err := t.history(commit, t.tips(ours)); err != nil {
		return err
	}
	change, err := t.refChange(into, t.taken.Before, t.taken.After, t.tips(ours))
	if err != nil {
		return err
	}
	t.taken.Line = clean(change.line(), 600)
	return nil
}

// resolve returns the full names of both refs. theirs are the shadow's refs.
func resolve(want Want, theirs map[string]string) (from, into string, err error) {
	from = want.From
	if !strings.HasPrefix(from, "refs/") {
		_, branch := theirs["refs/heads/"+from]
		_, tag := theirs["refs/tags/"+from]
		switch {
		case branch && tag:
			return "", "", refuse("%s is a branch and a tag: name refs/heads/%s or refs/tags/%s",
				from, from, from)
		case tag:
			from = "refs/tags/" + from
		default:
			from = "refs/heads/" + from
		}
	}
	if _, ok := theirs[from]; !ok {
		return "", "", refuse("the run has no ref %s", from)
	}
	switch into = want.Into; {
	case into == "":
		into = from
	case !strings.HasPrefix(into, "refs/"):
		prefix := "refs/heads/"
		if strings.HasPrefix(from, "refs/tags/") {
			prefix = "refs/tags/"
		}
		into = prefix + into
	}
	if !validTarget(into) {
		return "", "", refuse("%s is no branch and no tag", clean(into, 100))
	}
	return from, into, nil
}

// mayMove returns a Refusal if the ref into is checked out in the real repository, is symbolic, or
// its name conflicts with another ref. ours are the real side's refs.
func (t *taker) mayMove(into string, ours map[string]string) error {
	for name := range ours {
		if strings.HasPrefix(name, into+"/") || strings.HasPrefix(into, name+"/") {
			return refuse("the ref %s of the real repository is in the way of %s", clean(name, 100),
				into)
		}
	}
	if value := ours[into]; value != "" {
		if _, ok := parseOID(value); !ok {
			return refuse("%s of the real repository names another ref", into)
		}
	}
	dirs := []string{""}
	names, err := t.list(Real, "worktrees")
	if err != nil {
		return err
	}
	for _, name := range names {
		dirs = append(dirs, "worktrees/"+name+"/")
	}
	for _, dir := range dirs {
		for _, file := range []string{"HEAD", "rebase-merge/head-name", "rebase-apply/head-name",
			"BISECT_START"} {
			if dir == "" && file == "HEAD" && t.bare {
				continue
			}
			text, err := t.read(Real, dir+file, 4096)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return err
			}
			at := strings.TrimSpace(string(text))
			if ref, ok := symbolic(at); ok {
				at = ref
			}
			if at == into || file == "BISECT_START" && "refs/heads/"+at == into {
				return refuse("%s is checked out in the real repository: take it as another "+
					"branch, %s:NAME, and merge that with git, or commit the whole change set",
					into, strings.TrimPrefix(into, "refs/heads/"))
			}
		}
	}
	return nil
}

// tags adds the tag objects between the ref into, whose id is name, and its commit, and returns the
// id of the commit.
func (t *taker) tags(into string, name oid) (oid, error) {
	for range 10 {
		o, err := t.load(name)
		if err != nil {
			return name, err
		}
		if o.kind == commitKind {
			return name, nil
		}
		if o.kind != tagKind || !strings.HasPrefix(into, "refs/tags/") {
			return name, refuse("%s names a %s, not a commit", into, o.kind)
		}
		of, what, err := checkTag(o.data)
		if err != nil {
			return name, refuse("tag %s: %v", name, err)
		}
		if err := t.add(name, tagKind); err != nil {
			return name, err
		}
		inner, err := t.load(of)
		if err == nil && inner.kind != what {
			err = refuse("tag %s: its object is a %s", name, inner.kind)
		}
		if err != nil {
			return name, err
		}
		name = of
	}
	return name, refuse("%s is a tag of tags", into)
}

// fastForward returns a Refusal if the change of a branch is no fast-forward or the tag exists,
// unless want.Force is set.
func (t *taker) fastForward(want Want, into string, tip oid) error {
	if t.taken.Before == "" || want.Force {
		return nil
	}
	if strings.HasPrefix(into, "refs/tags/") {
		return refuse("the real repository has another tag %s; +%s takes this one", into, want.From)
	}
	old, _ := parseOID(t.taken.Before)
	c, err := t.compare([]oid{tip}, []oid{old}, false)
	switch {
	case err != nil:
		return err
	case c.marks[old]&fromNew != 0:
		return nil
	case c.more:
		return errMany
	}
	return refuse("%s is not a fast-forward: it has commits that the run's branch does not have; "+
		"+%s takes it all the same", into, want.From)
}

// history adds the commits that tip reaches and known, the real side's, do not, with their trees.
func (t *taker) history(tip oid, known []oid) error {
	c, err := t.compare([]oid{tip}, known, false)
	if err == nil && c.more {
		err = errMany
	}
	if err != nil {
		return err
	}
	for _, name := range c.in {
		o, err := t.load(name)
		if err != nil {
			return err
		}
		if err := checkCommit(o.data); err != nil {
			return refuse("commit %s: %v", name, err)
		}
		// The parents of a shallow commit are missing, so the real side could not have it whole.
		if t.shallow[name] {
			return refuse("commit %s has no history in this shallow repository", name)
		}
		if err := t.add(name, commitKind); err != nil {
			return err
		}
		parsed := t.commits[name]
		var bases []oid
		for _, parent := range parsed.parents {
			bases = append(bases, t.commits[parent].tree)
		}
		if err := t.tree(parsed.tree, bases, 0); err != nil {
			return err
		}
	}
	return nil
}

// tree adds a tree and all beneath it, except entries that one of the trees bases has, too.
func (t *taker) tree(name oid, bases []oid, depth int) error {
	if t.seen[name] || slices.Contains(bases, name) {
		return nil
	}
	t.seen[name] = true
	if depth > maxTreeDepth {
		return refuse("tree %s is nested too deep", name)
	}
	entries, err := t.entries(name)
	if err != nil {
		return err
	}
	if err := t.add(name, treeKind); err != nil {
		return err
	}
	known := make([]map[string]treeEntry, len(bases))
	for i, base := range bases {
		theirs, err := t.entries(base)
		if err != nil {
			return err
		}
		known[i] = map[string]treeEntry{}
		for _, e := range theirs {
			known[i][e.name] = e
		}
	}
	for _, e := range entries {
		var below []oid
		same := false
		for _, base := range known {
			old, ok := base[e.name]
			same = same || ok && old == e
			if ok && old.isTree() {
				below = append(below, old.oid)
			}
		}
		switch {
		case same || e.mode == "160000":
		case e.isTree():
			err = t.tree(e.oid, below, depth+1)
		default:
			err = t.blob(e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *taker) entries(name oid) ([]treeEntry, error) {
	o, err := t.load(name)
	if err != nil {
		return nil, err
	}
	if o.kind != treeKind {
		return nil, refuse("object %s is a %s, not a tree", name, o.kind)
	}
	entries, err := parseTree(o.data)
	if err != nil {
		err = refuse("tree %s: %v", name, err)
	}
	return entries, err
}

func (t *taker) blob(e treeEntry) error {
	if check := checkOf(e.name); check != nil {
		o, err := t.load(e.oid)
		if err != nil {
			return err
		}
		if err := check(o.data); err != nil {
			return refuse("object %s: %v", e.oid, err)
		}
	}
	if t.seen[e.oid] {
		return nil
	}
	t.seen[e.oid] = true
	return t.add(e.oid, blobKind)
}

// add checks an object and adds it to the taken ones, unless the real side has it. It is called
// once for each object.
func (t *taker) add(name oid, want kind) error {
	there, err := t.has(Real, name)
	if err != nil || there {
		return err
	}
	if len(t.taken.Objects) == MaxTaken {
		return refuse("more than %d objects are new", MaxTaken)
	}
	out := TakenObject{Name: name.String()}
	var o object
	file, err := t.readLoose(Shadow, name)
	switch {
	case err == nil:
		out.SHA256 = fmt.Sprintf("%x", sha256.Sum256(file))
		o, err = t.parseLoose(file)
	case errors.Is(err, fs.ErrNotExist):
		o, err = t.loadPacked(Shadow, name)
		// git needs no file of the empty tree, but git fsck reports it as missing.
		if errors.Is(err, errMissing) && name == emptyTree {
			o, err = object{kind: treeKind}, nil
		}
		if err == nil {
			out.File, err = deflate(o)
			t.bytes += len(out.File)
		}
	}
	if err == nil && t.bytes > MaxTakenBytes {
		return refuse("more than %d MiB of new objects are packed", MaxTakenBytes>>20)
	}
	if err != nil {
		return fmt.Errorf("object %s: %w", name, err)
	}
	if err = o.check(name); err == nil && o.kind != want {
		err = fmt.Errorf("it is a %s, not a %s", o.kind, want)
	}
	if err != nil {
		return fmt.Errorf("object %s: %w", name, err)
	}
	t.taken.Objects = append(t.taken.Objects, out)
	return nil
}

// deflate returns the content of a loose object's file.
func deflate(o object) ([]byte, error) {
	var out bytes.Buffer
	z := zlib.NewWriter(&out)
	if _, err := fmt.Fprintf(z, "%s %d\x00", o.kind, len(o.data)); err != nil {
		return nil, err
	}
	if _, err := z.Write(o.data); err != nil {
		return nil, err
	}
	err := z.Close()
	return out.Bytes(), err
}
