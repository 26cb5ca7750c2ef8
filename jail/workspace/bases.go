package workspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/jail-sandbox/jail/jail/internal/sys"
	"github.com/jail-sandbox/jail/policy"
)

// A merge needs three contents: the shadow's, the present real one, and the base, which the tool
// began with. The base exists only in the real directory, until somebody changes it there. So jail
// saves the real content of the text files that the tool has changed: at the end of a run, and
// after each invocation of a session, since overlayfs reports no copy-up. If the ctime shows that a
// file changed in the real directory before that, its base is unknown, and the file is not merged.
//
// After a commit of a live workspace the base of a path is the tool's side of that commit.
const (
	maxBaseBytes = 16 << 20
	maxBaseFiles = 5000
	// maxBaseLog bounds the file with the contents in bytes. Outdated contents stay in it.
	maxBaseLog  = 4 * maxBaseBytes
	baseIndex   = "base.json"
	baseContent = "base.dat"
)

type baseFile struct {
	Path   Name   `json:"path"`
	Offset int64  `json:"offset"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	Mode   uint32 `json:"mode"`
	// Commit: the content is the tool's side of a commit, not the real file of before the run.
	Commit bool `json:"commit,omitempty"`
}

// bases are the saved base contents of a workspace whose layer this process made, and the paths
// that SaveBases need not look at again.
type bases struct {
	read  bool
	index []baseFile
	// end is the offset after the last content in the file.
	end int64
	// looked are the paths for which SaveBases has decided whether to save a base.
	looked map[Name]bool
	// dirs are the directories of the layer, by path, as they were listed last.
	dirs map[string]listedDir
}

// A listedDir is a directory of the layer whose entries SaveBases has looked at. It is listed again
// when its ctime has changed, which each copy-up does.
type listedDir struct {
	ctime sys.Time
	subs  []string
}

// open reads the index of the saved bases, unless that was done before.
func (b *bases) open(home folder) error {
	if b.read {
		return nil
	}
	index, err := readJSON[[]baseFile](home.dir, baseIndex)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	b.looked, b.dirs, b.read = map[Name]bool{}, map[string]listedDir{}, true
	if err != nil {
		return nil
	}
	b.index = *index
	for _, f := range b.index {
		b.looked[f.Path] = true
		b.end = max(b.end, f.Offset+f.Size)
	}
	return nil
}

// room reports whether one more base of size bytes may be saved in addition to index and more.
func (b *bases) room(more []newBase, size int64) bool {
	total, end := size, b.end+size
	for _, f := range b.index {
		total += f.Size
	}
	for _, m := range more {
		total += int64(len(m.text))
		end += int64(len(m.text))
	}
	return size <= maxPatched && len(b.index)+len(more) < maxBaseFiles &&
		total <= maxBaseBytes && end <= maxBaseLog
}

// A newBase is base content that is to be saved.
type newBase struct {
	path   Name
	text   string
	mode   uint32
	commit bool
}

// add saves bases. It does not wait for the disk: a live workspace does not survive a power loss.
// It overwrites content after the last one in the index, which an interrupted add may have left.
func (b *bases) add(home folder, more []newBase) error {
	if len(more) == 0 {
		return nil
	}
	f, err := sys.OpenBeneath(home.dir, baseContent, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	index, at := b.index, b.end
	for _, m := range more {
		n := textNode(m.text, m.mode)
		if _, err := f.WriteAt([]byte(m.text), at); err != nil {
			return err
		}
		index = append(index, baseFile{m.path, at, n.Size, n.SHA256, m.mode, m.commit})
		at += n.Size
	}
	if err := home.writeJSON(baseIndex, index, false); err != nil {
		return err
	}
	b.index, b.end = index, at
	return nil
}

// SaveBases saves the bases of the files that the tools of a live workspace have touched since the
// last call. It looks only into directories of the layer that exist in the real directory, and
// lists only those that changed: its cost does not depend on the size of the workspace. The tools
// may go on meanwhile.
func SaveBases(ctx context.Context, w *Workspace) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.meta.State != Active && w.meta.State != Prepared {
		return nil
	}
	return w.wrap("save what the tool began with", saveBases(ctx, w))
}

func saveBases(ctx context.Context, w *Workspace) error {
	if err := errors.Join(w.bases.open(w.home), opening{w}.openFor(true)); err != nil {
		return err
	}
	upper, err := w.layer.openOwn()
	if err != nil {
		return err
	}
	defer upper.Close()
	before, err := w.home.readTaken()
	if err != nil {
		return err
	}
	now, err := sys.CoarseNow()
	if err != nil {
		return err
	}
	l := look{b: &w.bases, p: &patcher{w: w}, taken: before, now: now,
		k: &walker{ctx: ctx, as: w.meta.Caller, meta: &w.meta, hide: policy.Hidden(w.meta.Hide)}}
	err = l.dir(upper, w.source, "", 0)
	return errors.Join(err, w.bases.add(w.home, l.found))
}

// look is the work of one SaveBases.
type look struct {
	b     *bases
	k     *walker
	p     *patcher
	taken taken
	// now is the time at which the look began, on the clock of ctimes.
	now   sys.Time
	found []newBase
}

func (l *look) dir(upper, real *os.File, path string, depth int) error {
	if err := l.k.ctx.Err(); err != nil || depth > maxDepth {
		return err
	}
	st, err := sys.Fstat(upper)
	if err != nil {
		return err
	}
	listed, known := l.b.dirs[path]
	if !known || listed.ctime != st.Ctime {
		if listed, err = l.list(upper, real, path, st.Ctime); err != nil {
			return err
		}
	}
	for _, name := range listed.subs {
		sub, err := sys.OpenSubdir(upper, name)
		if missing(err) {
			continue
		}
		if err != nil {
			return err
		}
		realSub, err := l.k.openDir(real, name)
		if err == nil {
			err = l.dir(sub, realSub, join(path, name), depth+1)
			realSub.Close()
		} else if missing(err) || errors.Is(err, fs.ErrPermission) {
			// The tool made it. What is in it has no base.
			err = nil
		}
		sub.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// list lists a directory of the layer that has changed, and saves the bases of its new files.
func (l *look) list(upper, real *os.File, path string, ctime sys.Time) (d listedDir, err error) {
	d.ctime = ctime
	names, err := upper.Readdirnames(-1)
	if err != nil {
		return d, err
	}
	for _, name := range names {
		st, err := sys.LstatAt(upper, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return d, err
		}
		in := Name(join(path, name))
		switch _, taken := l.taken.all[in]; {
		case typeOf(st) == Dir:
			d.subs = append(d.subs, name)
		case typeOf(st) != File || taken || l.b.looked[in] || l.k.hide.Match(string(in)):
		default:
			if err := l.file(real, name, in); err != nil {
				return d, err
			}
		}
	}
	// A later entry in the same tick of the clock would not change the ctime.
	if ctime.Compare(l.now) < 0 {
		l.b.dirs[path] = d
	}
	return d, nil
}

// file saves the real content of a file that the layer has, if it did not change since the run
// began.
func (l *look) file(real *os.File, name string, path Name) error {
	l.b.looked[path] = true
	st, err := l.k.lookup(real, name)
	if err != nil || st == nil || typeOf(*st) != File || l.k.conflict(*st) != "" ||
		!l.b.room(l.found, st.Size) {
		return err
	}
	text, err := l.p.readReal(path, st.Size)
	if errors.Is(err, errNoText) {
		return nil
	}
	if err != nil {
		return err
	}
	after, err := l.k.lookup(real, name)
	if err != nil || after == nil || after.Ino != st.Ino || after.Ctime != st.Ctime ||
		strings.IndexByte(text, 0) >= 0 {
		return err
	}
	l.found = append(l.found, newBase{path: path, text: text, mode: st.Perm()})
	return nil
}

// saveCommitted saves the tool's content of each file in a commit of a live workspace. It is the
// base for later changes of the file.
func (c *commit) saveCommitted() error {
	b := &c.w.bases
	if err := b.open(c.w.home); err != nil {
		return err
	}
	b.prune(c.journal.Taken)
	p := &patcher{w: c.w}
	var more []newBase
	for _, t := range c.journal.Taken {
		if t.Sides == nil || t.Sides.Shadow == nil || t.Sides.Shadow.Type != File ||
			t.Sides.Real == nil {
			continue
		}
		n := t.Sides.Shadow
		if !b.room(more, n.Size) {
			continue
		}
		text, ok := c.texts[t.Path]
		if !ok || textNode(text, 0).SHA256 != n.SHA256 {
			var err error
			if text, err = p.readUpper(t.Path, n.Size); errors.Is(err, errNoText) {
				continue
			} else if err != nil {
				return err
			}
		}
		if textNode(text, 0).SHA256 == n.SHA256 && strings.IndexByte(text, 0) < 0 {
			more = append(more, newBase{t.Path, text, n.Mode, true})
		}
	}
	return b.add(c.w.home, more)
}

// prune removes the bases that earlier commits of these paths have saved from the index.
func (b *bases) prune(again []takenPath) {
	paths := map[Name]bool{}
	for _, t := range again {
		paths[t.Path] = true
	}
	b.index = slices.DeleteFunc(slices.Clone(b.index), func(f baseFile) bool {
		return f.Commit && paths[f.Path]
	})
}

// basis lists the changes of a review whose base a merge could need; see save.
type basis struct {
	changes []Change
	bytes   int64
}

// add notes a change whose base could be saved.
func (b *basis) add(c Change) {
	if c.Kind != Modified || c.Binary || c.Conflict != "" || c.Before.SHA256 == "" ||
		c.Before.Size > maxPatched || len(b.changes) >= maxBaseFiles {
		return
	}
	if b.bytes += c.Before.Size; b.bytes <= maxBaseBytes {
		b.changes = append(b.changes, c)
	}
}

// save saves the bases of the changes that are not saved yet, and makes all bases durable.
func (b *basis) save(w *Workspace) error {
	if w.source == nil {
		return nil
	}
	if err := w.bases.open(w.home); err != nil {
		return err
	}
	before, err := w.home.readTaken()
	if err != nil {
		return err
	}
	var more []newBase
	p := &patcher{w: w}
	for _, c := range b.changes {
		if _, taken := before.all[c.Path]; taken || w.bases.looked[c.Path] ||
			!w.bases.room(more, c.Before.Size) {
			continue
		}
		text, err := p.readReal(c.Path, c.Before.Size)
		if errors.Is(err, errNoText) {
			continue
		}
		if err != nil {
			return err
		}
		if n := textNode(text, c.Before.Mode); n.SHA256 != c.Before.SHA256 {
			// The host has just changed it.
			continue
		}
		more = append(more, newBase{path: c.Path, text: text, mode: c.Before.Mode})
	}
	if err := w.bases.add(w.home, more); err != nil || len(w.bases.index) == 0 {
		return err
	}
	f, err := sys.OpenBeneath(w.home.dir, baseContent, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return errors.Join(f.Sync(), w.home.writeJSON(baseIndex, w.bases.index, true))
}

// base returns the saved base content of a path and its mode: those of the real file when the run
// began, or of the tool's side of the path's last commit. ok is false if none is saved.
func (home folder) base(path Name, t taken) (text string, mode uint32, ok bool, err error) {
	index, err := readJSON[[]baseFile](home.dir, baseIndex)
	if errors.Is(err, fs.ErrNotExist) {
		return "", 0, false, nil
	}
	if err != nil {
		return "", 0, false, err
	}
	last, committed := t.all[path]
	for _, b := range *index {
		if b.Path != path || !committed && b.Commit ||
			committed && (last.Shadow == nil || last.Shadow.SHA256 != b.SHA256) {
			continue
		}
		d, err := sys.OpenBeneath(home.dir, baseContent, os.O_RDONLY, 0)
		if err != nil {
			return "", 0, false, err
		}
		defer d.Close()
		content, err := io.ReadAll(io.NewSectionReader(d, b.Offset, b.Size))
		if err == nil && textNode(string(content), 0).SHA256 != b.SHA256 {
			err = fmt.Errorf("%s: the saved content of %s is not what it was", baseContent, path)
		}
		return string(content), b.Mode, err == nil, err
	}
	return "", 0, false, nil
}
