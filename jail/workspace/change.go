package workspace

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"hash"
	"strings"
	"syscall"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// A Kind is what happened to a path.
type Kind string

// Kinds of changes.
const (
	Added    Kind = "added"
	Modified Kind = "modified" // the content of a file, and perhaps its mode
	Deleted  Kind = "deleted"
	Mode     Kind = "mode" // the permission bits only
	Retyped  Kind = "type" // one type became another
	Relinked Kind = "link" // the target of a symbolic link
)

// A Type is what a path is.
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

// A Node is one side of a change.
type Node struct {
	Type   Type   `json:"type"`
	Mode   uint32 `json:"mode"` // permission bits with set-id and sticky; a commit leaves those out
	Size   int64  `json:"size"` // bytes, of a file
	SHA256 string `json:"sha256,omitempty"`
	Target Name   `json:"target,omitempty"` // of a link
}

// A Change is one path that differs between the real directory and its shadow.
type Change struct {
	Path   Name  `json:"path"` // relative to the workspace; "" is the directory itself
	Kind   Kind  `json:"kind"`
	Before *Node `json:"before,omitempty"` // in the real directory, now; the content of a deleted file is not read, nor one that the caller cannot
	After  *Node `json:"after,omitempty"`  // in the shadow
	Binary bool  `json:"binary,omitempty"` // its content, before or after, has a NUL near its beginning
	// Outside: a link whose target is absolute or climbs out of the workspace.
	Outside bool `json:"outside,omitempty"`
	// Risks say why it is more than a change to a file, those first that hold it back.
	Risks []Risk `json:"risks,omitempty"`
	// Scripts are the commands of a package manager that it changes. Only a showing has them.
	Scripts []Script `json:"scripts,omitempty"`
	// Merged: what is committed is neither side's content but both changes together.
	Merged bool `json:"merged,omitempty"`
	// Conflict says how the real path changed since the run began, if it did.
	Conflict string `json:"conflict,omitempty"`
	// Refused says why it is never committed.
	Refused string `json:"refused,omitempty"`

	seen      sys.Stat // the real path, as it was looked at
	hidden    bool     // its content is not to be shown
	pastEntry int      // of a revert: where its content is
}

// Summary counts changes.
type Summary struct {
	Added    int   `json:"added"`
	Modified int   `json:"modified"` // all but added and deleted
	Deleted  int   `json:"deleted"`
	Bytes    int64 `json:"bytes"` // size of the files that were added or modified
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

// Total is the number of changes.
func (s Summary) Total() int { return s.Added + s.Modified + s.Deleted }

// digester computes the digest of a change set: SHA-256 over one line of JSON for each change, in order, with path, kind and
// both sides. What else a Change says may differ between two looks at the same changes.
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
		panic(err) // strings and numbers always marshal
	}
	d.h.Write(append(line, '\n'))
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
		n.Mode = 0o777 // it has none of its own
	}
	return n
}

// whiteout reports whether an entry of an upper layer stands for a deletion: overlayfs makes it a device 0:0, which a tool cannot make.
func whiteout(st sys.Stat) bool { return st.Type() == syscall.S_IFCHR && st.Rdev == 0 }

// leadsOut reports whether a link at path points out of the workspace, taken by its text alone.
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
