package workspace

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// hostileNames are what a tool calls its files.
var hostileNames = []string{"a", "b", "c", "\n", "\x1b[2J", "\xff\xfe", "\u202egpj", `back\slash`,
	".wh.a", ".git", "...", " ", "-rf", strings.Repeat("n", 255), "é", "\"q'"}

// growTrees makes trees of the program: three bytes for each thing, which are what, its name, and
// in which directory and on which side.
func growTrees(t *testing.T, sides [2]string, program []byte) {
	dirs := [2][]string{{sides[0]}, {sides[1]}}
	for ; len(program) >= 3; program = program[3:] {
		what, name, where := program[0], hostileNames[int(program[1])%len(hostileNames)], program[2]
		for side := range 2 {
			if where&(1<<side) == 0 {
				continue
			}
			parent := dirs[side][int(where>>2)%len(dirs[side])]
			if len(parent) > 2000 {
				continue
			}
			p := filepath.Join(parent, name)
			var err error
			switch what % 11 {
			case 0, 1:
				if err = os.Mkdir(p, 0o755); err == nil {
					dirs[side] = append(dirs[side], p)
				}
			case 2:
				err = create(p, bytes.Repeat([]byte{what}, int(what)), os.FileMode(what)<<1)
			case 3:
				err = create(p, []byte(strings.Repeat(name+"\n", side+int(what)%7)), 0o644)
			case 4:
				err = os.Symlink("../../"+name, p)
			case 5:
				err = syscall.Mknod(p, syscall.S_IFIFO|0o600, 0)
			case 6:
				// In the upper layer: deleted.
				err = syscall.Mknod(p, syscall.S_IFCHR, 0)
			case 7:
				err = syscall.Mknod(p, syscall.S_IFCHR|0o666, 1<<8|3)
			case 8:
				err = syscall.Setxattr(parent, "trusted.overlay.opaque", []byte("y"), 0)
			case 9:
				if err = create(p, nil, 0o4755); err == nil {
					// A review reads holes too; the limit file_size bounds them.
					err = os.Truncate(p, int64(what)<<18)
				}
			case 10:
				err = os.Link(filepath.Join(parent, "a"), p)
			}
			if errors.Is(err, syscall.ENOSPC) {
				t.Fatal(err)
			}
		}
	}
}

// create makes a file that was not there: a name may already be a pipe, whose opening would wait
// for a reader.
func create(path string, content []byte, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}

// FuzzChanges reviews any upper layer over any real directory: the review ends, names each path
// once, directories first, says nothing that a terminal would not show as it is, and writes to
// neither side.
func FuzzChanges(f *testing.F) {
	if os.Geteuid() != 0 {
		f.Skip("device nodes and trusted attributes need root")
	}
	f.Add([]byte{0, 0, 3, 2, 1, 5, 6, 0, 1, 3, 2, 3})
	f.Add([]byte{0, 0, 1, 0, 0, 2, 8, 0, 5, 3, 1, 6, 4, 3, 1, 9, 4, 1})
	f.Add([]byte{0, 9, 3, 7, 5, 1, 5, 4, 1, 10, 2, 1, 2, 0, 2, 0, 0, 1})
	f.Fuzz(func(t *testing.T, program []byte) {
		if len(program) > 600 {
			return
		}
		top := t.TempDir()
		sides := [2]string{filepath.Join(top, "upper"), filepath.Join(top, "real")}
		var open [2]*os.File
		for i, dir := range sides {
			must(t, os.Mkdir(dir, 0o755))
			var err error
			open[i], err = os.Open(dir)
			must(t, err)
			defer open[i].Close()
		}
		growTrees(t, sides, program)
		before := [2]string{listingOf(t, sides[0]), listingOf(t, sides[1])}
		w := &Workspace{source: open[1],
			meta: meta{Mode: 0o755, Bytes: 64 << 20, Since: sys.Time{Sec: 1 << 40}}}
		var out bytes.Buffer
		p := &patcher{w: w, out: bufio.NewWriter(&out), terminal: true}
		seen := map[string]bool{}
		var changes []Change
		k := &walker{ctx: t.Context(), meta: &w.meta, holes: maxHoles, emit: func(c Change) error {
			path := string(c.Path)
			if seen[path] {
				t.Errorf("%q is named twice", path)
			}
			seen[path] = true
			if path != "" && (!filepath.IsLocal(path) || filepath.Clean(path) != path) {
				t.Errorf("%q is no path below the directory", path)
			}
			text, err := json.Marshal(c)
			if err != nil || !harmless(string(text)) {
				t.Errorf("%q is shown as %s, %v", path, text, err)
			}
			changes = append(changes, c)
			var was, is *side
			if c.Before != nil && c.Before.Type == Link {
				was = &side{"120000", string(c.Before.Target)}
			}
			if c.After != nil && c.After.Type == File && !c.Binary && c.Refused == "" &&
				c.After.Size < maxPatched {
				text, err := readBelow(open[0], c.Path, c.After.Size)
				must(t, err)
				is = &side{"100644", text}
			}
			if was != nil || is != nil {
				must(t, p.diffs(c.Path, was, is))
			}
			return nil
		}}
		if err := k.root(&upperDir{dirs: open[:1]}, open[1]); err != nil && !errors.Is(err, errTooDeep) {
			t.Fatal(err)
		}
		if _, err := choose(slices.Clone(changes), CommitOptions{}); err == nil {
			_, _ = choose(changes, CommitOptions{Paths: []Name{"a", "\n"}})
		}
		must(t, p.out.Flush())
		if !harmless(out.String()) {
			t.Errorf("a terminal gets %q", out.String())
		}
		for i, dir := range sides {
			if now := listingOf(t, dir); now != before[i] {
				t.Errorf("the review changed %s", filepath.Base(dir))
			}
		}
	})
}

// harmless reports whether a text holds nothing but what a terminal shows, tabs and new lines.
func harmless(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s,
		func(r rune) bool { return !strconv.IsPrint(r) && r != '\n' && r != '\t' })
}

// FuzzPatch: the differences between any two texts give both back.
func FuzzPatch(f *testing.F) {
	f.Add("a\nb\nc\n", "a\nc\nd")
	f.Add("", "x\r\n\x1b[31m")
	f.Add(strings.Repeat("l\n", 30), strings.Repeat("l\n", 12)+"m\n"+strings.Repeat("l\n", 17))
	f.Fuzz(func(t *testing.T, before, after string) {
		if before == after || len(before)+len(after) > 20_000 {
			return
		}
		var out bytes.Buffer
		p := &patcher{out: bufio.NewWriter(&out)}
		must(t, p.diff("f", &side{"100644", before}, &side{"100644", after}))
		must(t, p.out.Flush())
		if got, err := patched(before, out.String()); err != nil || got != after {
			t.Errorf("%q with %q is %q, %v, want %q", before, out.String(), got, err, after)
		}
		var shown bytes.Buffer
		p = &patcher{out: bufio.NewWriter(&shown), terminal: true}
		must(t, p.diff("f", &side{"100644", before}, &side{"100644", after}))
		must(t, p.out.Flush())
		if !harmless(shown.String()) {
			t.Errorf("a terminal gets %q", shown.String())
		}
	})
}

// patched is patch(1) in small.
func patched(before, patch string) (string, error) {
	old := slices.Collect(strings.Lines(before))
	var out []string
	at := 0
	var last *string
	for line := range strings.Lines(patch) {
		switch {
		case strings.HasPrefix(line, "diff "), strings.HasPrefix(line, "--- a/") && last == nil,
			strings.HasPrefix(line, "+++ b/") && last == nil:
		case strings.HasPrefix(line, "@@ "):
			from, _, _ := strings.Cut(strings.TrimPrefix(line, "@@ -"), " ")
			first, count, _ := strings.Cut(from, ",")
			n, err := strconv.Atoi(first)
			if err != nil {
				return "", err
			}
			if count != "0" {
				n--
			}
			for ; at < n; at++ {
				out = append(out, old[at])
			}
			last = new(string)
		case strings.HasPrefix(line, `\`):
			if n := len(out); n > 0 && *last != "-" {
				out[n-1] = strings.TrimSuffix(out[n-1], "\n")
			}
		case line[0] == '+':
			out = append(out, line[1:])
			*last = "+"
		case at >= len(old):
			return "", io.ErrUnexpectedEOF
		default:
			if line[0] == ' ' {
				out = append(out, old[at])
			}
			if want := old[at]; strings.TrimSuffix(want, "\n") != strings.TrimSuffix(line[1:],
				"\n") {
				return "", errors.New("a line that is not there")
			}
			at++
			last = &[]string{line[:1]}[0]
		}
	}
	return strings.Join(append(out, old[at:]...), ""), nil
}

// listingOf describes a tree without reading it, so that access times stay.
func listingOf(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	must(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil {
			b.WriteString(path + " " + info.Mode().String() + " " + strconv.FormatInt(info.Size(),
				10) + " " + info.ModTime().String() + "\n")
		}
		return err
	}))
	return b.String()
}
