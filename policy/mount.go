package policy

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/jail-sandbox/jail/policy/paths"
)

// Mount grants rights on a tree of the host at a place in the jail. As a point of the
// lattice it is a set of triples: for each name x below it, that Target/x shows
// Source/x with each right of Access. A mount without a target, as only a ceiling has
// one, grants its source at any place. A tmpfs has no source, and neither has a cache.
type Mount struct {
	// Absolute path of the host.
	Source string `json:"source,omitempty"`
	// Absolute path in the jail.
	Target string `json:"target,omitempty"`
	Access Rights `json:"access"`
	// Name is the name of a cache; "", which only a ceiling may have, stands for every name.
	Name string `json:"name,omitempty"`
	// Size bounds a cache, in bytes.
	Size int64 `json:"size,omitempty"`
}

// Setting reports whether m is a read-only mount of an entry in /etc, /etc/ssl or /var/lib:
// settings and tables of programs. Hosts differ in them, so a run starts without the mount if its
// source is missing.
func (m Mount) Setting() bool {
	dir := path.Dir(m.Source)
	return m.Access == Read && (dir == "/etc" || dir == "/etc/ssl" || dir == "/var/lib")
}

func (m Mount) below(n Mount) bool {
	if !m.Access.SubsetOf(n.Access) || n.Name != "" && m.Name != n.Name || m.Size > n.Size {
		return false
	}
	if n.Target == "" {
		_, ok := beneath(n.Source, m.Source)
		return ok
	}
	if m.Target == "" {
		return false
	}
	rel, ok := beneath(n.Target, m.Target)
	return ok && m.Source == n.at(rel).Source
}

func (m Mount) meet(n Mount) []Mount {
	access := m.Access & n.Access
	if access == 0 || m.Name != "" && n.Name != "" && m.Name != n.Name {
		return nil
	}
	m.Name = cmp.Or(m.Name, n.Name)
	m.Size = min(m.Size, n.Size)
	n.Name, n.Size = m.Name, m.Size
	if m.Target == "" || n.Target != "" && len(n.Target) < len(m.Target) {
		m, n = n, m
	}
	// Now n is the one without a target, if there is one, or else the deeper one.
	if n.Target == "" {
		if _, ok := beneath(n.Source, m.Source); ok {
			return []Mount{m.with(access)}
		}
		if rel, ok := beneath(m.Source, n.Source); ok {
			return []Mount{m.at(rel).with(access)}
		}
		return nil
	}
	rel, ok := beneath(m.Target, n.Target)
	if !ok || m.at(rel).Source != n.Source {
		return nil
	}
	return []Mount{n.with(access)}
}

// at returns the part of a mount at the relative path rel.
func (m Mount) at(rel string) Mount {
	if m.Source != "" {
		m.Source = paths.Join(m.Source, rel)
	}
	if m.Target != "" {
		m.Target = paths.Join(m.Target, rel)
	}
	return m
}

func (m Mount) with(access Rights) Mount { m.Access = access; return m }

func (m Mount) String() string {
	target := cmp.Or(m.Target, "anywhere")
	if m.Access == Cache {
		target += " cache " + cmp.Or(m.Name, "of any name")
		if m.Size != Unlimited {
			target += " of " + Bytes.Format(m.Size)
		}
		return target
	}
	if m.Source == "" {
		return target + " " + m.Access.String()
	}
	return target + " from " + m.Source + " " + m.Access.String()
}

// beneath returns the path of path relative to dir ("" for dir itself). ok is false if it is not
// below dir. Both are clean and absolute, or empty: the empty path contains only itself.
func beneath(dir, path string) (rel string, ok bool) {
	if dir == "" || path == "" {
		return "", dir == path
	}
	return paths.Rel(dir, path)
}

// Mounts is a set of mounts. The rights on a path are the union of what the mounts at
// the path and above it grant; a mount never takes a right away.
type Mounts []Mount

// TopMounts grants every file of the host, memory, and caches, at any place.
func TopMounts() Mounts {
	return Mounts{{Source: "/", Access: Read | Exec | Write}, {Access: Tmpfs},
		{Access: Cache, Size: Unlimited}}
}

// Meet grants the rights on each path that both grant.
func (m Mounts) Meet(n Mounts) Mounts { return meetLists(m.Normal(), n.Normal()) }

// LessEq reports whether n grants all that m grants.
func (m Mounts) LessEq(n Mounts) bool { return listBelow(m.Normal(), n.Normal()) }

// Normal drops mounts that grant nothing or that another covers, and sorts the rest. A mount
// without a source is a tmpfs or a cache; only a cache has a name and size.
func (m Mounts) Normal() Mounts {
	var out Mounts
	for _, x := range m {
		switch {
		case x.Source != "":
			x.Access &^= Tmpfs | Cache
		case x.Access&Tmpfs != 0:
			x.Access = Tmpfs
		case x.Size <= 0:
			x.Access = 0
		default:
			x.Access &= Cache
		}
		if x.Access != Cache {
			x.Name, x.Size = "", 0
		}
		if x.Access != 0 {
			out = append(out, x)
		}
	}
	return normalList(out)
}

func (m Mounts) String() string { return listString(m.Normal()) }

// memory reports whether there are mounts and none has a source.
func (m Mounts) memory() bool {
	return len(m) > 0 && !slices.ContainsFunc(m, func(x Mount) bool { return x.Source != "" })
}

// rightsAt returns the rights on a path in the jail, and the mounts that grant them.
func (m Mounts) rightsAt(path string) (rights Rights, from Mounts) {
	for _, x := range m {
		if x.Target != "" {
			if _, ok := beneath(x.Target, path); !ok {
				continue
			}
		}
		if x.Access == Tmpfs || x.Access == Cache {
			rights |= Read | Write
		} else {
			rights |= x.Access
		}
		from = append(from, x)
	}
	return rights, slices.Clip(from)
}

// Rights is a set of rights on the files below a path.
type Rights uint8

// The rights. Tmpfs and Cache are kinds of mounts, which can be read and written: an empty file
// system in memory, and one of bounded size that is kept for later runs.
const (
	Read Rights = 1 << iota
	Exec
	Write
	Tmpfs
	Cache
)

// AllRights has every right and kind.
const AllRights = Read | Exec | Write | Tmpfs | Cache

// SubsetOf reports whether s has each right of r.
func (r Rights) SubsetOf(s Rights) bool { return r&s == r }

var rightsWords = []struct {
	rights Rights
	word   string
}{
	{Read, "read"}, {Read | Exec, "read+exec"}, {Read | Write, "write"},
	{Read | Exec | Write, "write+exec"}, {Tmpfs, "tmpfs"}, {Cache, "cache"},
}

// Choices returns the words that a policy file has for rights.
func (Rights) Choices() []string {
	out := make([]string, len(rightsWords))
	for i, w := range rightsWords {
		out[i] = w.word
	}
	return out
}

// String returns the word of a policy file, or the single rights joined by a bar.
func (r Rights) String() string {
	if r == 0 {
		return "∅"
	}
	for _, w := range rightsWords {
		if w.rights == r {
			return w.word
		}
	}
	var out []string
	for i, name := range []string{"read", "exec", "write", "tmpfs", "cache"} {
		if r&(1<<i) != 0 {
			out = append(out, name)
		}
	}
	return strings.Join(out, "|")
}

// MarshalText writes the word of a policy file.
func (r Rights) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads the word of a policy file.
func (r *Rights) UnmarshalText(text []byte) error {
	for _, w := range rightsWords {
		if w.word == string(text) {
			*r = w.rights
			return nil
		}
	}
	return fmt.Errorf("%q is none of %q", text, r.Choices())
}
