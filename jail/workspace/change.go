package workspace

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/jail-sandbox/jail/jail/internal/sys"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/paths"
)

// Kind is the kind of a change.
type Kind string

// Kinds of changes, by what differs in the shadow.
const (
	Added Kind = "added"
	// The content of a file, and perhaps its mode.
	Modified Kind = "modified"
	Deleted  Kind = "deleted"
	// The permission bits only.
	Mode Kind = "mode"
	// One type became another.
	Retyped Kind = "type"
	// The target of a symbolic link.
	Relinked Kind = "link"
)

// Type is the type of a path.
type Type string

// Types of paths. The last three are shown, and never committed.
const (
	File   Type = "file"
	Dir    Type = "dir"
	Link   Type = "link"
	Fifo   Type = "fifo"
	Socket Type = "socket"
	Device Type = "device"
)

// Node describes a path on one side of a change: in the real directory or in the shadow.
type Node struct {
	Type Type `json:"type"`
	// Mode has permission, set-id and sticky bits; a commit leaves out the latter two.
	Mode uint32 `json:"mode"`
	// Size of a file in bytes.
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256,omitempty"`
	// Target of a link.
	Target Name `json:"target,omitempty"`
}

// Change is one path that differs between the real directory and its shadow.
type Change struct {
	// Path is relative to the workspace; "" is the directory itself.
	Path Name `json:"path"`
	Kind Kind `json:"kind"`
	// Before is the present state in the real directory. The content of a deleted file is not read,
	// nor that of a file that the caller cannot read.
	Before *Node `json:"before,omitempty"`
	// After is the state in the shadow.
	After *Node `json:"after,omitempty"`
	// Binary: the content, before or after, has a NUL near its beginning.
	Binary bool `json:"binary,omitempty"`
	// Outside: a link whose target is absolute or leads out of the workspace.
	Outside bool `json:"outside,omitempty"`
	// Risks say why the change needs attention, those first that hold it back.
	Risks []Risk `json:"risks,omitempty"`
	// Scripts are the package manager's commands that the change adds, changes or removes. Only
	// Show sets them.
	Scripts []Script `json:"scripts,omitempty"`
	// Git is the part of a git repository that the path belongs to, "" for none.
	Git GitPart `json:"git,omitempty"`
	// Merged: the commit writes a merge of both sides' changes.
	Merged bool `json:"merged,omitempty"`
	// Conflict says how the real path changed since the run began, if it did.
	Conflict string `json:"conflict,omitempty"`
	// Refused says why the change is never committed; "" if it can be.
	Refused string `json:"refused,omitempty"`

	// seen is the stat of the real path when it was compared.
	seen sys.Stat
	// hidden: the content must not be shown.
	hidden bool
	// pastEntry is, for a revert, the index of the entry in past that has the content.
	pastEntry int
	repo      *repository
	// part of repo.
	part policy.GitPart
}

// special reports whether c makes a named pipe, socket or device. Those are never committed.
func (c Change) special() bool {
	return c.After != nil && slices.Contains([]Type{Fifo, Socket, Device}, c.After.Type)
}

// Summary counts changes.
type Summary struct {
	Added int `json:"added"`
	// Modified counts all changes but added and deleted paths.
	Modified int `json:"modified"`
	Deleted  int `json:"deleted"`
	// Bytes is the size of the added and modified files.
	Bytes int64 `json:"bytes"`
}

func (s *Summary) add(c Change) {
	switch c.Kind {
	case Added:
		s.Added++
	case Deleted:
		s.Deleted++
	default:
		s.Modified++
	}
	if c.After != nil && (c.Kind == Added || c.Kind == Modified) {
		s.Bytes += c.After.Size
	}
}

// Total returns the number of changes.
func (s Summary) Total() int { return s.Added + s.Modified + s.Deleted }

// digester computes the digest of a change set: SHA-256 over one line of JSON for each change, in
// order, with path, kind and both sides. The other fields of a Change may differ between two looks
// at the same changes.
type digester struct{ h hash.Hash }

func newDigester() digester { return digester{sha256.New()} }

func (d digester) add(c Change) {
	line, err := json.Marshal(struct {
		Path   Name  `json:"path"`
		Kind   Kind  `json:"kind"`
		Before *Node `json:"before"`
		After  *Node `json:"after"`
	}{c.Path, c.Kind, c.Before, c.After})
	if err != nil {
		// Strings and numbers always marshal.
		panic(err)
	}
	d.h.Write(append(line, '\n'))
}

func digestOf(changes []Change) string {
	d := newDigester()
	for _, c := range changes {
		d.add(c)
	}
	return d.sum()
}

func (d digester) sum() string { return "sha256:" + hex.EncodeToString(d.h.Sum(nil)) }

func typeOf(st sys.Stat) Type {
	switch st.Type() {
	case syscall.S_IFREG:
		return File
	case syscall.S_IFDIR:
		return Dir
	case syscall.S_IFLNK:
		return Link
	case syscall.S_IFIFO:
		return Fifo
	case syscall.S_IFSOCK:
		return Socket
	}
	return Device
}

func nodeOf(st sys.Stat) *Node {
	n := &Node{Type: typeOf(st), Mode: st.Perm()}
	switch n.Type {
	case File:
		n.Size = st.Size
	case Link:
		// A link has no mode of its own.
		n.Mode = 0o777
	}
	return n
}

// whiteout reports whether an entry of an upper layer is an overlayfs whiteout, a character device
// 0:0. A tool cannot make one.
func whiteout(st sys.Stat) bool { return st.Type() == syscall.S_IFCHR && st.Rdev == 0 }

// leadsOut reports whether a symbolic link at path leads out of the workspace. It looks only at the
// text of target.
func leadsOut(path, target string) bool {
	if strings.HasPrefix(target, "/") {
		return true
	}
	depth := strings.Count(path, "/")
	for part := range strings.SplitSeq(target, "/") {
		switch part {
		case "", ".":
		case "..":
			if depth--; depth < 0 {
				return true
			}
		default:
			depth++
		}
	}
	return false
}

// Name is a path or a link target as it is on disk: any bytes but NUL. String and the JSON form
// escape, as Go does, each byte or character that a terminal would not show as itself. ParseName
// reverses that. The raw bytes are string(n).
type Name string

// String escapes n for people.
func (n Name) String() string {
	if plain(string(n)) {
		return string(n)
	}
	// Quote escapes control and format characters, and each space but ' '.
	quoted := strconv.Quote(string(n))
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

func plain(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' || r == '\\' })
}

// ParseName is the inverse of String.
func ParseName(s string) (Name, error) {
	var b []byte
	for rest := s; rest != ""; {
		r, multibyte, tail, err := strconv.UnquoteChar(rest, 0)
		if err != nil {
			return "", fmt.Errorf("name %q: a backslash begins no escape", s)
		}
		if r < utf8.RuneSelf || !multibyte {
			b = append(b, byte(r))
		} else {
			b = utf8.AppendRune(b, r)
		}
		rest = tail
	}
	return Name(b), nil
}

// MarshalText returns the escaped form.
func (n Name) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

// UnmarshalText parses the escaped form.
func (n *Name) UnmarshalText(text []byte) error {
	parsed, err := ParseName(string(text))
	*n = parsed
	return err
}

// join returns dir/name, or name if dir is "", the workspace's own directory.
func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

// split splits a path into its directory and its last component.
func split(path string) (dir, name string) {
	i := strings.LastIndexByte(path, '/')
	return path[:max(i, 0)], path[i+1:]
}

// within reports whether path is dir or lies below it. The workspace itself is "".
func within(dir, path string) bool { return dir == "" || paths.Within(dir, path) }

func parentOf(path string) string { dir, _ := split(path); return dir }
