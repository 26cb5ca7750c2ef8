// Package inherit returns the variables of the caller that a command offers to its run. The run's
// policy decides which of them the tool gets.
package inherit

import (
	"os"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"
)

// localTime is the link to the host's time zone: localtime(5).
const localTime = "/etc/localtime"

// Variables returns the variables that a policy may pass on: those of environ that are UTF-8, which
// JSON needs, and, if missing, TZ for the host's time zone and git's name and mail address of the
// caller in dir. If dir is outside of workspace, workspace is used instead.
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

// zoneOf returns the name of the time zone that link points to. It returns "" for UTC, the default
// without TZ, and if link is no link to a zone.
func zoneOf(link string) string {
	target, err := os.Readlink(link)
	_, name, ok := strings.Cut(target, "/zoneinfo/")
	switch {
	case err != nil, !ok, name == "UTC", name == "Etc/UTC", !utf8.ValidString(name):
		return ""
	}
	return name
}

// nullDevice is the device number of /dev/null (major 1, minor 3).
const nullDevice = 1<<8 | 3

// NoInput reports whether a standard input is /dev/null. The tool then gets /dev/null and no pipe,
// since programs such as rg would read a pipe instead of the directory.
func NoInput(in *os.File) bool {
	info, err := in.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Rdev == nullDevice
}
