package jail

import (
	"slices"
	"strings"

	"github.com/jail-sandbox/jail/policy/paths"
)

// Grants reports whether the domain grants all of these rights on a path of the jail, as the kernel
// calls them ("read_file"): each by some rule above it, which is how the kernel adds them up.
func (l Landlock) Grants(path string, rights []string) bool {
	for _, right := range rights {
		if !slices.ContainsFunc(l.Rules, func(r LandlockRule) bool {
			return paths.Within(r.Path, path) && r.grants(right)
		}) {
			return false
		}
	}
	return true
}

// Says is what the domain has on a path: the nearest of its rules and what that grants, for
// reading.
func (l Landlock) Says(path string) string {
	var nearest *LandlockRule
	for i, r := range l.Rules {
		if paths.Within(r.Path, path) && (nearest == nil || len(r.Path) > len(nearest.Path)) {
			nearest = &l.Rules[i]
		}
	}
	if nearest == nil {
		return "nothing is granted there"
	}
	grants := []string{"read"}
	for _, g := range []struct {
		name string
		is   bool
	}{{"write", nearest.Write}, {"execute", nearest.Exec}, {"devices", nearest.Device},
		{"named pipes and sockets", nearest.Pipes}} {
		if g.is {
			grants = append(grants, g.name)
		}
	}
	return SeenPath(nearest.Path) + " is granted for: " + strings.Join(grants, ", ")
}

func (r LandlockRule) grants(right string) bool {
	switch right {
	case "read_file", "read_dir":
		return true
	case "write_file", "truncate", "remove_file", "remove_dir", "make_reg", "make_dir", "make_sym",
		"refer":
		return r.Write
	case "execute":
		return r.Exec
	case "ioctl_dev":
		return r.Device
	case "make_fifo", "make_sock", "resolve_unix":
		return r.Pipes
	}
	// Devices are never made, and of newer rights no rule speaks.
	return false
}
