// Package inherit returns the variables that a command offers to the run that it asks for. The
// policy of the run decides which of them the tool gets.
package inherit

import (
	"os"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"
)

// localTime is the link to the caller's time zone: localtime(5).
const localTime = "/etc/localtime"

// Variables returns the variables of an environment that a policy may pass on. Where the environment
// has none of them, it adds TZ for the time zone of the host, and the name and mail address by which
// git knows the caller in dir; that is workspace if dir is not in it. A variable that is not UTF-8 is
// left out: it cannot be sent as JSON without a change.
func Variables(environ []string, workspace, dir string) []string {
	if workspace != "" && !strings.HasPrefix(dir+"/", strings.TrimSuffix(workspace, "/")+"/") {
		dir = workspace
	}
	return variables(slices.Concat(environ, identity(environ, dir)), localTime)
}

func variables(environ []string, localTime string) (all []string) {
	zone := false
	for _, v := range environ {
		if utf8.ValidString(v) {
			all = append(all, v)
		}
		zone = zone || strings.HasPrefix(v, "TZ=")
	}
	if name := zoneOf(localTime); !zone && name != "" {
		all = append(all, "TZ="+name)
	}
	return all
}

// zoneOf returns the name of the time zone that link points to. It returns "" for UTC, which a
// tool has without TZ, and if link is no link to a zone.
func zoneOf(link string) string {
	target, err := os.Readlink(link)
	_, name, ok := strings.Cut(target, "/zoneinfo/")
	switch {
	case err != nil, !ok, name == "UTC", name == "Etc/UTC", !utf8.ValidString(name):
		return ""
	}
	return name
}

// nullDevice is the number of /dev/null (major 1, minor 3), by whatever name.
const nullDevice = 1<<8 | 3

// NoInput reports whether a standard input is /dev/null, so that the tool gets /dev/null, too, and
// no pipe: programs such as rg read a pipe where they would search the directory.
func NoInput(in *os.File) bool {
	info, err := in.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Rdev == nullDevice
}
