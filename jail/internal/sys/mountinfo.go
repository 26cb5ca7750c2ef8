package sys

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
)

// MountsBelow returns the mount points beneath the directory dir in the caller's mount namespace
// (proc_pid_mountinfo(5)).
func MountsBelow(dir string) (below []string, err error) {
	all, err := Mounts("thread-self")
	prefix := strings.TrimSuffix(dir, "/") + "/"
	for _, m := range all {
		if strings.HasPrefix(m.Point, prefix) {
			below = append(below, m.Point)
		}
	}
	return below, err
}

// unescapeOctal decodes the octal escapes of the mount table, such as \040 for a space.
func unescapeOctal(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if v, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(v))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// A Mount is a line of a process's mount table (proc_pid_mountinfo(5)).
type Mount struct {
	ID string
	// ID of the mount that this one is mounted on
	Parent  string
	Device  string // major:minor
	Root    string // within the file system
	Point   string
	Options []string // of this mount
	// propagation fields; empty for a private mount
	Shared []string
	Type   string
	Source string
	Super  []string // of the file system
}

// Mounts returns the mount table of a process: "self", "thread-self" or a number.
func Mounts(process string) ([]Mount, error) {
	text, err := os.ReadFile("/proc/" + process + "/mountinfo")
	if err != nil {
		return nil, err
	}
	all, err := ParseMounts(string(text))
	if err != nil {
		return nil, fmt.Errorf("/proc/%s/mountinfo: %w", process, err)
	}
	return all, nil
}

// ParseMounts parses the text of a mount table (proc_pid_mountinfo(5)). A malformed line is an
// error.
func ParseMounts(text string) ([]Mount, error) {
	var all []Mount
	for line := range strings.Lines(text) {
		before, after, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 6 || len(g) < 3 {
			return nil, fmt.Errorf("a line is not understood: %q", line)
		}
		all = append(all, Mount{
			ID: f[0], Parent: f[1], Device: f[2], Root: unescapeOctal(f[3]),
			Point:   unescapeOctal(f[4]),
			Options: strings.Split(f[5], ","), Shared: f[6:],
			Type: g[0], Source: unescapeOctal(g[1]), Super: strings.Split(g[2], ","),
		})
	}
	return all, nil
}

// A Place is the location of an open file in a mount table.
type Place struct {
	// The mount that the file is on.
	Mount Mount
	// The file's path in the mount namespace of the table.
	Path string
	// The file's path within the file system of Mount, which would be the root field of a bind of
	// it.
	Root string
}

// Locate returns the place of f, which may be open with O_PATH. table is the caller's mount table.
func Locate(f *os.File, table []Mount) (Place, error) {
	id, err := mountID(f)
	if err != nil {
		return Place{}, err
	}
	name, err := os.Readlink(fdPath(f))
	if err != nil {
		return Place{}, err
	}
	n := slices.IndexFunc(table, func(m Mount) bool { return m.ID == id })
	if n < 0 {
		return Place{}, pathError("locate", f.Name(),
			errors.New("the mount table does not have its mount"))
	}
	m := table[n]
	return Place{Mount: m, Path: name, Root: path.Join(m.Root, strings.TrimPrefix(name, m.Point))},
		nil
}
